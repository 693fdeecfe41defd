"""Three servers that share a Redis behind a router: turns of conversations land where their state is, or find it in the store.

usage: routing_test.py REPRISE [SMG]

Runs behind HAProxy where that is installed, and behind smg where its program is given and there.
"""
import collections
import concurrent.futures
import json
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

import harness
import redis_server

PROGRAM = sys.argv.pop(1)
SMG = shutil.which(sys.argv.pop(1)) if len(sys.argv) > 1 and "/" in sys.argv[1] else None
HAPROXY = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
SESSIONS, TURNS, WORKERS = 36, 6, 3
SLACK = 64
WORDS = "fox river forest bear tree house friend story night moon water stone bread apple song road".split()


def haproxy_config(port, workers):
    """The recipe of docs/scale.md with these ports."""
    text = (harness.ROOT / "docs/scale/haproxy.cfg").read_text()
    head, _ = text.split("  # workers")
    servers = "".join(f"  server r{i} 127.0.0.1:{worker} check\n" for i, worker in enumerate(workers))
    return head.replace("bind :8000", f"bind 127.0.0.1:{port}") + servers


def wait_for(url, seconds=60):
    end = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.status == 200 and json.load(answer).get("data", True):
                    return
        except (OSError, ValueError):
            pass
        if time.monotonic() > end:
            raise AssertionError(f"{url} never answers")
        time.sleep(0.2)


class Routing(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        key = pathlib.Path(self.folder.name) / "key"
        key.write_text("0123456789abcdef" * 4)
        key.chmod(0o600)
        self.redis = redis_server.Redis()
        self.servers = [harness.Server(PROGRAM, "--store", f"redis://127.0.0.1:{self.redis.port}", "--state-key-file", str(key),
                                       "--threads", "1", model=harness.TINY) for _ in range(WORKERS)]
        self.router = None
        self.port = redis_server.free_port()

    def tearDown(self):
        if self.router is not None:
            self.router.terminate()
            self.router.wait(timeout=60)
        for server in self.servers:
            server.stop()
        self.redis.close()
        self.folder.cleanup()

    def ask(self, conversation, header):
        """Its next turn: from which tier, whether all that was computed before was found, and what was computed and new.

        A server that holds an older turn may compute the rest in less time than the store takes; its report says so."""
        rng, messages = conversation["rng"], conversation["messages"]
        messages.append({"role": "user", "content": " ".join(rng.choice(WORDS) for _ in range(60))})
        key = conversation["key"]
        body = {"model": "reprise-tiny-q8_0", "messages": messages, "max_tokens": 16, "prompt_cache_key": key}
        headers = {"Content-Type": "application/json", **({header: key} if header else {})}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/chat/completions", json.dumps(body).encode(), headers)
        for attempt in range(5):
            try:
                with urllib.request.urlopen(request, timeout=300) as answer:
                    reply = json.load(answer)
                break
            except urllib.error.HTTPError as error:
                if error.code not in (429, 503) or attempt == 4:
                    raise
                time.sleep(1)
        usage, report = reply["usage"], reply["reprise"]
        computed = usage["prompt_tokens"] - report["used_tokens"]
        before = conversation["tokens"]
        new = usage["prompt_tokens"] - before
        conversation["tokens"] = usage["total_tokens"]
        messages.append({"role": "assistant", "content": reply["choices"][0]["message"]["content"]})
        unknown = computed
        if report["reason"] == "cheaper_to_compute":
            unknown = usage["prompt_tokens"] - report["known_tokens"]
        return report["tier"], before == 0 or unknown <= new + SLACK, computed, new

    def wait_until_stored(self):
        """Until every server has stored what it has, and stores no more: the time in which people read a reply."""
        seen, times = None, 0
        while times < 5:
            now = []
            for server in self.servers:
                stats = self.stats(server)
                store = next(tier for tier in stats["budget"] if tier["tier"] == "store")
                self.assertFalse(store["failing"])
                busy = store["queued_bytes"] > 0 or stats["requests"]["idle"] > 0
                now.append((store["stores"], time.monotonic() if busy else 0))
            times = times + 1 if now == seen else 0
            seen = now
            time.sleep(0.05)

    def run_behind(self, header):
        system = {"role": "system", "content": "You tell stories to children. " + "Be kind and brief. " * 20}
        conversations = [{"key": f"s{i}", "rng": random.Random(i), "messages": [system], "tokens": 0} for i in range(SESSIONS)]
        later = []
        with concurrent.futures.ThreadPoolExecutor(18) as pool:
            for turn in range(TURNS):
                turns = list(pool.map(lambda conversation: self.ask(conversation, header), conversations))
                later += turns if turn > 0 else []
                self.wait_until_stored()
        good = sum(fine for _, fine, _, _ in later)
        tiers = collections.Counter(tier for tier, _, _, _ in later)
        spread = [self.stats(server)["requests"]["finished"] for server in self.servers]
        print(f"{self.id().split('.')[-1]} ({header or 'no header'}): {good} of {len(later)} later turns found what was computed; "
              f"from {dict(tiers)}; requests a server {spread}", file=sys.stderr)
        self.assertEqual(good, len(later), [turn for turn in later if not turn[1]])
        self.assertGreater(tiers["memory"], len(later) / 2, "conversations do not stay where their state is")

    def stats(self, server):
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/v1/cache", timeout=60) as answer:
            return json.load(answer)["server"]

    @unittest.skipUnless(HAPROXY, "haproxy is not installed")
    def test_haproxy(self):
        config = pathlib.Path(self.folder.name) / "haproxy.cfg"
        config.write_text(haproxy_config(self.port, [server.port for server in self.servers]))
        self.router = subprocess.Popen([HAPROXY, "-f", config])
        wait_for(f"http://127.0.0.1:{self.port}/v1/models")
        self.run_behind("x-session-id")

    @unittest.skipUnless(SMG, "smg is not there")
    def test_smg(self):
        urls = [f"http://127.0.0.1:{server.port}" for server in self.servers]
        self.router = subprocess.Popen([SMG, "launch", "--host", "127.0.0.1", "--port", str(self.port), "--policy", "cache_aware",
                                        "--balance-abs-threshold", "2", "--balance-rel-threshold", "1.2",
                                        "--worker-urls", *urls], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(f"http://127.0.0.1:{self.port}/v1/models", 120)
        self.run_behind(None)


if __name__ == "__main__":
    unittest.main(verbosity=2)
