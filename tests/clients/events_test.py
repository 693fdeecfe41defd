"""Routers that follow KV events: what they hear is what the server has.

usage: events_test.py REPRISE [PYTHON]

PYTHON: one that has ai-dynamo-runtime, whose indexer then hears the events, too; without it, only a follower of our own does.
"""
import json
import random
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest
import urllib.error
import urllib.request

import msgpack
import zmq

import harness
from kept_state import get, post

PROGRAM = sys.argv.pop(1)
DYNAMO = sys.argv.pop(1) if len(sys.argv) > 1 and "/" in sys.argv[1] else None
if DYNAMO and subprocess.run([DYNAMO, "-c", "import dynamo._core"], stderr=subprocess.DEVNULL).returncode != 0:
    DYNAMO = None
BLOCK = 64
TOPIC = b"kv@test"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def greet(port):
    """A connection that has said what a DEALER of ZeroMQ says first (ZMTP 3.0)."""
    raw = socket.create_connection(("127.0.0.1", port))
    raw.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48))
    ready = b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
    raw.sendall(b"\x04" + bytes([len(ready)]) + ready)
    return raw


def send_frames(raw, parts):
    """A message of these parts (ZMTP 3.0). libzmq itself may abort where its peer leaves in the middle of one."""
    for i, part in enumerate(parts):
        more = int(i + 1 < len(parts))
        head = bytes([more, len(part)]) if len(part) < 256 else bytes([more | 2]) + struct.pack(">Q", len(part))
        raw.sendall(head + part)


class Follower:
    """What somebody knows who hears the events: blocks by the hash of the one before and their tokens."""

    def __init__(self):
        self.blocks = {}  # hash: (parent, tokens)
        self.by_content = {}
        self.next = 0
        self.payloads = []

    def hear(self, topic, number, payload):
        assert topic == TOPIC and struct.unpack(">Q", number)[0] == self.next, (topic, number, self.next)
        self.next += 1
        self.payloads.append(payload)
        seconds, events, rank = msgpack.unpackb(payload)
        assert abs(seconds - time.time()) < 600 and rank == 0
        for event in events:
            getattr(self, event[0])(*event[1:])

    def BlockStored(self, hashes, parent, tokens, size, adapter, medium, adapter_name):
        assert size == BLOCK and len(tokens) == BLOCK * len(hashes) and medium == "GPU" and adapter is adapter_name is None
        assert parent is None or parent in self.blocks
        for i, name in enumerate(hashes):
            assert name not in self.blocks
            self.blocks[name] = (parent, tuple(tokens[i * BLOCK:(i + 1) * BLOCK]))
            self.by_content[self.blocks[name]] = name
            parent = name

    def BlockRemoved(self, hashes, medium):
        assert medium == "GPU"
        for name in hashes:
            del self.by_content[self.blocks.pop(name)]

    def AllBlocksCleared(self):
        self.blocks.clear()
        self.by_content.clear()

    def match(self, tokens):
        parent, count = None, 0
        while len(tokens) >= (count + 1) * BLOCK:
            parent = self.by_content.get((parent, tuple(tokens[count * BLOCK:(count + 1) * BLOCK])))
            if parent is None:
                break
            count += 1
        return count


class Listener(threading.Thread):
    """Follows the events of an address as they come."""

    def __init__(self, context, address):
        super().__init__(daemon=True)
        self.follower = Follower()
        self.socket = context.socket(zmq.SUB)
        self.socket.connect(address)
        self.socket.subscribe(TOPIC)
        self.heard = time.monotonic()
        self.failure = None
        self.ended = False
        self.start()

    def run(self):
        try:
            while not self.ended:
                if self.socket.poll(50):
                    self.follower.hear(*self.socket.recv_multipart())
                    self.heard = time.monotonic()
        except Exception as error:  # told by settle()
            self.failure = error
        self.socket.close(0)

    def settle(self):
        """Until nothing has come for a while."""
        self.heard = time.monotonic()
        while self.failure is None and time.monotonic() - self.heard < 0.4:
            time.sleep(0.02)
        if self.failure is not None:
            raise self.failure
        return self.follower


class Indexer:
    """Dynamo's own indexer, as a process."""

    def __init__(self):
        self.start()
        for _ in range(1200):  # it takes long beside other tests
            if self.process.poll() is not None:
                self.start()  # its port was taken meanwhile
            try:
                return self.call("/query", {"model_name": "m", "token_ids": [1] * BLOCK}) and None
            except urllib.error.HTTPError:
                return
            except OSError:
                time.sleep(0.1)
        self.process.kill()
        raise RuntimeError("the indexer did not start")

    def start(self):
        self.port = free_port()
        program = f"from dynamo._core import run_kv_indexer as run; run(['--port', '{self.port}', '--threads', '1'])"
        self.process = subprocess.Popen([DYNAMO, "-c", program], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def call(self, path, body):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.loads(answer.read() or b"null")

    def register(self, events, replay):
        self.call("/register", {"instance_id": 7, "endpoint": events, "replay_endpoint": replay, "model_name": "m",
                                "block_size": BLOCK})

    def match(self, tokens):
        """Blocks that it believes the server to have."""
        scores = self.call("/query", {"model_name": "m", "token_ids": tokens})["scores"]
        return max((tokens for ranks in scores.values() for tokens in ranks.values()), default=0) // BLOCK

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=30)


class Events(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.context = zmq.Context()

    @classmethod
    def tearDownClass(cls):
        cls.context.destroy(0)

    def setUp(self):
        self.server = None
        self.listener = None
        self.indexer = None

    def tearDown(self):
        if self.listener is not None:
            self.listener.ended = True
            self.listener.join()
        if self.indexer is not None:
            self.indexer.stop()
        if self.server is not None:
            self.server.stop()

    def start(self, *options, listen=True):
        self.events, self.replay = (f"tcp://127.0.0.1:{free_port()}" for _ in range(2))
        self.server = harness.Server(PROGRAM, "--kv-events", self.events, "--kv-events-replay", self.replay, "--kv-events-topic",
                                     TOPIC.decode(), "--no-idle-work", *options, model=harness.TINY)
        if listen:
            self.listener = self.listen()

    def listen(self):
        """A follower that begins with what it missed."""
        listener = Listener(self.context, self.events)
        time.sleep(0.3)  # until it has subscribed; nothing is said meanwhile
        for topic, number, payload in self.ask_replay(0):
            listener.follower.hear(topic, number, payload)
        return listener

    def ask_replay(self, first):
        with self.context.socket(zmq.DEALER) as dealer:
            dealer.linger = 0
            dealer.connect(self.replay)
            dealer.send_multipart([b"", struct.pack(">Q", first)])
            messages = []
            while True:
                self.assertTrue(dealer.poll(10000), "the replay has no end")
                empty, topic, number, payload = dealer.recv_multipart()
                self.assertEqual(empty, b"")
                if number == b"\xff" * 8:
                    self.assertEqual((topic, payload), (b"", b""))
                    return messages
                messages.append((topic, number, payload))

    def complete(self, tokens, **more):
        return post(self.server, "/v1/completions", {"prompt": tokens, "max_tokens": 8, "temperature": 0, **more})

    def held(self):
        """What /v1/cache says: blocks in all, and of the prompt that came last."""
        nodes = get(self.server, "/v1/cache?nodes=8192")["tree"]["nodes"]
        blocks = sum(max(0, node["kv_end"] // BLOCK - node["begin"] // BLOCK) for node in nodes)
        last = max((min(node["lit_end"], node["kv_end"]) for node in nodes if node["lit_end"] > node["begin"]), default=0)
        return blocks, last // BLOCK

    def check(self, prompts, last=None):
        """That all who listen know what the server says that it has."""
        follower = self.listener.settle()
        blocks, lit = self.held()
        self.assertEqual(len(follower.blocks), blocks)
        if last is not None:
            self.assertEqual(follower.match(last), lit)
        if self.indexer is not None:
            for prompt in prompts:
                self.assertEqual(self.indexer.match(prompt), follower.match(prompt), f"Dynamo, of {len(prompt)} tokens")
        return follower

    def converse(self, rng, prompts, turns):
        for _ in range(turns):
            head = rng.choice(prompts) if prompts and rng.random() < 0.7 else []
            if rng.random() < 0.4:
                head = head[:rng.randrange(len(head) + 1)]
            prompt = (head + [rng.randrange(500, 900) for _ in range(rng.randrange(20, 300))])[:1500]
            self.complete(prompt)
            prompts.append(prompt)

    def test_what_is_told_is_what_is_there(self):
        """Conversations that branch, in a cache that is too small for them; then it is emptied."""
        self.start("--cache-mib", "30", "--context", "2048")
        if DYNAMO:
            self.indexer = Indexer()
            self.indexer.register(self.events, self.replay)
            time.sleep(1)
        self.assertEqual(msgpack.unpackb(self.listener.follower.payloads[0])[1], [["AllBlocksCleared"]])
        rng = random.Random(3)
        prompts = []
        for _ in range(6):
            self.converse(rng, prompts, 8)
            follower = self.check(prompts, prompts[-1])
        evicted = get(self.server, "/v1/cache")["server"]
        print(f"{len(prompts)} prompts, {follower.next} messages, {len(follower.blocks)} blocks, evicted "
              f"{evicted['blocks_evicted']}; Dynamo {'agrees' if self.indexer else 'is not there'}", file=sys.stderr)
        self.assertGreater(sum(evicted["blocks_evicted"].values()), 0)
        self.assertGreater(max(follower.match(prompt) for prompt in prompts), 4)
        # What they were told can be resumed, can be.
        best = max(prompts, key=follower.match)
        known = follower.match(best)
        report = self.complete(best + [600])["reprise"]
        self.assertGreaterEqual(report["used_tokens"] // BLOCK, known, report)
        post(self.server, "/v1/cache/reset", {})
        self.assertEqual(self.check(prompts).blocks, {})

    @unittest.skipUnless(DYNAMO, "ai-dynamo-runtime is not there")
    def test_an_indexer_that_comes_late_catches_up(self):
        self.start()
        prompts = []
        self.converse(random.Random(5), prompts, 8)
        self.indexer = Indexer()
        self.indexer.register(self.events, self.replay)
        time.sleep(1)
        self.converse(random.Random(6), prompts, 1)  # the first message shows it that it missed some
        for _ in range(50):
            if self.indexer.match(prompts[0]) == self.listener.settle().match(prompts[0]):
                break
        self.check(prompts, prompts[-1])
        self.assertGreater(self.indexer.match(max(prompts, key=len)), 1)

    def test_who_missed_something_asks_again(self):
        self.start()
        prompts = []
        self.converse(random.Random(7), prompts, 5)
        payloads = self.listener.settle().payloads
        whole = self.ask_replay(0)
        self.assertEqual([payload for _, _, payload in whole], payloads)
        self.assertEqual([struct.unpack(">Q", number)[0] for _, number, _ in whole], list(range(len(payloads))))
        self.assertEqual(self.ask_replay(3), whole[3:])
        self.assertEqual(self.ask_replay(len(payloads)), [])
        self.assertEqual(self.ask_replay(2**64 - 1), [])
        self.server.process.terminate()  # the last word: nothing is there any more
        follower = self.listener.settle()
        self.assertEqual(msgpack.unpackb(follower.payloads[-1])[1], [["AllBlocksCleared"]])

    def test_nobody_hears_of_tenants(self):
        self.start("--api-key", "secret")
        body = json.dumps({"prompt": list(range(500, 900)), "max_tokens": 4}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.server.port}/v1/completions", body,
                                         {"Content-Type": "application/json", "Authorization": "Bearer secret"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            self.assertEqual(answer.status, 200)
        self.assertEqual(len(self.listener.settle().payloads), 1)

    def test_salted_prompts_are_not_told(self):
        self.start()
        self.complete(list(range(500, 900)), cache_salt="mine")
        self.assertEqual(len(self.listener.settle().payloads), 1)
        self.complete(list(range(500, 900)))
        self.assertEqual(len(self.listener.settle().blocks), 6)

    def test_strangers_at_the_sockets(self):
        """Whatever they send: events go on, and so does the server."""
        self.start()
        rng = random.Random(9)
        host, ports = "127.0.0.1", [int(address.rsplit(":", 1)[1]) for address in (self.events, self.replay)]
        for i in range(60):
            with socket.create_connection((host, ports[i % 2])) as raw:  # not ZeroMQ
                try:
                    if i % 3 == 0:
                        raw.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48))
                    raw.sendall(rng.randbytes(rng.randrange(1, 3000)))
                except OSError:
                    pass
        for i in range(200):  # ZeroMQ, and not a request
            parts = [rng.randbytes(rng.choice([0, 0, 1, 7, 8, 9, 900, 5000])) for _ in range(rng.randrange(1, 9))]
            with greet(ports[1]) as raw:
                try:
                    send_frames(raw, parts)
                except OSError:
                    pass
        greedy = [greet(ports[1]) for _ in range(20)]  # who ask, and never read
        for raw in greedy:
            raw.sendall((b"\x01\x00" + b"\x00\x08" + bytes(8)) * 200)
        for _ in range(20):  # who begin to ask
            with greet(ports[1]) as raw:
                raw.sendall(rng.choice([b"\x01\x00", b"\x01\x00\x00\x08ab", b"\x03" + b"\xff" * 8, b"\x02" + struct.pack(">Q", 2**40)]))
        prompts = []
        self.converse(rng, prompts, 4)
        self.check(prompts, prompts[-1])
        self.assertEqual([payload for _, _, payload in self.ask_replay(0)], self.listener.settle().payloads)
        for raw in greedy:
            raw.close()
        self.assertEqual(get(self.server, "/health")["status"], "ok")

    def test_refused_with_a_sentence(self):
        taken = socket.socket()
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for options, words in [
                (["--kv-events", "5557"], "is not an address for events"),
                (["--kv-events", "tcp://*:5557"], "--insecure if that is wanted"),
                (["--kv-events", "tcp://127.0.0.1:5557", "--kv-events-replay", "tcp://0.0.0.0:5558"], "--insecure if that is wanted"),
                (["--kv-events-replay", "tcp://127.0.0.1:5557"], "belong to --kv-events"),
                (["--kv-events", f"tcp://127.0.0.1:{taken.getsockname()[1]}"], "cannot listen at")]:
            run = subprocess.run([PROGRAM, "serve", "--model", harness.TINY, "--port", "0", *options], capture_output=True, text=True,
                                 timeout=60)
            self.assertNotEqual(run.returncode, 0)
            self.assertIn(words, run.stdout + run.stderr)
        taken.close()


if __name__ == "__main__":
    unittest.main(verbosity=2)
