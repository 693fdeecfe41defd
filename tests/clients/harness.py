"""Starts `reprise serve` for the client tests and stops it: see Server."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

import recorder

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TINY = ROOT / "models/reprise-tiny-q8_0.gguf"


def make_scripted_model(folder, context=4096):
    subprocess.run([sys.executable, ROOT / "tools/make_scripted_model.py", folder, str(context)], check=True)
    return folder


class Server:
    """The program on a free port, with a recorder before it. `model`: a path; None: the scripted one, with `context`."""

    def __init__(self, program, *options, model=None, context=4096):
        self.folder = tempfile.TemporaryDirectory()
        if model is None:
            model = make_scripted_model(pathlib.Path(self.folder.name) / "scripted", context)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("REPRISE_")}
        self.log = pathlib.Path(self.folder.name) / "log"  # a file: the server waits for no reader of it
        with open(self.log, "w") as log:
            named = ["--model", str(model)] if model else []  # "": the options name models
            self.process = subprocess.Popen([program, "serve", *named, "--port", "0", *options],
                                            stdout=log, stderr=subprocess.STDOUT, env=environment)
        self.port = self.wait_for_port()
        self.recorder = recorder.Recorder(self.port)
        self.url = f"http://127.0.0.1:{self.recorder.port}"
        self.model = pathlib.Path(model).stem  # as clients name it

    def wait_for_port(self):
        running = True
        while running:
            running = self.process.poll() is None
            found = re.search(r"http://127\.0\.0\.1:(\d+)\n", self.log.read_text())
            if found:
                return int(found.group(1))
            time.sleep(0.01)
        raise RuntimeError("the server did not start:\n" + self.log.read_text())

    def stop(self):
        """Ends the server as an operator would; returns its exit status."""
        self.recorder.close()
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(timeout=60)
        self.folder.cleanup()
        return status


WEATHER = {"name": "get_weather", "description": "The weather in a city.",
           "schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}


def model_id(server):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/v1/models") as answer:
        return json.load(answer)["data"][0]["id"]


def schemas():
    return json.loads((ROOT / "tests/data/openai_schemas.json").read_text())
