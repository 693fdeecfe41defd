"""Codex CLI holds a conversation with a tool over /v1/responses: it asks, runs the command that the model calls, sends what
that printed, and shows the answer; then it resumes the conversation.

usage: codex_test.py REPRISE CODEX
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import setting

CODEX = sys.argv.pop(1)
CONFIG = """
model = "scripted"
model_provider = "local"
[model_providers.local]
name = "Reprise"
base_url = "{url}/v1"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
"""


class Codex(setting.ServerTest):
    options = ("--context", "131072")
    context = 131072

    def run_codex(self, folder, *words):
        environment = {**os.environ, "CODEX_HOME": folder + "/home"}
        done = subprocess.run([CODEX, "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", *words],
                              cwd=folder, env=environment, capture_output=True, text=True, timeout=500,
                              stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def test_a_conversation_with_a_command(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "home").mkdir()
            pathlib.Path(folder, "home/config.toml").write_text(CONFIG.format(url=self.server.url))
            self.assertEqual(self.run_codex(folder, "How much is it?"), setting.ANSWER)
            sent = b"".join(bytes(stream[0]) for stream in self.server.recorder.streams)
            self.assertIn(b"function_call_output", sent)
            self.assertIn(b"42", sent[sent.rindex(b"function_call_output"):])
            self.assertEqual(self.run_codex(folder, "resume", "--last", "And now?"), setting.ANSWER)


if __name__ == "__main__":
    unittest.main()
