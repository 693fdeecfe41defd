"""Claude Code holds a conversation over /v1/messages, with the scripted model behind the template that Qwen3.5 was published with
(REPRISE_SHARED names the folder that has it): it sends system messages where that template refuses them, and more than 20 tools.

usage: claude_test.py REPRISE CLAUDE
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import setting
from setting import harness

CLAUDE = sys.argv.pop(1)
SHARED = pathlib.Path(os.environ.get("REPRISE_SHARED", harness.ROOT / "shared"))
TEMPLATE = SHARED / "assets/templates/Qwen3.5-4B.jinja"
# What the template ends with opens the reasoning; the script's answer stands behind it.
SCRIPT = "{%- if add_generation_prompt %}{{- '\\n</think>\\n\\n<|answer|>' }}{%- endif %}"
CONTEXT = 131072


@unittest.skipUnless(TEMPLATE.exists(), "the published template is not here")
class Claude(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        model = harness.make_scripted_model(pathlib.Path(cls.folder.name) / "model", CONTEXT)
        path = model / "tokenizer_config.json"
        config = json.loads(path.read_text())
        config["chat_template"] = TEMPLATE.read_text() + SCRIPT
        path.write_text(json.dumps(config))
        cls.server = harness.Server(setting.PROGRAM, "--alias", "local", "--context", str(CONTEXT), model=model)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0
        cls.folder.cleanup()

    def ask(self, *words):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("CLAUDE", "ANTHROPIC"))}
        environment = {**kept, "HOME": self.folder.name, "ANTHROPIC_BASE_URL": self.server.url, "ANTHROPIC_AUTH_TOKEN": "none",
                       "ANTHROPIC_MODEL": "local", "ANTHROPIC_SMALL_FAST_MODEL": "local", "DISABLE_AUTOUPDATER": "1",
                       "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
        done = subprocess.run([CLAUDE, "-p", "--output-format", "json", *words], cwd=self.folder.name, env=environment,
                              capture_output=True, text=True, timeout=500, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads(done.stdout)

    def test_a_conversation(self):
        first = self.ask("What is the weather in Paris?")
        self.assertEqual((first["result"], first["is_error"]), (setting.ANSWER, False))
        second = self.ask("--continue", "And now?")
        self.assertEqual((second["result"], second["is_error"]), (setting.ANSWER, False))
        sent = b"".join(bytes(stream[0]) for stream in self.server.recorder.streams)
        self.assertGreater(sent.count(b'"input_schema"'), 20)
        self.assertGreater(second["usage"]["cache_read_input_tokens"], 0)


if __name__ == "__main__":
    unittest.main()
