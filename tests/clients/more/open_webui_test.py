"""Open WebUI, started as its users start it, lists the model and chats through its own API, by OpenAI's and by Ollama's.

usage: open_webui_test.py REPRISE
"""
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

import setting


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class OpenWebUi(setting.ServerTest):
    options = ("--context", "8192")
    context = 8192

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = tempfile.TemporaryDirectory()
        cls.port = free_port()
        environment = {
            **os.environ, "DATA_DIR": cls.folder.name, "HOME": cls.folder.name, "WEBUI_AUTH": "False", "OFFLINE_MODE": "True",
            "WEBUI_SECRET_KEY": "secret", "OPENAI_API_BASE_URL": cls.server.url + "/v1", "OPENAI_API_KEY": "key",
            "OLLAMA_BASE_URL": cls.server.url, "RAG_EMBEDDING_ENGINE": "openai", "RAG_OPENAI_API_BASE_URL": cls.server.url + "/v1",
            "ENABLE_VERSION_UPDATE_CHECK": "False", "ANONYMIZED_TELEMETRY": "False", "BYPASS_EMBEDDING_AND_RETRIEVAL": "True"}
        program = pathlib.Path(sys.executable).parent / "open-webui"
        cls.log = open(pathlib.Path(cls.folder.name, "log"), "w+")
        cls.web = subprocess.Popen([program, "serve", "--host", "127.0.0.1", "--port", str(cls.port)], cwd=cls.folder.name,
                                   env=environment, stdout=cls.log, stderr=cls.log)
        for _ in range(600):
            try:
                cls.ask("/health")
                break
            except (urllib.error.URLError, OSError):
                assert cls.web.poll() is None, cls.read_log()
                time.sleep(0.5)
        cls.token = cls.ask("/api/v1/auths/signin", {"email": "", "password": ""})["token"]

    @classmethod
    def tearDownClass(cls):
        cls.web.terminate()
        cls.web.wait(timeout=60)
        cls.folder.cleanup()
        super().tearDownClass()

    @classmethod
    def read_log(cls):
        cls.log.seek(0)
        return cls.log.read()[-3000:]

    @classmethod
    def ask(cls, path, body=None):
        headers = {"Content-Type": "application/json", "Authorization": "Bearer " + getattr(cls, "token", "")}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{cls.port}{path}", data, headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def test_models_and_chat(self):
        models = [model["id"] for model in self.ask("/api/models")["data"]]
        self.assertIn("scripted", models)
        self.assertIn("scripted:latest", models)
        for name in ("scripted", "scripted:latest"):  # OpenAI's way, Ollama's way
            with self.subTest(model=name):
                reply = self.ask("/api/chat/completions", {"model": name, "stream": False,
                                                           "messages": [{"role": "user", "content": "Hi"}]})
                self.assertEqual(reply["choices"][0]["message"]["content"], setting.SAID, self.read_log())


if __name__ == "__main__":
    unittest.main()
