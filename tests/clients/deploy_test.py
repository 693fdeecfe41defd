"""deploy/compose.yaml as processes: three servers, Redis and the router, with the flags that stand there. Conversations go to the server
that has their state, and one that loses its server goes on from Redis. deploy/kubernetes.yaml has the same flags.

usage: deploy_test.py REPRISE [SMG]
"""
import concurrent.futures
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

import yaml

import harness
from redis_server import free_port

PROGRAM = sys.argv.pop(1)
SMG = shutil.which(sys.argv.pop(1)) if len(sys.argv) > 1 and "/" in sys.argv[1] else None
DEPLOY = harness.ROOT / "deploy"
KEY = "a-key-for-this-test"
SESSIONS, SLACK = 9, 64
WORDS = "fox river forest bear tree house friend story night moon water stone bread apple song road".split()


def compose():
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]


def kubernetes():
    """kind/name: the object."""
    objects = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    return {f"{one['kind']}/{one['metadata']['name']}": one for one in objects}


def container(workload):
    (one,) = workload["spec"]["template"]["spec"]["containers"]
    return one


def replace(words, names):
    for name, value in names.items():
        words = [word.replace(name, value) for word in words]
    return words


class SameTopology(unittest.TestCase):
    """What can be seen without running anything."""

    def test_compose_and_kubernetes_have_the_same_flags(self):
        services, objects = compose(), kubernetes()
        server = container(objects["StatefulSet/reprise-server"])["args"]
        names = {"reprise-redis": "redis", "/key/": "/run/secrets/"}
        for number in range(3):
            self.assertEqual(services[f"server-{number}"]["command"], replace(server, names))
        redis = container(objects["Deployment/reprise-redis"])
        self.assertEqual(services["redis"]["command"], redis["command"] + redis["args"])
        router = container(objects["Deployment/reprise-router"])["args"]
        names = {f"reprise-server-{number}.reprise-server": f"server-{number}" for number in range(3)}
        names["$(REPRISE_API_KEY)"] = "${REPRISE_API_KEY}"  # each expands it in its own way
        self.assertEqual(services["router"]["command"], replace(router, names))

    def test_kubernetes_objects_find_each_other(self):
        objects = kubernetes()
        for kind in ("StatefulSet", "Deployment"):
            for name, one in objects.items():
                if name.startswith(kind):
                    labels = one["spec"]["template"]["metadata"]["labels"]
                    self.assertEqual(one["spec"]["selector"]["matchLabels"], labels)
                    services = [other for other in objects.values() if other["kind"] == "Service" and other["spec"]["selector"].items() <= labels.items()]
                    self.assertEqual(len(services), 1, name)
        server = objects["StatefulSet/reprise-server"]["spec"]
        self.assertEqual(objects["Service/" + server["serviceName"]]["spec"]["clusterIP"], "None")
        urls = [word for word in container(objects["Deployment/reprise-router"])["args"] if word.startswith("http://")]
        self.assertEqual(len(urls), server["replicas"])


@unittest.skipUnless(SMG, "smg is not there")
class Deployed(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.services = compose()
        key = pathlib.Path(self.folder.name) / "state-key"
        key.write_text("0123456789abcdef" * 4)
        key.chmod(0o600)
        self.ports = {name: free_port() for name in self.services}
        # What names and files stand for: addresses and paths of this machine.
        self.names = {f"//{name}:{port}": f"//127.0.0.1:{self.ports[name]}" for name in self.services for port in (6379, 8080)}
        self.names.update({"/run/secrets/state-key": str(key), "0.0.0.0": "127.0.0.1", "${REPRISE_API_KEY}": KEY})
        self.processes = {}
        self.start("redis", [], "--port", str(self.ports["redis"]), "--bind", "127.0.0.1", "--dir", self.folder.name)
        for name in self.services:
            if name.startswith("server-"):
                self.start_server(name)
        # Its metrics have one port that is the same for all.
        self.start("router", [SMG], "--prometheus-port", str(free_port()), "--prometheus-host", "127.0.0.1", names={"--port=8000": f"--port={self.ports['router']}"})
        self.wait(lambda: len(self.ask("GET", "router", "/v1/models")["data"]) > 0)

    def tearDown(self):
        for name in ("router", "server-0", "server-1", "server-2", "redis"):
            if name in self.processes:
                self.stop(name)
        self.folder.cleanup()

    def start(self, name, program, *more, names=None):
        words = replace([*program, *self.services[name]["command"], *more], {**self.names, **(names or {})})
        environment = {k: v for k, v in os.environ.items() if not k.startswith("REPRISE_")}
        if name.startswith("server-"):
            environment.update(REPRISE_API_KEY=KEY, REPRISE_MODEL="", REPRISE_THREADS="1")
            self.assertEqual(set(self.services[name]["environment"]), {"REPRISE_API_KEY", "REPRISE_MODEL"})
        with open(pathlib.Path(self.folder.name) / f"{name}.log", "a") as log:
            self.processes[name] = subprocess.Popen(words, stdout=log, stderr=log, env=environment)

    def start_server(self, name):
        self.start(name, [PROGRAM], names={"8080": str(self.ports[name])})
        self.wait(lambda: self.ask("GET", name, "/health"))

    def stop(self, name):
        process = self.processes.pop(name)
        process.send_signal(signal.SIGTERM)
        return process.wait(timeout=60)

    def wait(self, what, seconds=60):
        end = time.monotonic() + seconds
        while True:
            try:
                if what():
                    return
            except (OSError, ValueError):
                pass
            if time.monotonic() > end:
                logs = "".join(path.read_text()[-1000:] for path in pathlib.Path(self.folder.name).glob("*.log"))
                raise AssertionError("it never came true\n" + logs)
            time.sleep(0.1)

    def ask(self, method, name, path, body=None):
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}", "Host": f"{name}:8080"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.ports[name]}{path}", body and json.dumps(body).encode(), headers, method=method)
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)

    def wait_until_stored(self):
        """Until no server has anything left to write to Redis."""
        def quiet():
            caches = [self.ask("GET", name, "/v1/cache") for name in self.processes if name.startswith("server-")]
            stores = [tier for cache in caches for tier in cache["server"]["budget"] if tier["tier"] == "store"]
            return all(tier["queued_bytes"] == 0 for tier in stores) and all(cache["server"]["requests"]["idle"] == 0 for cache in caches)
        self.wait(lambda: quiet() and not time.sleep(0.5) and quiet())

    def turn(self, conversation, text):
        """One turn through the router: the tier that its state came from, and whether it computed no more than was new."""
        conversation["messages"].append({"role": "user", "content": text})
        answer = self.ask("POST", "router", "/v1/chat/completions",
                          {"model": harness.TINY.stem, "messages": conversation["messages"], "max_tokens": 16})
        usage, report = answer["usage"], answer["reprise"]
        computed, new = usage["prompt_tokens"] - report["used_tokens"], usage["prompt_tokens"] - conversation["tokens"]
        fine = conversation["tokens"] == 0 or computed <= new + SLACK
        conversation["tokens"] = usage["total_tokens"]
        conversation["messages"].append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
        return report["tier"], fine

    def all_turn(self, conversations, seed):
        rng = random.Random(seed)
        texts = [" ".join(rng.choice(WORDS) for _ in range(120)) for _ in conversations]
        with concurrent.futures.ThreadPoolExecutor(SESSIONS) as pool:
            turns = list(pool.map(self.turn, conversations, texts))
        self.wait_until_stored()
        return turns

    def finished(self):
        return [self.ask("GET", f"server-{number}", "/v1/cache")["server"]["requests"]["finished"] for number in range(3)]

    def test_conversations_keep_their_state(self):
        conversations = [{"messages": [{"role": "system", "content": f"You are storyteller number {number}."}], "tokens": 0} for number in range(SESSIONS)]
        self.all_turn(conversations, 1)
        second = self.all_turn(conversations, 2)
        self.assertEqual([fine for _, fine in second], [True] * SESSIONS, second)
        spread = self.finished()
        self.assertGreater(len([count for count in spread if count > 0]), 1, spread)
        # Every server in turn goes down as in an update, and comes back with nothing in memory.
        for number in range(3):
            self.assertEqual(self.stop(f"server-{number}"), 0)
            self.start_server(f"server-{number}")
        third = self.all_turn(conversations, 3)
        print(f"second turns: {second}, after all servers were replaced: {third}; requests a server: {spread}", file=sys.stderr)
        self.assertEqual(third, [("store", True)] * SESSIONS)


if __name__ == "__main__":
    unittest.main(verbosity=2)
