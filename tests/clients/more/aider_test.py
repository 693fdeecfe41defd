"""aider answers a message from the server.

usage: aider_test.py REPRISE
"""
import os
import subprocess
import sys
import tempfile
import unittest

import setting


class Aider(setting.ServerTest):
    options = ("--context", "131072")
    context = 131072

    def test_a_message(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, "-m", "aider", "--model", "openai/scripted", "--openai-api-base", self.server.url + "/v1",
                 "--openai-api-key", "key", "--no-git", "--yes", "--no-show-model-warnings", "--no-check-update",
                 "--analytics-disable", "--no-pretty", "--map-tokens", "0", "--message", "Hi"],
                cwd=folder, env={**os.environ, "HOME": folder}, capture_output=True, text=True, timeout=300,
                stdin=subprocess.DEVNULL)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(setting.SAID, done.stdout)


if __name__ == "__main__":
    unittest.main()
