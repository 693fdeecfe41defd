#!/usr/bin/env python3
"""Loads a server over HTTP as clients do and says how long it took.

  tools/load.py http://127.0.0.1:8000 throughput            one of PROFILES, all requests at once
  tools/load.py URL users --users 64 --turns 4              conversations: words in, tokens out, turn by turn
  tools/load.py URL beside --prompt 26000 --streams 1       a long prompt, alone and beside streams

Prompts are random token ids of /v1/completions, without common prefixes unless a profile wants them, replies have a
fixed length (min_tokens = max_tokens), everything streams. The lengths of PROFILES are those of published runs of other
servers (docs/benchmarks.md). Python's standard library alone; one process, so a figure can be the client's: it prints how
much of a core it used.
"""
import argparse
import asyncio
import json
import random
import statistics
import time
import urllib.parse
import urllib.request

# name: requests, prompt tokens, reply tokens, running at the same time
PROFILES = {
    "sharegpt": (1000, None, None, 512),
    "throughput": (1000, 1034, 128, 512),
    "long": (100, 32010, 100, 512),
    "generation": (200, 1010, 2000, 512),
}


class Reply:
    """One streamed reply: when it was asked for, and when each chunk with text came."""

    def __init__(self):
        self.begin = time.perf_counter()
        self.times = []
        self.usage = {}

    @property
    def first(self):
        return self.times[0] - self.begin if self.times else float("nan")

    @property
    def total(self):
        return self.times[-1] - self.begin if self.times else float("nan")

    def gaps(self, begin=0.0, end=float("inf")):
        return [b - a for a, b in zip(self.times, self.times[1:]) if begin <= b <= end]


class Client:
    def __init__(self, url, key):
        parts = urllib.parse.urlsplit(url)
        self.host, self.port = parts.hostname, parts.port or 80
        self.key = key
        with urllib.request.urlopen(self.request("/v1/models"), timeout=30) as answer:
            self.model = json.load(answer)["data"][0]["id"]

    def request(self, path):
        head = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        return urllib.request.Request(f"http://{self.host}:{self.port}{path}", headers=head)

    async def complete(self, prompt, tokens, reply=None, stop=None):
        """Streams a completion of token ids; ends early when the event `stop` is set."""
        body = json.dumps({"model": self.model, "prompt": prompt, "max_tokens": tokens, "min_tokens": tokens,
                           "temperature": 0, "stream": True, "stream_options": {"include_usage": True}}).encode()
        key = f"Authorization: Bearer {self.key}\r\n" if self.key else ""
        head = (f"POST /v1/completions HTTP/1.1\r\nHost: {self.host}\r\nContent-Type: application/json\r\n{key}"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n").encode()
        reply = reply or Reply()
        reply.begin = time.perf_counter()
        reader, writer = await asyncio.open_connection(self.host, self.port, limit=1 << 22)
        try:
            writer.write(head + body)
            await writer.drain()
            status = await reader.readline()
            if b" 200 " not in status:
                raise RuntimeError((status + await reader.read(2000)).decode(errors="replace"))
            while line := await reader.readline():
                if line.startswith(b"data: {"):
                    if b'"text":"' in line or b'"text": "' in line:
                        reply.times.append(time.perf_counter())
                    if b'"usage":{' in line or b'"usage": {' in line:
                        reply.usage = json.loads(line[6:])["usage"]
                elif line.startswith(b"data: [DONE]"):
                    break
                if stop is not None and stop.is_set():
                    break
        finally:
            writer.close()
        return reply


def ids(rng, count, vocab):
    return [rng.randrange(vocab) for _ in range(count)]


def say(replies, seconds, cpu):
    prompt = sum(r.usage.get("prompt_tokens", 0) for r in replies)
    out = sum(r.usage.get("completion_tokens", 0) for r in replies)
    first = sorted(r.first for r in replies)
    print(f"{seconds:.1f} s; {len(replies)} replies, {prompt} tokens in, {out} out; {out / seconds:.0f} tokens/s out, "
          f"{(prompt + out) / seconds:.0f} in all; first token {1e3 * statistics.median(first):.0f} ms in the middle, "
          f"{1e3 * first[int(len(first) * 0.99)]:.0f} ms at 99 %; client {100 * cpu / seconds:.0f} % of a core", flush=True)


async def run_profile(client, name, rng, vocab):
    count, size, tokens, running = PROFILES[name]
    room = asyncio.Semaphore(running)

    def lengths():
        if size is not None:
            return size, tokens
        # ShareGPT's lengths as a table of means (342 in, 281 out) with long tails.
        return (min(8000, max(4, int(rng.lognormvariate(5.0, 1.3)))), min(2000, max(4, int(rng.lognormvariate(5.2, 0.95)))))

    work = [lengths() for _ in range(count)]

    async def one(prompt_tokens, reply_tokens):
        async with room:
            return await client.complete(ids(rng, prompt_tokens, vocab), reply_tokens)

    return await asyncio.gather(*(one(*w) for w in work))


async def run_users(client, users, turns, words, tokens, rng, vocab):
    async def user():
        history, replies = [], []
        for _ in range(turns):
            history += ids(rng, words, vocab)
            replies.append(await client.complete(history, tokens))
            history += ids(rng, tokens, vocab)  # what a client sends back differs from ids that nobody read
        return replies

    return sum(await asyncio.gather(*(user() for _ in range(users))), [])


async def run_beside(client, prompt, streams, depth, rng, vocab):
    async def alone():
        return (await client.complete(ids(rng, prompt, vocab), 1)).first

    await alone()
    base = statistics.median([await alone() for _ in range(3)])
    times, gaps = [], []
    for _ in range(3):
        stop = asyncio.Event()
        replies = [Reply() for _ in range(streams)]
        running = [asyncio.create_task(client.complete(ids(rng, depth, vocab), 8000, reply, stop)) for reply in replies]
        while any(len(r.times) < 8 for r in replies):
            await asyncio.sleep(0.002)
        begin = time.perf_counter()
        times.append(await alone())
        end = time.perf_counter()
        stop.set()
        await asyncio.gather(*running)
        gaps += sum((r.gaps(begin, end) for r in replies), [])
    beside = statistics.median(times)
    print(f"prompt of {prompt} tokens: alone {1e3 * base:.0f} ms ({prompt / base:.0f} tokens/s), beside {streams} stream(s) "
          f"{1e3 * beside:.0f} ms, {beside / base:.2f} x; gaps at most {1e3 * max(gaps):.0f} ms", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("what", choices=[*PROFILES, "users", "beside"])
    parser.add_argument("--api-key", default="")
    parser.add_argument("--vocab", type=int, default=100000, help="ids are below this")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--users", type=int, default=64)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--words", type=int, default=600, help="new tokens a turn")
    parser.add_argument("--tokens", type=int, default=64, help="reply tokens a turn")
    parser.add_argument("--prompt", type=int, default=26000)
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--depth", type=int, default=200, help="prompt tokens of each stream")
    options = parser.parse_args()
    client = Client(options.url, options.api_key)
    rng = random.Random(options.seed)
    if options.what == "beside":
        return asyncio.run(run_beside(client, options.prompt, options.streams, options.depth, rng, options.vocab))
    begin, cpu = time.perf_counter(), time.process_time()
    if options.what == "users":
        work = run_users(client, options.users, options.turns, options.words, options.tokens, rng, options.vocab)
    else:
        work = run_profile(client, options.what, rng, options.vocab)
    replies = asyncio.run(work)
    say(replies, time.perf_counter() - begin, time.process_time() - cpu)


if __name__ == "__main__":
    main()
