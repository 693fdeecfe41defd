"""opencode answers from the server, as an OpenAI-compatible provider.

usage: opencode_test.py REPRISE OPENCODE
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import setting

OPENCODE = sys.argv.pop(1)


class OpenCode(setting.ServerTest):
    options = ("--context", "131072")
    context = 131072

    def test_a_conversation(self):
        with tempfile.TemporaryDirectory() as folder:
            provider = {"npm": "@ai-sdk/openai-compatible", "name": "Reprise", "models": {"scripted": {"name": "scripted"}},
                        "options": {"baseURL": self.server.url + "/v1", "apiKey": "key"}}
            pathlib.Path(folder, "opencode.json").write_text(json.dumps(
                {"provider": {"local": provider}, "model": "local/scripted", "small_model": "local/scripted",
                 "share": "disabled", "autoupdate": False}))
            environment = {**os.environ, "HOME": folder, "PWD": folder, "XDG_CONFIG_HOME": folder + "/config",
                           "XDG_DATA_HOME": folder + "/data", "XDG_CACHE_HOME": folder + "/cache",
                           "OPENCODE_DISABLE_MODELS_FETCH": "1"}
            done = subprocess.run([OPENCODE, "run", "-m", "local/scripted", "Hi"], cwd=folder, env=environment,
                                  capture_output=True, text=True, timeout=500, stdin=subprocess.DEVNULL)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(setting.ANSWER, done.stdout)


if __name__ == "__main__":
    unittest.main()
