"""Host memory below a device's (--host-mib; here the device is the CPU): what has no room in the cache is demoted and comes back,
with the bits of a cold run; alone and in front of a disk.

usage: host_test.py REPRISE
"""
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

import harness
from kept_state import SLACK, STORY, BesideCold, ask, get, said, tier_of, user

PROGRAM = sys.argv.pop(1)
SMALL = ("-c", "2400", "--cache-mib", "8")  # two or three conversations


class Host(BesideCold):
    program = PROGRAM

    def start(self, *options):
        server = harness.Server(PROGRAM, *SMALL, *options, model=harness.TINY)
        self.addCleanup(server.stop)
        return server

    def first_turns(self, server, count):
        """Conversations after their first turn: the messages of the next one, and how many tokens there were."""
        begun = []
        for i in range(count):
            messages = [user(f"Story {i}. " + STORY * 80 + "Who was it?")]
            answer = ask(server, messages)
            self.assertEqual(answer["reprise"]["tier"], "none")
            messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
            begun.append((messages + [user("And what did the fox do then?")], answer["usage"]["total_tokens"]))
            self.wait_until_idle(server)
        return begun

    def wait_until_idle(self, server):
        seen, since = None, time.monotonic()
        while time.monotonic() - since < 0.3:
            tiers = [t for t in get(server, "/v1/cache")["server"]["budget"] if t["tier"] != "memory"]
            now = [(t["stores"], t["queued_bytes"]) for t in tiers]
            if now != seen:
                seen, since = now, time.monotonic()
            time.sleep(0.05)

    def go_on(self, server, messages, tokens):
        answer = ask(server, messages)
        self.assertEqual(said(answer), said(ask(self.cold, messages, cache_prefix=False)))
        computed = answer["usage"]["prompt_tokens"] - answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.assertLessEqual(computed, answer["usage"]["prompt_tokens"] - tokens + SLACK)
        return answer["reprise"]

    def test_what_has_no_room_comes_back(self):
        server = self.start("--host-mib", "64")
        begun = self.first_turns(server, 5)
        reports = [self.go_on(server, *one) for one in begun]
        fetched = [report for report in reports if report["tier"] == "host"]
        self.assertGreaterEqual(len(fetched), 3)
        for report in fetched:
            self.assertGreater(report["loaded"]["tokens"], 1000)
            self.assertGreater(report["loaded"]["bytes"], 1 << 20)
        host = tier_of(server, "host")
        self.assertEqual(host["fetches"], len(fetched))
        self.assertLessEqual(host["cached_bytes"], host["bytes"])
        self.assertLessEqual(host["bytes"], 64 << 20)
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as page:
            metrics = page.read().decode()
        self.assertIn(f"reprise_host_fetches_total {len(fetched)}\n", metrics)
        self.assertIn(f'reprise_cache_bytes{{tier="host",use="cached"}} {host["cached_bytes"]}\n', metrics)

    def test_it_stays_within_its_bytes(self):
        server = self.start("--host-mib", "8")
        begun = self.first_turns(server, 5)
        host = tier_of(server, "host")
        self.assertGreater(host["evicted"], 0)
        self.assertLessEqual(host["cached_bytes"], 8 << 20)
        answer = ask(server, begun[0][0])  # too long ago for both: computed
        self.assertEqual(said(answer), said(ask(self.cold, begun[0][0], cache_prefix=False)))

    def test_in_front_of_a_disk(self):
        with tempfile.TemporaryDirectory() as folder:
            disk = ("--disk", str(pathlib.Path(folder) / "state"), "--disk-gib", "0.25")
            server = self.start("--host-mib", "64", *disk)
            begun = self.first_turns(server, 4)
            self.assertEqual(self.go_on(server, *begun[0])["tier"], "host")
            self.assertEqual(server.stop(), 0)
            server = self.start("--host-mib", "64", *disk)
            self.assertEqual(self.go_on(server, *begun[1])["tier"], "disk")
            self.assertEqual(server.stop(), 0)

    def test_refused_by_name(self):
        for mib, words in (("60000000", "this machine has"), ("-1", "--host-mib")):
            done = subprocess.run([PROGRAM, "serve", "--model", str(harness.TINY), "--port", "0", "--host-mib", mib],
                                  capture_output=True, text=True, timeout=60, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("--host-mib", done.stderr + done.stdout)
            self.assertIn(words, done.stderr + done.stdout)


if __name__ == "__main__":
    unittest.main()
