"""LiteLLM's proxy stands before the server: its clients reach it by OpenAI's chat and responses, and by Anthropic's messages.

usage: litellm_proxy_test.py REPRISE
"""
import os
import pathlib
import secrets
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

import openai
import setting

CONFIG = """
model_list:
  - model_name: local
    litellm_params: {{model: openai/scripted, api_base: "{url}/v1", api_key: key}}
  - model_name: claude-local
    litellm_params: {{model: anthropic/scripted, api_base: "{url}", api_key: key}}
litellm_settings: {{num_retries: 0, telemetry: false}}
"""
TOOLS = [{"type": "function", "function": {"name": setting.harness.WEATHER["name"],
                                           "description": setting.harness.WEATHER["description"],
                                           "parameters": setting.harness.WEATHER["schema"]}}]
KEY = "sk-" + secrets.token_hex(32)  # it does not start with a weak one
HELLO = [{"role": "user", "content": "Hi"}]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class LiteLlmProxy(setting.ServerTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = tempfile.TemporaryDirectory()
        config = pathlib.Path(cls.folder.name, "config.yaml")
        config.write_text(CONFIG.format(url=cls.server.url))
        cls.port = free_port()
        program = pathlib.Path(sys.executable).parent / "litellm"
        cls.log = open(pathlib.Path(cls.folder.name, "log"), "w+")
        cls.proxy = subprocess.Popen([program, "--config", config, "--host", "127.0.0.1", "--port", str(cls.port)],
                                     env={**os.environ, "HOME": cls.folder.name, "LITELLM_MASTER_KEY": KEY}, stdout=cls.log, stderr=cls.log)
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{cls.port}/health/liveliness", timeout=5).read()
                break
            except (urllib.error.URLError, OSError):
                assert cls.proxy.poll() is None, cls.read_log()
                time.sleep(0.5)
        cls.client = openai.OpenAI(base_url=f"http://127.0.0.1:{cls.port}/v1", api_key=KEY, max_retries=0)

    @classmethod
    def read_log(cls):
        cls.log.seek(0)
        return cls.log.read()[-3000:]

    @classmethod
    def tearDownClass(cls):
        cls.proxy.terminate()
        cls.proxy.wait(timeout=60)
        cls.folder.cleanup()
        super().tearDownClass()

    def test_chat_streams_and_tools(self):
        for model in ["local", "claude-local"]:
            with self.subTest(model=model):
                def ask(messages=HELLO, **more):
                    return self.client.chat.completions.create(model=model, messages=messages, max_tokens=100, **more)
                self.assertEqual(ask().choices[0].message.content, setting.SAID)
                text = "".join(c.choices[0].delta.content or "" for c in ask(stream=True) if c.choices)
                self.assertEqual(text, setting.SAID)
                message = ask(tools=TOOLS).choices[0].message
                call = message.tool_calls[0]
                result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
                said = {"role": "assistant", "content": message.content, "tool_calls": [call.model_dump()]}
                self.assertEqual(ask([*HELLO, said, result], tools=TOOLS).choices[0].message.content, setting.ANSWER)

    def test_responses(self):
        self.assertEqual(self.client.responses.create(model="local", input="Hi").output_text, setting.SAID)


if __name__ == "__main__":
    unittest.main()
