"""State shared through Redis: what one server computed another one continues, with the bits of a cold run; and whatever is wrong
with Redis or with what lies there is a miss, not a wrong answer and not a server that hangs.

usage: store_test.py REPRISE
"""
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error

import harness
import redis_server
from kept_state import SLACK, STORY, BesideCold, ask, get, post, said, tier_of, user

PROGRAM = sys.argv.pop(1)


def store_of(server):
    return tier_of(server, "store")


def wait_for(what, seconds=60):
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            raise AssertionError("it never came true")
        time.sleep(0.05)


class Store(BesideCold):
    program = PROGRAM

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.key = self.write_key("key", "0123456789abcdef" * 4)
        self.redis = redis_server.Redis()
        self.proxy = redis_server.Proxy(self.redis.port)
        self.servers = []

    def tearDown(self):
        for server in self.servers:
            server.stop()
        self.proxy.close()
        self.redis.close()
        self.folder.cleanup()

    def write_key(self, name, digits):
        key = pathlib.Path(self.folder.name) / name
        key.write_text(digits + "\n")
        key.chmod(0o600)
        return str(key)

    def start(self, *options, url=None, key=None):
        url = url or f"redis://127.0.0.1:{self.redis.port}/0"
        server = harness.Server(PROGRAM, "--store", url, "--state-key-file", key or self.key, *options, model=harness.TINY)
        self.servers.append(server)
        return server

    def through_proxy(self):
        return self.start("--store-timeout-ms", "500", url=f"redis://127.0.0.1:{self.proxy.port}")

    def conversation(self, server, tale=""):
        """Messages of about 2,000 tokens, after a first turn on the server, and how many tokens that had."""
        messages = [user(STORY * 90 + f"Who was it? {tale}")]
        first = ask(server, messages)
        self.assertGreater(first["usage"]["prompt_tokens"], 1900)
        messages.append({"role": "assistant", "content": first["choices"][0]["message"]["content"]})
        return messages + [user("And what did the fox do then?")], first["usage"]["total_tokens"]

    def wait_until_stored(self, server):
        """Until everything that the server took is in the store, and it takes no more."""
        seen, since = None, time.monotonic()
        while time.monotonic() - since < 1.5:
            store = store_of(server)
            busy = get(server, "/v1/cache")["server"]["requests"]
            now = (store["stores"], store["queued_bytes"], busy["idle"])
            if now != seen or store["queued_bytes"] > 0 or busy["idle"] > 0:
                seen, since = now, time.monotonic()
            time.sleep(0.05)
        self.assertGreater(store["stores"], 0)

    def commands(self, name):
        lines = self.redis.ask("INFO", "commandstats").decode().split()
        return sum(int(line.split("calls=")[1].split(",")[0]) for line in lines if line.startswith(f"cmdstat_{name}:"))

    def expect_right(self, server, messages):
        answer = ask(server, messages)
        self.assertEqual(said(answer), said(ask(self.cold, messages, cache_salt=self.id())))
        return answer["reprise"]

    def go_on(self, server, messages, before):
        """The next turn comes from the store: what it computes, and that it is what a cold server says."""
        answer = ask(server, messages)
        computed = answer["usage"]["prompt_tokens"] - answer["reprise"]["used_tokens"]
        new = answer["usage"]["prompt_tokens"] - before
        self.assertLessEqual(computed, new + SLACK, answer["reprise"])
        self.assertEqual(answer["reprise"]["tier"], "store")
        self.assertEqual(said(answer), said(ask(self.cold, messages, cache_salt=self.id())))

    def test_a_conversation_goes_on_on_another_server(self):
        one, two = self.start(), self.start()
        messages, before = self.conversation(one)
        self.wait_until_stored(one)
        self.go_on(two, messages, before)
        # ... and back: the first one finds what the second has added.
        reply = ask(two, messages)
        messages += [{"role": "assistant", "content": reply["choices"][0]["message"]["content"]}, user("And then?")]
        self.wait_until_stored(two)
        self.go_on(one, messages, reply["usage"]["total_tokens"])

    def test_what_was_warm_is_there_after_the_last_server_ended(self):
        one = self.start()
        messages, before = self.conversation(one)
        self.servers.remove(one)
        self.assertEqual(one.stop(), 0)
        self.go_on(self.start(), messages, before)

    def test_others_find_nothing(self):
        one = self.start()
        messages, _ = self.conversation(one)
        self.wait_until_stored(one)
        # Another tenant is told nothing, and what it asks Redis does not depend on what this one has stored.
        two = self.start("--no-idle-work")

        def reads(prompt):
            before = self.commands("getrange")
            report = ask(two, prompt, cache_salt="another", max_tokens=1)["reprise"]
            self.assertEqual((report["used_tokens"], "loaded" in report), (0, False))
            return self.commands("getrange") - before, report["prompt_tokens"]

        unknown = json.loads(json.dumps(messages).replace("Once upon", "Then upon", 1))
        known_reads, known_tokens = reads(messages)
        unknown_reads, unknown_tokens = reads(unknown)
        self.assertEqual(known_tokens // 64, unknown_tokens // 64)
        self.assertEqual(known_reads, unknown_reads)
        stranger = self.start(key=self.write_key("other", "fedcba9876543210" * 4))
        self.assertEqual(self.expect_right(stranger, messages)["used_tokens"], 0)

    def test_servers_change_their_key_one_after_another(self):
        one = self.start()
        messages, before = self.conversation(one)
        self.wait_until_stored(one)
        new = self.write_key("new", "fedcba9876543210" * 4)
        two = self.start("--old-state-key-file", self.key, key=new)
        self.go_on(two, messages, before)
        reply = ask(two, messages)
        messages += [{"role": "assistant", "content": reply["choices"][0]["message"]["content"]}, user("And then?")]
        self.wait_until_stored(two)
        self.go_on(self.start(key=new), messages, reply["usage"]["total_tokens"])

    def test_nothing_is_there_to_be_read(self):
        one = self.start()
        text = "The quick brown fox jumps over the lazy dog near the river bank. "
        ask(one, [user(text * 40)])
        self.wait_until_stored(one)
        ids = post(one, "/tokenize", {"content": text})["tokens"]
        tokens = [struct.pack(f"<{n}i", *ids[at:at + n]) for n, at in ((4, 0), (4, 5))]
        size = 0
        for key in self.redis.keys():
            self.assertRegex(key.decode(), r"^reprise:1:[0-9a-f]{8}:[0-9a-f]{16}:[rihp]:[0-9a-f]+(:\d+)?$")
            value = self.redis.ask("DUMP", key)
            size += len(value)
            for secret in (b"quick brown", *tokens, harness.TINY.stem.encode()):
                self.assertNotIn(secret, value)
        self.assertGreater(size, 100_000)

    def test_redis_that_stops_and_comes_back(self):
        one = self.start("--store-timeout-ms", "500")
        messages, before = self.conversation(one)
        self.wait_until_stored(one)
        self.redis.stop()
        other = [user(STORY * 30 + "Another tale?")]
        self.expect_right(one, other)
        wait_for(lambda: store_of(one)["failing"])
        looks = store_of(one)["looks"]
        self.expect_right(one, [user(STORY * 30 + "A third tale?")])
        self.assertEqual(store_of(one)["looks"], looks, "nobody waits for a store that is known to fail")
        self.redis.start()  # empty
        wait_for(lambda: ask(one, [user("Hi.")]) and not store_of(one)["failing"])
        messages, before = self.conversation(one, "Once more.")
        self.wait_until_stored(one)
        self.go_on(self.start(), messages, before)

    def test_redis_that_does_not_answer(self):
        for fault in ("stall", "trickle", "cut", "noise"):
            with self.subTest(fault):
                self.proxy.fault = None
                one, two = self.start(), self.through_proxy()
                messages, before = self.conversation(one, fault)
                self.wait_until_stored(one)
                self.proxy.fault = fault
                report = self.expect_right(two, messages)
                self.assertEqual(report["tier"], "none")
                if fault != "noise":  # which may leave less to be found, and no more
                    self.assertGreater(store_of(two)["looks_failed"], 0)
                print(f"{fault}: first token after {report['first_token_ms']} ms, of these waited {report['queue_ms']}", file=sys.stderr)
                self.proxy.fault = None
                wait_for(lambda: ask(two, [user("Hi.")]) and not store_of(two)["failing"])
                self.goes_on_again(one, two, fault)

    def goes_on_again(self, one, two, tale):
        """A later conversation of `one` comes from the store on `two`. A look-up that a busy machine is too slow for is a miss: three tries."""
        for attempt in (1, 2, 3):
            messages, before = self.conversation(one, f"{tale} again {attempt}")
            self.wait_until_stored(one)
            try:
                return self.go_on(two, messages, before)
            except AssertionError:
                if attempt == 3:
                    raise

    def test_redis_that_was_flushed(self):
        one, two = self.start(), self.start()
        messages, before = self.conversation(one)
        self.wait_until_stored(one)
        self.redis.ask("FLUSHALL")
        self.assertEqual(self.expect_right(two, messages)["tier"], "none")
        self.wait_until_stored(two)
        answer = ask(two, messages)
        messages += [{"role": "assistant", "content": answer["choices"][0]["message"]["content"]}, user("Why?")]
        self.go_on(self.start(), messages, answer["usage"]["prompt_tokens"])

    def test_values_of_others(self):
        rng = random.Random(3)
        one = self.start()
        messages, _ = self.conversation(one)
        self.wait_until_stored(one)
        good = {key: self.redis.ask("GET", key) for key in self.redis.keys()}
        of_kind = {kind: [key for key in good if key.split(b":")[4] == kind] for kind in (b"r", b"i", b"h", b"p")}

        def foreign(kind, how):
            for key in of_kind[kind]:
                value = good[key]
                if how == "list":
                    self.redis.ask("DEL", key)
                    self.redis.ask("RPUSH", key, "not", "ours")
                elif how == "gone":
                    self.redis.ask("DEL", key)
                else:
                    at = rng.randrange(len(value))
                    self.redis.ask("SET", key, {
                        "bit": value[:at] + bytes([value[at] ^ 1]) + value[at + 1:],
                        "cut": value[:at],
                        "long": value + b"x" * 5_000_000,
                        "swapped": good[rng.choice(of_kind[kind])] if len(of_kind[kind]) > 1 else value[::-1],
                        "noise": rng.randbytes(len(value)),
                    }[how])

        for kind, ways in ((b"r", "swapped noise list"), (b"i", "noise long list"), (b"h", "bit cut swapped noise list"),
                           (b"p", "bit cut long swapped list gone")):
            for how in ways.split():
                with self.subTest(kind=kind, how=how):
                    self.redis.ask("FLUSHALL")
                    for key, value in good.items():
                        self.redis.ask("SET", key, value)
                    foreign(kind, how)
                    two = self.start("--no-idle-work", "--store-timeout-ms", "5000")
                    self.expect_right(two, messages)
                    self.servers.remove(two)
                    self.assertEqual(two.stop(), 0)
        # Everything that was bad makes way for what is good.
        self.redis.ask("FLUSHALL")
        for key in good:
            self.redis.ask("RPUSH", key, "not ours")
        two = self.start()
        self.expect_right(two, messages)
        self.wait_until_stored(two)
        self.assertEqual(self.expect_right(self.start(), messages + [user("So?")])["tier"], "store")

    def test_reset_forgets_the_store_too(self):
        one, two = self.start(), self.start()
        messages, _ = self.conversation(one)
        self.wait_until_stored(one)
        self.assertGreater(len(self.redis.keys()), 0)
        post(one, "/v1/cache/reset", {})
        wait_for(lambda: not self.redis.keys())
        self.assertEqual(self.expect_right(two, messages)["tier"], "none")

    def test_everything_expires(self):
        one = self.start("--store-hours", "1")
        self.conversation(one)
        self.wait_until_stored(one)
        for key in self.redis.keys():
            self.assertTrue(0 < self.redis.ask("PTTL", key) <= 3_600_000)

    def test_a_disk_before_the_store(self):
        """What goes down goes to both; it comes from the disk, where that has it, and else from the store."""
        disks = [str(pathlib.Path(self.folder.name) / name) for name in ("one", "two", "three")]
        one = self.start("--disk", disks[0])
        messages, before = self.conversation(one)
        self.wait_until_stored(one)
        wait_for(lambda: tier_of(one, "disk")["queued_bytes"] == 0 and tier_of(one, "disk")["stores"] == store_of(one)["stores"])
        names = [tier["tier"] for tier in get(one, "/v1/cache")["server"]["budget"]]
        self.assertEqual(names, ["memory", "disk", "store"])
        self.servers.remove(one)
        self.assertEqual(one.stop(), 0)

        def go_on(server, tier):
            answer = ask(server, messages)
            self.assertEqual(answer["reprise"]["tier"], tier, answer["reprise"])
            computed = answer["usage"]["prompt_tokens"] - answer["reprise"]["used_tokens"]
            self.assertLessEqual(computed, answer["usage"]["prompt_tokens"] - before + SLACK)
            self.assertEqual(said(answer), said(ask(self.cold, messages, cache_salt=self.id())))

        again = self.start("--disk", disks[0])
        go_on(again, "disk")
        self.servers.remove(again)
        self.assertEqual(again.stop(), 0)
        go_on(self.start("--disk", disks[1]), "store")  # another machine
        self.redis.stop()
        go_on(self.start("--disk", disks[0]), "disk")  # without Redis
        empty = self.expect_right(self.start("--disk", disks[2]), messages)
        self.assertEqual(empty["tier"], "none")

    def test_a_request_that_must_not_be_stored_leaves_nothing(self):
        """Every API, with a wish to pin as well: memory, disk and store have what they had before, also after the end."""
        disk = pathlib.Path(self.folder.name) / "disk"

        def files():
            return {str(file): file.read_bytes() for file in disk.rglob("*") if file.is_file()}

        def requests(server, **more):
            for number, (path, field) in enumerate([
                    ("/v1/chat/completions", "messages"), ("/v1/messages", "messages"), ("/v1/responses", "input"),
                    ("/v1/completions", "prompt"), ("/api/chat", "messages"), ("/api/generate", "prompt"),
                    ("/completion", "prompt")]):
                text = f"{number} is the number of a secret. " + STORY * 20
                body = {"model": server.model, "max_tokens": 8, field: [user(text)] if field == "messages" else text,
                        "stream": False, **more}
                if path == "/v1/responses":
                    del body["max_tokens"]
                    body["max_output_tokens"] = 16
                if path.startswith("/api/"):
                    del body["max_tokens"]
                    body["options"] = {"num_predict": 8}
                if path == "/v1/chat/completions":
                    body["prompt_cache_retention"] = "24h"
                yield path, post(server, path, body)

        one = self.start("--disk", str(disk))
        memory = get(one, "/v1/cache")
        for path, answer in requests(one, cache={"store": False}):
            if path == "/v1/responses":
                self.assertIs(answer["store"], False)
                with self.assertRaises(urllib.error.HTTPError):
                    get(one, "/v1/responses/" + answer["id"])
        after = get(one, "/v1/cache")
        self.assertEqual(after["tree"], memory["tree"])
        self.assertEqual(after["reports"], [])
        self.assertEqual([tier.get("bytes") for tier in after["server"]["budget"]][1:],
                         [tier.get("bytes") for tier in memory["server"]["budget"]][1:])
        self.servers.remove(one)
        self.assertEqual(one.stop(), 0)
        self.assertEqual(self.redis.keys(), [])
        self.assertEqual([name for name, data in files().items() if b"secret" in data or name.endswith(".state")], [])
        again = self.start("--disk", str(disk))
        for path, answer in requests(again):
            if "reprise" in answer:
                self.assertEqual(answer["reprise"]["used_tokens"], 0, path)
        self.wait_until_stored(again)
        self.assertNotEqual(self.redis.keys(), [])  # the same without it

    def test_password_and_tls(self):
        tls = redis_server.make_certificate(self.folder.name)
        locked = redis_server.Redis(password="p@ss", tls=tls)
        try:
            url = f"rediss://default:p%40ss@localhost:{locked.tls_port}/1"
            one = self.start("--store-ca", tls["cert"], url=url)
            messages, before = self.conversation(one)
            self.wait_until_stored(one)
            self.go_on(self.start(url=f"redis://:p%40ss@127.0.0.1:{locked.port}/1"), messages, before)
            # A certificate that nobody trusts, and a wrong password: state is not shared, all else is.
            for bad in (self.start(url=url), self.start(url=f"redis://:wrong@127.0.0.1:{locked.port}/1")):
                self.assertEqual(self.expect_right(bad, messages)["tier"], "none")
                self.assertTrue(store_of(bad)["failing"])
                self.assertNotIn("p@ss", bad.log.read_text())
                self.assertNotIn("p%40ss", bad.log.read_text())
        finally:
            locked.close()

    def test_a_store_that_asks_for_a_certificate(self):
        tls = redis_server.make_certificate(self.folder.name)
        own, other = (redis_server.make_certificate(self.folder.name, name) for name in ("own-", "other-"))
        locked = redis_server.Redis(tls={**tls, "clients": own["cert"]})
        try:
            url, ca = f"rediss://localhost:{locked.tls_port}", ["--store-ca", tls["cert"]]
            one = self.start(*ca, "--store-cert", own["cert"], "--store-cert-key", own["key"], url=url)
            messages, before = self.conversation(one)
            self.wait_until_stored(one)
            self.go_on(self.start(*ca, "--store-cert", own["cert"], "--store-cert-key", own["key"], url=url), messages, before)
            # Who shows none, or one that nobody knows, does not get in: state is not shared, all else is.
            for bad in (self.start(*ca, url=url),
                        self.start(*ca, "--store-cert", other["cert"], "--store-cert-key", other["key"], url=url)):
                self.assertEqual(self.expect_right(bad, messages)["tier"], "none")
                self.assertTrue(store_of(bad)["failing"])
        finally:
            locked.close()

    def test_what_cannot_be_is_refused(self):
        key = ["--state-key-file", self.key]
        for options, sentence in (
                (["--store", "redis://localhost"], "--store needs --state-key-file"),
                (["--disk", "x", "--old-state-key-file", self.key], "give the new one with --state-key-file"),
                (["--store", "http://localhost", *key], "must begin with redis://"),
                (["--store", "rediss://localhost", *key, "--store-cert", "x"], "--store-cert and --store-cert-key are given together"),
                (key, "give a place for them")):
            done = subprocess.run([PROGRAM, "serve", "--model", harness.TINY, "--port", "0", *options],
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 1)
            self.assertIn(sentence, done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
