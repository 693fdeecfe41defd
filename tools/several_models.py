#!/usr/bin/env python3
"""Several models in the memory of fewer, on any device, beside servers of one model each.

  tools/several_models.py build/release/reprise --device cuda --budget-mib 3600 --requests 300 \\
      --model a=small.gguf --model b=small.gguf,kv=q8_0 --model c=other.gguf,context=8192

Users ask in a random order; every user has one conversation with each model. Each reply must be, token for token and with the
same log probabilities, that of a server with that model alone, and each further turn must use all that the last turn stored.
Then a stream of the first model runs while the others change places: the longest gap between two of its tokens is printed,
and how much memory the device had in use at most (nvidia-smi) or the process (a CPU). Ends with 1 if a reply differs, a
request fails, or the memory is more than 3 % above the budget. Python's standard library alone.
"""
import argparse
import concurrent.futures
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

VOCABULARY = 1000  # prompts are ids below it
FIRST, FURTHER, REPLY = 600, 40, 8  # tokens of a first prompt, of what a further turn adds, of a reply


BEGIN = time.perf_counter()


def say(text):
    print(f"{time.perf_counter() - BEGIN:6.1f} s  {text}", file=sys.stderr, flush=True)


class Server:
    def __init__(self, program, *options, log=""):
        self.log = open(log, "w+") if log else tempfile.NamedTemporaryFile("w+", suffix=".log")
        self.process = subprocess.Popen([program, "serve", "--port", "0", "--no-idle-work", *options],
                                        stdout=self.log, stderr=subprocess.STDOUT)
        while not (found := re.search(r"http://127\.0\.0\.1:(\d+)\n", self.text())):
            if self.process.poll() is not None:
                sys.exit("the server did not start:\n" + self.text())
            time.sleep(0.02)
        self.url = f"http://127.0.0.1:{found.group(1)}"

    def text(self):
        return pathlib.Path(self.log.name).read_text()

    def ask(self, path, body=None):
        request = urllib.request.Request(self.url + path, data=None if body is None else json.dumps(body).encode(),
                                         headers={"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=300) as answer:
            return answer.read().decode()

    def stop(self):
        self.process.terminate()
        if self.process.wait(timeout=60) != 0:
            sys.exit("the server ended badly:\n" + self.text())


class Peak:
    """The most memory that a process had in use, of the GPU or of the machine, in MiB; sampled."""

    def __init__(self, gpu, pid):
        self.gpu, self.pid, self.most, self.ended = gpu, pid, 0, threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def now(self):
        if self.gpu:
            shown = subprocess.run(["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"],
                                   capture_output=True, text=True, check=True).stdout
            sizes = dict(line.split(", ") for line in shown.splitlines())
            return int(sizes.get(str(self.pid), 0))  # 0: processes are not shown here
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1)) >> 10

    def run(self):
        while not self.ended.is_set():
            self.most = max(self.most, self.now())
            self.ended.wait(0.05)

    def stop(self):
        self.most = max(self.most, self.now())
        self.ended.set()
        self.thread.join()
        return self.most


def converse(server, model, user, history, number):
    """One more turn, as ids; `history` is the whole prompt and its replies afterwards."""
    rng = random.Random(f"{model} {user} {number}")
    history.extend(rng.randrange(VOCABULARY) for _ in range(FURTHER if history else FIRST))
    body = {"model": model, "prompt": list(history), "temperature": 0, "max_tokens": REPLY, "min_tokens": REPLY,
            "logprobs": 1, "return_token_ids": True}
    answer = json.loads(server.ask("/v1/completions", body))
    choice, report = answer["choices"][0], answer["reprise"]
    history.extend(choice["token_ids"])
    return {"ids": choice["token_ids"], "logprobs": choice["logprobs"]["token_logprobs"],
            "used": report["used_tokens"], "stored": report["stored_tokens"], "reason": report["reason"],
            "disturbed": report["snapshots_declined"] + report["preemptions"]}


def metric(server, name):
    lines = [line for line in server.ask("/metrics").splitlines() if line.startswith(name)]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def longest_gap(server, stays, others, count):
    """Milliseconds between two tokens of `stays` while `others` are asked in turn, and how often models changed places."""
    swaps = metric(server, "reprise_models_swaps_total")
    over = threading.Event()

    def disturb():
        number = 0
        while not over.is_set():
            converse(server, others[number % len(others)], "beside", [], number)
            number += 1

    body = {"model": stays, "prompt": [1, 2, 3], "temperature": 0, "max_tokens": count, "min_tokens": count, "stream": True}
    request = urllib.request.Request(server.url + "/v1/completions", data=json.dumps(body).encode(),
                                     headers={"content-type": "application/json"})
    gaps, thread = [], threading.Thread(target=disturb)
    with urllib.request.urlopen(request, timeout=300) as stream:
        last = None
        for line in stream:
            if not line.startswith(b"data: {"):
                continue
            now = time.perf_counter()
            if last is None:
                thread.start()
            else:
                gaps.append(1000 * (now - last))
            last = now
    over.set()
    thread.join()
    return max(gaps), len(gaps), metric(server, "reprise_models_swaps_total") - swaps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--model", action="append", required=True, metavar="NAME=PATH[,OPTION=VALUE]")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--budget-mib", type=int, required=True)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--users", type=int, default=16)
    parser.add_argument("--log", default="", help="where the log of the server with all models goes")
    parser.add_argument("--stream-tokens", type=int, default=3000, help="of the stream whose gaps are measured")
    parser.add_argument("--overhead-mib", type=int, default=0, help="what a GPU's process takes beside the budget")
    parser.add_argument("--server-options", default="--context 4096 --parallel 4", help="of all servers")
    options = parser.parse_args()
    gpu, common = options.device != "cpu", options.server_options.split()
    models = {}
    for text in options.model:
        name, _, rest = text.partition("=")
        path, *settings = rest.split(",")
        models[name] = {"model": str(pathlib.Path(path).resolve()), **dict(one.split("=", 1) for one in settings)}
    rng = random.Random(3)
    plan = [(rng.randrange(options.users), rng.choice(list(models))) for _ in range(options.requests)]

    wanted = {}
    for name, settings in models.items():
        flags = [word for key, value in {"device": options.device, **settings}.items() for word in ("--" + key, value)]
        server = Server(options.program, "--alias", name, *flags, *common)
        with concurrent.futures.ThreadPoolExecutor(options.users) as pool:
            def alone(user, name=name, server=server):
                history, turns = [], sum(1 for one in plan if one == (user, name))
                return [converse(server, name, user, history, number) for number in range(turns)]
            for user, replies in enumerate(pool.map(alone, range(options.users))):
                wanted[user, name] = replies
        server.stop()
        say(f"{name} alone: {sum(len(replies) for (_, one), replies in wanted.items() if one == name)} replies")

    config = tempfile.NamedTemporaryFile("w", suffix=".toml")
    for name, settings in models.items():
        config.write(f"[models.{name}]\n" + "".join(f'{key} = "{value}"\n' if not value.isdigit() else f"{key} = {value}\n"
                                                     for key, value in settings.items()))
    config.flush()
    limit = "--vram-mib" if gpu else "--memory-mib"
    server = Server(options.program, "--config", config.name, "--device", options.device, limit, str(options.budget_mib), *common, log=options.log)
    peak, begin = Peak(gpu, server.process.pid), time.perf_counter()
    wrong, exact, less, failed, done = [], [], [], [], []

    def run(user):
        histories, turns, last = {name: [] for name in models}, {name: 0 for name in models}, {}
        for one, name in plan:
            if one != user:
                continue
            try:
                reply = converse(server, name, user, histories[name], turns[name])
            except urllib.error.HTTPError as error:
                failed.append(f"{name}: {error.code} {error.read().decode()}")
                return
            alone = wanted[user, name][turns[name]]
            turns[name] += 1
            done.append(name)
            if len(done) % 10 == 0:
                say(f"{len(done)} requests answered")
            if (reply["ids"], reply["logprobs"]) != (alone["ids"], alone["logprobs"]):
                wrong.append((user, name, turns[name]))
            if name in last:
                if reply["used"] == last[name]["stored"]:
                    exact.append(name)
                else:
                    less.append((name, reply["used"], last[name]["stored"], reply["reason"]))
            last[name] = reply

    with concurrent.futures.ThreadPoolExecutor(options.users) as pool:
        list(pool.map(run, range(options.users)))
    seconds = time.perf_counter() - begin
    swaps = metric(server, "reprise_models_swaps_total")
    names = list(models)
    gap, tokens, more = longest_gap(server, names[0], names[1:], options.stream_tokens)
    most = peak.stop() - options.overhead_mib
    server.stop()
    print(f"{options.requests} requests of {options.users} users to {len(models)} models in {seconds:.1f} s, {swaps:.0f} swaps")
    print(f"{len(wrong)} replies differ from those of a server with one model; {len(failed)} failed")
    print(f"{len(exact)} of {len(exact) + len(less)} further turns used all that the last one stored; the others: {less[:10]}")
    print(f"a stream of {tokens} tokens beside {more:.0f} swaps: at most {gap:.0f} ms between two")
    print(f"memory: at most {most} MiB; the budget is {options.budget_mib} ({most / options.budget_mib:.3f})")
    for text in failed[:3] + wrong[:10]:
        print(text)
    sys.exit(1 if wrong or failed or most > 1.03 * options.budget_mib else 0)


if __name__ == "__main__":
    main()
