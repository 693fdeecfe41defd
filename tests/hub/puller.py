"""Runs `reprise` with a hub and a cache of its own: what the tests of the hub share."""
import http.client
import json
import os
import pathlib
import subprocess
import threading

import hub_server

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TINY = ROOT / "models/reprise-tiny-q8_0.gguf"


class Puller:
    def __init__(self, program, home, endpoint):
        self.program, self.home, self.endpoint = program, pathlib.Path(home), endpoint
        self.cache = self.home / "hub"

    def environment(self, **more):
        environment = {k: v for k, v in os.environ.items()
                       if not k.startswith(("REPRISE_", "HF_", "HUGGING")) and not k.lower().endswith("_proxy")}
        environment |= {"HF_HOME": str(self.home), "HF_ENDPOINT": self.endpoint,
                        "REPRISE_RETRY_PAUSE_MS": "10", "HF_HUB_DOWNLOAD_TIMEOUT": "5"}
        return environment | more

    def start(self, *args, **more):
        return subprocess.Popen([self.program, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=self.environment(**more))

    def run(self, *args, **more):
        return subprocess.run([self.program, *args], capture_output=True, text=True, timeout=120,
                              env=self.environment(**more))

    def pull(self, name, *args, **more):
        return self.run("pull", name, *args, **more)

    def repo(self, name):
        return self.cache / ("models--" + name.replace("/", "--"))

    def check_sound(self, name, repo):
        """What has the name of a blob has its digest; what a snapshot links to is the file. Returns how many."""
        count = 0
        for blob in (self.repo(name) / "blobs").glob("*"):
            if blob.name.endswith(".incomplete"):
                continue
            data = blob.read_bytes()
            digest = hub_server.sha256(data) if len(blob.name) == 64 else hub_server.git_sha1(data)
            assert digest == blob.name, f"{blob} is not sound"
        root = self.repo(name) / "snapshots" / repo.commit
        for link in root.rglob("*"):
            if link.is_dir():
                continue
            assert link.is_symlink() and not os.path.isabs(os.readlink(link)), link
            assert link.read_bytes() == repo.files[str(link.relative_to(root))], link
            count += 1
        return count


class Serve:
    """`reprise serve WORDS` while it is used: with Serve(puller, "hf:org/repo") as server."""

    def __init__(self, puller, *words, **more):
        self.process = puller.start("serve", *map(str, words), "--port", "0", "--device", "cpu", **more)
        self.lines_of_log = []
        self.reader = threading.Thread(target=lambda: self.lines_of_log.extend(self.process.stderr))
        self.reader.start()
        said = self.process.stdout.readline().split()
        self.port = int(said[-1].rsplit(":", 1)[1]) if said else None

    def __enter__(self):
        assert self.port, self.log()
        return self

    def __exit__(self, *ignored):
        self.process.terminate()
        self.process.wait(timeout=60)
        self.reader.join()
        self.process.stdout.close()
        self.process.stderr.close()

    def log(self):
        return "".join(self.lines_of_log)

    def start(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, None if body is None else json.dumps(body), {"content-type": "application/json"})
        return connection, connection.getresponse()

    def ask(self, method, path, body=None):
        """The status, and the answer's JSON."""
        connection, answer = self.start(method, path, body)
        text = answer.read()
        connection.close()
        return answer.status, json.loads(text) if text else None

    def lines(self, path, body):
        """The objects of a stream of lines."""
        connection, answer = self.start("POST", path, body)
        assert answer.status == 200, answer.read()
        lines = [json.loads(line) for line in answer.read().splitlines()]
        connection.close()
        return lines

    def leave(self, path, body):
        """Asks, and goes away when something has come and before the answer ends."""
        connection, answer = self.start("POST", path, body)
        while not json.loads(answer.readline()).get("completed"):
            pass
        connection.close()
        answer.close()

    def generate(self, model):
        """A reply of two tokens by Ollama's API."""
        return self.ask("POST", "/api/generate", {"model": model, "prompt": "Once", "stream": False, "options": {"num_predict": 2}})
