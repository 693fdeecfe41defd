"""`llm`, Simon Willison's command, answers from the server as one of its extra models.

usage: llm_test.py REPRISE
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import setting


class Llm(setting.ServerTest):
    def test_the_command_answers_and_goes_on(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "extra-openai-models.yaml").write_text(
                f"- model_id: local\n  model_name: scripted\n  api_base: {self.server.url}/v1\n")

            def run(*words):
                environment = {**os.environ, "LLM_USER_PATH": folder, "OPENAI_API_KEY": "key"}
                done = subprocess.run([sys.executable, "-m", "llm", *words], env=environment, capture_output=True,
                                      text=True, timeout=120, stdin=subprocess.DEVNULL)
                self.assertEqual(done.returncode, 0, done.stderr)
                return done.stdout.strip()

            self.assertEqual(run("-m", "local", "Hi"), setting.SAID)
            self.assertEqual(run("-m", "local", "--no-stream", "Hi"), setting.SAID)
            self.assertEqual(run("-c", "And then?"), setting.SAID)
            tool = 'def get_weather(city: str) -> str:\n    "The weather."\n    return "sunny in " + city\n'
            try:
                self.assertIn(setting.ANSWER, run("-m", "local", "--functions", tool, "Hi"))
            except AssertionError as error:
                self.assertIn("does not support tools", str(error))  # where the YAML must say so


if __name__ == "__main__":
    unittest.main()
