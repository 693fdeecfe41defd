"""State that outlives the process: a conversation goes on after SIGTERM and after kill -9, with the bits of a cold run.

usage: restart_test.py REPRISE

REPRISE_KILLS: how often the server is killed at a random moment (default 12); REPRISE_KILLS_SEED: which moments.
"""
import concurrent.futures
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

import harness
from kept_state import SLACK, STORY, BesideCold, ask, get, post, said, tier_of, user

PROGRAM = sys.argv.pop(1)
KILLS = int(os.environ.get("REPRISE_KILLS", "12"))
SEED = int(os.environ.get("REPRISE_KILLS_SEED", "1"))


def disk_of(server):
    return tier_of(server, "disk")


class Restart(BesideCold):
    program = PROGRAM

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.disk = pathlib.Path(self.folder.name) / "state"
        self.server = None

    def tearDown(self):
        self.stop()
        self.folder.cleanup()

    def start(self, *options, gib=0.25, program=PROGRAM):
        self.stop()
        self.server = harness.Server(program, "--disk", str(self.disk), "--disk-gib", str(gib), *options, model=harness.TINY)
        return self.server

    def stop(self):
        if self.server is not None:
            status = self.server.stop()
            self.server = None
            self.assertIn(status, (0, -signal.SIGKILL))

    def kill(self):
        self.server.process.kill()
        self.server.process.wait()

    def conversation(self):
        """Messages of about 2,000 tokens, after a first turn on the server."""
        messages = [user(STORY * 90 + "Who was it?")]
        first = ask(self.server, messages)
        self.assertGreater(first["usage"]["prompt_tokens"], 1900)
        self.assertEqual(first["reprise"]["tier"], "none")
        messages.append({"role": "assistant", "content": first["choices"][0]["message"]["content"]})
        return messages + [user("And what did the fox do then?")], first["usage"]["total_tokens"]

    def wait_until_stored(self):
        """Until the server says that everything it took is on the disk, and takes no more."""
        seen, since = None, time.monotonic()
        while time.monotonic() - since < 1.5:
            disk = disk_of(self.server)
            busy = get(self.server, "/v1/cache")["server"]["requests"]
            now = (disk["stores"], disk["queued_bytes"], busy["idle"])
            if now != seen or disk["queued_bytes"] > 0 or busy["idle"] > 0:
                seen, since = now, time.monotonic()
            time.sleep(0.05)
        self.assertGreater(disk["stores"], 0)

    def go_on(self, messages, before):
        """The next turn: what it computes, and that it is what a cold server says."""
        answer = ask(self.server, messages)
        computed = answer["usage"]["prompt_tokens"] - answer["reprise"]["used_tokens"]
        new = answer["usage"]["prompt_tokens"] - before
        self.assertLessEqual(computed, new + SLACK, answer["reprise"])
        self.assertEqual(answer["reprise"]["tier"], "disk")
        self.assertGreater(answer["reprise"]["loaded"]["bytes"], 0)
        self.assertEqual(said(answer), said(ask(self.cold, messages, cache_salt=self.id())))
        return answer

    def test_a_server_that_was_stopped_goes_on(self):
        self.start()
        messages, before = self.conversation()
        self.start()  # SIGTERM first: nothing waited for idle time
        self.go_on(messages, before)

    def test_a_server_that_was_killed_goes_on_with_what_was_stored(self):
        self.start()
        messages, before = self.conversation()
        self.wait_until_stored()
        self.kill()
        self.start()
        self.go_on(messages, before)

    def test_a_folder_has_one_server(self):
        self.start()
        second = subprocess.run([PROGRAM, "serve", "--model", harness.TINY, "--port", "0", "--disk", self.disk],
                                capture_output=True, text=True, timeout=60)
        self.assertEqual(second.returncode, 1)
        self.assertIn("is in use by another process", second.stderr)

    def test_a_key_closes_the_folder_to_others(self):
        key = pathlib.Path(self.folder.name) / "key"
        key.write_text("0123456789abcdef" * 4 + "\n")
        key.chmod(0o600)
        self.start("--state-key-file", str(key))
        messages, before = self.conversation()
        self.start("--state-key-file", str(key))
        self.go_on(messages, before)
        self.start()
        self.assertEqual(disk_of(self.server)["records"], 0)
        self.assertGreater(disk_of(self.server)["unreadable"], 0)
        self.assertEqual(ask(self.server, messages)["reprise"]["tier"], "none")

    def test_a_key_is_changed_and_conversations_go_on(self):
        keys = {}
        for name, digits in ("old", "0123456789abcdef"), ("new", "fedcba9876543210"):
            keys[name] = pathlib.Path(self.folder.name) / name
            keys[name].write_text(digits * 4 + "\n")
            keys[name].chmod(0o600)
        both = ["--state-key-file", str(keys["new"]), "--old-state-key-file", str(keys["old"])]
        self.start("--state-key-file", str(keys["old"]))
        response = post(self.server, "/v1/responses", {"input": "Hello", "max_output_tokens": 16})["id"]
        messages, before = self.conversation()
        self.start(*both)
        answer = self.go_on(messages, before)
        self.assertEqual(get(self.server, f"/v1/responses/{response}")["id"], response)
        messages += [{"role": "assistant", "content": answer["choices"][0]["message"]["content"]}, user("And then?")]
        self.stop()
        self.assertIn("cannot be read with this key", self.state("ls", self.disk, *both[:2]).stdout)
        self.assertNotIn("cannot be read", self.state("ls", self.disk, *both).stdout)
        self.assertEqual(self.state("verify", self.disk, *both).returncode, 0)
        self.start("--state-key-file", str(keys["new"]))  # the old one is gone, and nothing is missing
        self.go_on(messages, answer["usage"]["total_tokens"])

    def test_compressed_records_are_smaller_and_read_by_all(self):
        key = pathlib.Path(self.folder.name) / "key"
        key.write_text("0123456789abcdef" * 4 + "\n")
        key.chmod(0o600)
        for secret in ([], ["--state-key-file", str(key)]):
            sizes = {}
            for options in ([], ["--disk-compress"]):
                shutil.rmtree(self.disk, ignore_errors=True)
                self.start(*options, *secret)
                messages, before = self.conversation()
                self.stop()
                sizes[bool(options)] = sum(file.stat().st_size for file in self.disk.glob("*.state"))
            self.assertLess(sizes[True], 0.9 * sizes[False])
            self.assertIn("compressed", self.state("ls", self.disk, *secret).stdout)
            self.assertEqual(self.state("verify", self.disk, *secret).returncode, 0)
            self.start(*secret)  # writes others beside them
            self.go_on(messages, before)
            self.start("--disk-compress", *secret)
            self.go_on(messages, before)
            self.stop()
            self.assertEqual(self.state("verify", self.disk, *secret).returncode, 0)
        refused = subprocess.run([PROGRAM, "serve", "--model", harness.TINY, "--port", "0", "--disk-compress"],
                                 capture_output=True, text=True, timeout=60)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("--disk-compress is for a folder; name one with --disk", refused.stderr)

    def test_another_tenant_finds_nothing(self):
        self.start()
        messages, _ = self.conversation()
        self.start()
        report = ask(self.server, messages, cache_salt="another")["reprise"]
        self.assertEqual((report["used_tokens"], "loaded" in report), (0, False))

    def test_rounded_snapshots_are_lossy_and_kept_apart(self):
        self.start("--snapshots", "bf16")
        messages, before = self.conversation()
        self.start("--snapshots", "bf16")
        answer = ask(self.server, messages)
        self.assertEqual(answer["reprise"]["tier"], "disk")
        self.assertEqual(answer["reprise"]["lossy"], {"method": "snapshots", "snapshots": "bf16"})
        self.assertLessEqual(answer["usage"]["prompt_tokens"] - answer["reprise"]["used_tokens"],
                             answer["usage"]["prompt_tokens"] - before + SLACK)
        exact = ask(self.server, messages, cache_prefix=False)
        self.assertNotIn("lossy", exact["reprise"])
        self.assertEqual(said(exact), said(ask(self.cold, messages, cache_salt=self.id())))
        self.start()
        answer = ask(self.server, messages)
        self.assertEqual((answer["reprise"]["tier"], answer["reprise"]["used_tokens"]), ("none", 0))
        self.assertNotIn("lossy", answer["reprise"])

    def test_rounded_snapshots_need_recurrent_state_and_a_place(self):
        llama = harness.make_scripted_model(pathlib.Path(self.folder.name) / "llama")
        for model, options, sentence in (
                (llama, ["--disk", self.disk], "this model has none"),
                (harness.TINY, [], "give a place for them with --disk or --store")):
            refused = subprocess.run([PROGRAM, "serve", "--model", model, "--port", "0", "--snapshots", "bf16", *options],
                                     capture_output=True, text=True, timeout=60)
            self.assertEqual(refused.returncode, 1)
            self.assertIn(sentence, refused.stderr)

    def respond(self, **more):
        return post(self.server, "/v1/responses", {"seed": 7, "max_output_tokens": 16, **more})

    def test_a_response_is_continued_by_its_id(self):
        key = pathlib.Path(self.folder.name) / "key"
        key.write_text("0123456789abcdef" * 4 + "\n")
        key.chmod(0o600)
        for options in (), ("--state-key-file", str(key)):
            self.start(*options)
            first = self.respond(input=STORY + "Who was it?")
            left_out = self.respond(input="Hi", store=False)
            gone = self.respond(input="Hi")
            request = urllib.request.Request(f"http://127.0.0.1:{self.server.port}/v1/responses/{gone['id']}", method="DELETE")
            urllib.request.urlopen(request, timeout=60).close()
            follow = {"previous_response_id": first["id"], "input": "And then?"}
            want = self.respond(**follow)
            self.start(*options)  # SIGTERM first
            stored = len(list((self.disk / "responses").glob("*.doc")))
            self.assertEqual(get(self.server, f"/v1/responses/{first['id']}"), first)
            again = self.respond(**follow)
            self.assertEqual(again["usage"]["input_tokens"], want["usage"]["input_tokens"])
            self.assertEqual([item["content"] for item in again["output"]], [item["content"] for item in want["output"]])
            for missing in left_out, gone:
                with self.assertRaises(urllib.error.HTTPError) as refused:
                    self.respond(previous_response_id=missing["id"], input="And then?")
                self.assertEqual(refused.exception.code, 400)
            last = self.respond(previous_response_id=again["id"], input="And then?")
            while len(list((self.disk / "responses").glob("*.doc"))) < stored + 2:
                time.sleep(0.02)
            self.kill()
            self.start(*options)
            self.assertEqual(get(self.server, f"/v1/responses/{last['id']}"), last)
        self.start()
        with self.assertRaises(urllib.error.HTTPError):
            get(self.server, f"/v1/responses/{last['id']}")  # sealed with the key

    def state(self, *arguments):
        return subprocess.run([PROGRAM, "state", *arguments], capture_output=True, text=True, timeout=120)

    def test_the_folder_can_be_listed_checked_and_pruned(self):
        self.start()
        self.conversation()
        self.stop()
        for file in self.disk.iterdir():
            self.assertEqual(file.stat().st_mode & 0o777, 0o600 if file.is_file() else 0o700)
        listed = self.state("ls", self.disk)
        self.assertIn("records", listed.stdout)
        self.assertEqual(self.state("verify", self.disk).returncode, 0)
        record = max(self.disk.glob("*.state"), key=lambda file: file.stat().st_size)
        data = bytearray(record.read_bytes())
        data[-100] ^= 1
        record.write_bytes(data)
        verified = self.state("verify", self.disk)
        self.assertEqual(verified.returncode, 1)
        self.assertIn("the record is damaged", verified.stdout)
        self.assertEqual(self.state("prune", self.disk).returncode, 1)
        self.assertEqual(self.state("prune", "--keep-gib", "0", self.disk).returncode, 0)
        self.assertEqual(list(self.disk.glob("*.state")), [])
        missing = self.state("ls", self.disk / "none")
        self.assertEqual(missing.returncode, 1)
        self.assertIn("cannot be opened", missing.stderr)

    def assert_serving_goes_on_without_the_disk(self, messages):
        """What is asked is answered as by a cold server, and the log says once what is wrong."""
        for i in range(3):
            more = messages + [user(f"And then? {i}")]
            self.assertEqual(said(ask(self.server, more)), said(ask(self.cold, more, cache_salt=self.id())))
        said_so = [line for line in self.server.log.read_text().splitlines() if "fails and is tried again later" in line]
        self.assertEqual(len(said_so), 1, self.server.log.read_text())
        with urllib.request.urlopen(f"http://127.0.0.1:{self.server.port}/metrics", timeout=60) as metrics:
            self.assertRegex(metrics.read().decode(), r"reprise_disk_failing(\{.*\})? 1\n")
        return said_so[0]

    def wait_until_failing(self):
        while not disk_of(self.server)["failing"]:
            time.sleep(0.02)

    def test_a_disk_that_is_full(self):
        self.start()
        resource.prlimit(self.server.process.pid, resource.RLIMIT_FSIZE, (1 << 18, 1 << 18))  # no file may be larger
        messages, _ = self.conversation()
        self.wait_until_failing()
        self.assertIn("writing a record failed", self.assert_serving_goes_on_without_the_disk(messages))
        self.assertEqual(list(self.disk.glob("*.state")), [])

    def test_a_folder_that_may_not_be_read_any_more(self):
        program = PROGRAM
        if os.geteuid() == 0:  # who may do everything, unless that is taken away
            program = pathlib.Path(self.folder.name) / "program"
            program.write_text(f'#!/bin/sh\nexec setpriv --bounding-set -dac_override,-dac_read_search {PROGRAM} "$@"\n')
            program.chmod(0o700)
        self.start()
        messages, _ = self.conversation()
        self.start(program=program)
        self.disk.chmod(0)
        try:
            more = messages + [user("And then?")]
            self.assertEqual(said(ask(self.server, more)), said(ask(self.cold, more, cache_salt=self.id())))
            self.wait_until_failing()
            self.assert_serving_goes_on_without_the_disk(messages)
        finally:
            self.disk.chmod(0o700)
        self.start()  # what was there is there
        self.assertEqual(ask(self.server, messages)["reprise"]["tier"], "disk")

    def test_a_folder_that_somebody_removes(self):
        self.start()
        messages, _ = self.conversation()
        self.start()
        shutil.rmtree(self.disk)
        more = messages + [user("And then?")]
        self.assertEqual(said(ask(self.server, more)), said(ask(self.cold, more, cache_salt=self.id())))
        self.wait_until_failing()
        self.assert_serving_goes_on_without_the_disk(more)

    def test_killed_at_any_moment(self):
        """Under load, at random moments: every start succeeds, every answer is that of a cold server, the folder is
        sound and within its bound."""
        bound = 6 << 20
        rng = random.Random(SEED)
        prompts = [[user(STORY * (3 + 2 * i) + f"Tale {i}?")] for i in range(6)]
        cold = [said(ask(self.cold, prompt, cache_salt=self.id())) for prompt in prompts]
        restored = 0
        self.start(gib=bound / 2**30)
        for prompt in prompts:
            ask(self.server, prompt)
        self.wait_until_stored()
        self.kill()
        for kill in range(KILLS):
            self.start(*(["--disk-compress"] if kill % 2 else []), gib=bound / 2**30)
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                asked = [(i, pool.submit(ask, self.server, prompts[i])) for i in rng.choices(range(6), k=8)]
                time.sleep(rng.uniform(0, 1.0))
                self.kill()
            for i, answer in asked:
                if answer.exception() is None:
                    self.assertEqual(said(answer.result()), cold[i], f"kill {kill}")
                    restored += answer.result()["reprise"]["tier"] == "disk"
            self.stop()
            records = list(self.disk.glob("*.state"))
            self.assertLessEqual(sum(file.stat().st_size for file in records), bound)
            verified = self.state("verify", self.disk)
            self.assertEqual(verified.returncode, 0, verified.stdout)
        self.start(gib=bound / 2**30)
        for i, prompt in enumerate(prompts):
            answer = ask(self.server, prompt)
            self.assertEqual(said(answer), cold[i])
            restored += answer["reprise"]["tier"] == "disk"
        print(f"{KILLS} kills, {restored} answers began with state from the disk", file=sys.stderr)
        self.assertGreater(restored, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
