"""One server with several models: they share memory, come and go, and answer as if each were alone.

usage: models_test.py REPRISE
"""
import concurrent.futures
import json
import os
import pathlib
import random
import re
import socket
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

import harness

PROGRAM = sys.argv.pop(1)
# 1,000: the long form.
REQUESTS = int(os.environ.get("REPRISE_MODELS_REQUESTS", "96"))
LONG = REQUESTS > 96
USERS = 16
# The same weights with three types of K/V: three models, whose logits differ.
KINDS = {"fine": "f32", "plain": "f16", "small": "q8_0"}
OPTIONS = ["--threads", "1", "--context", "1024", "--no-idle-work", "--parallel", "4"]


def ask(port, path, body=None, method=None):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method,
                                     data=None if body is None else json.dumps(body).encode(),
                                     headers={"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def chat(port, model, messages):
    body = {"model": model, "messages": messages, "temperature": 0, "max_tokens": 8, "logprobs": True}
    status, text = ask(port, "/v1/chat/completions", body)
    if status != 200:
        raise AssertionError(f"{model}: {status} {text}")
    answer = json.loads(text)
    choice = answer["choices"][0]
    report = answer["reprise"]
    return {"text": choice["message"]["content"], "used": report["used_tokens"], "stored": report["stored_tokens"],
            "reason": report["reason"],
            "disturbed": report["snapshots_declined"] + report["preemptions"],
            "logprobs": [(t["token"], t["logprob"]) for t in choice["logprobs"]["content"]]}


def turn(user, number):
    animals = ["fox", "owl", "frog", "hen", "mole", "bear", "wolf", "duck"]
    return f"User {user} asks number {number}: tell me about the {animals[(user * 5 + number) % 8]} and the moon."


def converse(port, model, user, history, number):
    """One more turn of a conversation, which `history` then has. Another one begins before the context is full."""
    if len(history) >= 20:
        history.clear()
    history.append({"role": "user", "content": turn(user, number)})
    reply = chat(port, model, history)
    history.append({"role": "assistant", "content": reply["text"]})
    return reply


class Models(unittest.TestCase):
    def start(self, folder, memory_mib, more="", options=()):
        config = pathlib.Path(folder) / "models.toml"
        tables = "".join(f'[models.{name}]\nmodel = "{harness.TINY}"\nkv = "{kv}"\n' for name, kv in KINDS.items())
        config.write_text(tables + more)
        return harness.Server(PROGRAM, "--config", str(config), "--memory-mib", str(memory_mib), *OPTIONS, *options,
                              model="")

    def plan(self):
        """Requests in a random order of models: (user, model); each user has one conversation a model."""
        rng = random.Random(3)
        return [(rng.randrange(USERS), rng.choice(list(KINDS))) for _ in range(REQUESTS)]

    def alone(self):
        """What each conversation is on a server of one model: by user and model, its replies."""
        wanted = {}
        for name, kv in KINDS.items():
            server = harness.Server(PROGRAM, "--kv", kv, "--alias", name, *OPTIONS, model=harness.TINY)
            try:
                for user in range(USERS):
                    history = []
                    turns = sum(1 for one in self.plan() if one == (user, name))
                    wanted[user, name] = [converse(server.port, name, user, history, number) for number in range(turns)]
            finally:
                self.assertEqual(server.stop(), 0)
        return wanted

    def test_three_models_in_the_memory_of_two(self):
        wanted = self.alone()
        by_user = [[model for u, model in self.plan() if u == user] for user in range(USERS)]
        exact, lost = [], []  # turns that used just what was left; turns whose state was evicted
        with tempfile.TemporaryDirectory() as folder:
            server = self.start(folder, memory_mib=MEMORY_OF_TWO)
            try:
                def run(user):
                    histories, turns, last = {name: [] for name in KINDS}, {name: 0 for name in KINDS}, {}
                    for model in by_user[user]:
                        reply = converse(server.port, model, user, histories[model], turns[model])
                        alone = wanted[user, model][turns[model]]
                        turns[model] += 1
                        self.assertEqual(reply["logprobs"], alone["logprobs"], (user, model))
                        # What the last turn has left is used, behind a swap, too. Beside others the end of its prompt may
                        # have found no room: then the end of its reply was kept, which needs none, ten tokens later.
                        goes_on = len(histories[model]) > 2
                        wanted_use = last[model]["stored"] if goes_on else 0 if model not in last else reply["used"]
                        if LONG and reply["reason"] == "evicted":  # the state of all does not fit then
                            self.assertLess(reply["used"], wanted_use, (user, model))
                            lost.append((user, model))
                        else:
                            self.assertEqual(reply["used"], wanted_use, (user, model))
                            exact.append(goes_on)
                        if reply["disturbed"] == 0:
                            self.assertEqual(reply["stored"], alone["stored"], (user, model))
                        else:
                            self.assertGreaterEqual(reply["stored"], alone["stored"], (user, model))
                        last[model] = reply
                    return len(by_user[user])

                with concurrent.futures.ThreadPoolExecutor(USERS) as pool:
                    self.assertEqual(sum(pool.map(run, range(USERS))), REQUESTS)
                models = json.loads(ask(server.port, "/models")[1])["data"]
                self.assertEqual([m["id"] for m in models], list(KINDS))
                states = sorted(m["status"]["value"] for m in models)
                self.assertIn("sleeping", states, "all three fit: nothing was shown")
                metrics = ask(server.port, "/metrics")[1]
                for name in KINDS:
                    self.assertIn(f'reprise_cache_bytes{{model="{name}",tier="memory",use="cached"}}', metrics)
                    evicted = f'reprise_cache_snapshots_evicted_total{{model="{name}",reason="snapshot"}}'
                    if not LONG:
                        self.assertEqual(metric(metrics, evicted), 0, "turns above may have missed what was evicted")
                print(f"{sum(exact)} turns went on from what the last one left, {len(lost)} from less: it was evicted;",
                      f"at most {peak_bytes(server.process.pid) >> 20} MiB in memory,",
                      f"{metric(metrics, 'reprise_models_swaps_total'):.0f} swaps", file=sys.stderr)
                self.assertGreater(sum(exact), 9 * len(lost))
                self.assertGreater(metric(metrics, "reprise_models_swaps_total"), 2)
                total = metric(metrics, 'reprise_models_memory_budget_bytes{device="cpu"}')
                self.assertEqual(total, MEMORY_OF_TWO << 20)
                # The process with everything in it, at its largest.
                self.assertLess(peak_bytes(server.process.pid), 1.03 * total)
                self.assertLessEqual(metric(metrics, "reprise_models_weight_bytes") + cached_bytes(metrics), total)
            finally:
                self.assertEqual(server.stop(), 0)

    def test_models_named_one_by_one_and_how_much_is_read(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = [pathlib.Path(folder) / f"{name}.gguf" for name in ("first", "second")]
            for path in paths:
                path.symlink_to(harness.TINY)
            server = harness.Server(PROGRAM, "--model", str(paths[1]), "--memory-mib", str(MEMORY_OF_ONE), "--alias", "nick", *OPTIONS,
                                    model=paths[0])
            try:
                port = server.port
                self.assertEqual(self.states(port), {"nick": "loaded", "second": "unloaded"})
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/models/sse", timeout=120) as events:
                    self.assertEqual(ask(port, "/models/load", {"model": "second"})[0], 200)
                    shares = []
                    for line in events:
                        if not line.startswith(b"data: "):
                            continue
                        status = json.loads(line[6:])["models"][1]["status"]
                        if status["value"] == "loading":
                            shares.append(status["progress"])
                        elif shares:
                            self.assertEqual(status, {"value": "loaded"})
                            break
                self.assertEqual((shares, shares[0], shares[-1]), (sorted(shares), 0, 1))
                self.assertGreater(len(set(shares)), 3)
                self.assertEqual(self.states(port)["nick"], "sleeping")
            finally:
                self.assertEqual(server.stop(), 0)

    def test_a_model_in_memory_of_another_device(self):
        """Weights and state lie where ops and copies of their device alone can reach, whatever thread swaps the models."""
        apart = ["--devices", "cpu,cpu"]
        wanted = {}
        for name in ("fine", "small"):
            server = harness.Server(PROGRAM, "--kv", KINDS[name], *OPTIONS, *apart, model=harness.TINY)
            try:
                history = []
                wanted[name] = [converse(server.port, server.model, 1, history, number) for number in range(4)]
            finally:
                self.assertEqual(server.stop(), 0)
        with tempfile.TemporaryDirectory() as folder:
            server = self.start(folder, MEMORY_OF_ONE, options=apart)
            try:
                histories, last = {name: [] for name in wanted}, {}
                for number in range(4):
                    for name in wanted:
                        reply = converse(server.port, name, 1, histories[name], number)
                        self.assertEqual(reply["logprobs"], wanted[name][number]["logprobs"], (name, number))
                        self.assertEqual(reply["used"], last.get(name, {"stored": 0})["stored"], (name, number))
                        last[name] = reply
                self.assertGreaterEqual(metric(ask(server.port, "/metrics")[1], "reprise_models_swaps_total"), 7)
            finally:
                self.assertEqual(server.stop(), 0)

    def test_a_model_on_several_devices_is_refused_beside_others(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(RuntimeError, "each lies on one device"):
                self.start(folder, 1000, f'[models.wide]\nmodel = "{harness.TINY}"\ndevices = "cpu,cuda:0"\n')

    def test_who_waited_and_left_keeps_nobody_waiting(self):
        """A client leaves while its model comes: that model may go again at once, with nothing else happening."""
        hello = [{"role": "user", "content": "Hello"}]
        with tempfile.TemporaryDirectory() as folder:
            server = self.start(folder, MEMORY_OF_ONE)
            try:
                for one, other in (("small", "fine"), ("plain", "small"), ("fine", "plain")):
                    body = json.dumps({"model": one, "messages": hello, "max_tokens": 1}).encode()
                    with socket.create_connection(("127.0.0.1", server.port)) as leaves:
                        leaves.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                                       b"Content-Length: %d\r\n\r\n" % len(body) + body)
                        self.wait(server.port, one, "loading", "loaded")
                    self.wait(server.port, one, "loaded")
                    chat(server.port, other, hello)
            finally:
                self.assertEqual(server.stop(), 0)

    def test_names_loads_and_failures(self):
        with tempfile.TemporaryDirectory() as folder:
            broken = pathlib.Path(folder) / "broken.gguf"
            broken.write_bytes(b"GGUF" + bytes(200))
            server = self.start(folder, 1000, f'[models.torn]\nmodel = "{broken}"\n')
            try:
                port = server.port
                status, text = ask(port, "/v1/chat/completions", {"model": "nobody", "messages": []})
                self.assertEqual(status, 404, text)
                self.assertIn("'fine', 'plain', 'small', 'torn'", text)
                hello = [{"role": "user", "content": "Hello"}]
                for _ in range(2):  # tried, and remembered
                    status, text = ask(port, "/v1/chat/completions", {"model": "torn", "messages": hello})
                    self.assertEqual(status, 503, text)
                    self.assertIn("'torn' could not be loaded", text)
                chat(port, "small", hello)
                self.assertEqual(self.states(port), {"fine": "loaded", "plain": "unloaded", "small": "loaded",
                                                     "torn": "failed"})
                self.assertEqual(ask(port, "/models/unload", {"model": "small"})[0], 200)
                self.wait(port, "small", "sleeping")
                # Its text needs no weights.
                self.assertEqual(ask(port, "/tokenize", {"model": "small", "content": "a"})[0], 200)
                self.assertEqual(self.states(port)["small"], "sleeping")
                self.assertEqual(ask(port, "/models/load", {"model": "small"})[0], 200)
                self.wait(port, "small", "loaded")
                self.assertEqual(ask(port, "/models/load", {"model": "nobody"})[0], 404)
                self.assertEqual(ask(port, "/models/load", {})[0], 400)
                running = json.loads(ask(port, "/api/ps")[1])["models"]
                self.assertEqual([m["name"] for m in running], ["fine:latest", "small:latest"])
                self.assertTrue(all(m["size"] > 10 << 20 for m in running), running)
                # Without a name: the first one.
                status, text = ask(port, "/v1/completions", {"prompt": "Once", "max_tokens": 1})
                self.assertEqual((status, json.loads(text)["model"]), (200, "fine"), text)
                self.assertEqual(ask(port, "/props?model=small")[0], 200)
                self.assertEqual(ask(port, "/health?model=plain")[0], 200)  # waits for no model
                self.assertEqual(self.states(port)["plain"], "unloaded")
                self.assertEqual(json.loads(ask(port, "/props?model=small")[1])["model"], "small")
            finally:
                self.assertEqual(server.stop(), 0)

    def test_a_response_is_found_whatever_model_gave_it(self):
        with tempfile.TemporaryDirectory() as folder:
            server = self.start(folder, 1000)
            try:
                body = {"model": "small", "input": "Hello", "max_output_tokens": 16}
                status, text = ask(server.port, "/v1/responses", body)
                self.assertEqual(status, 200, text)
                self.assertEqual(ask(server.port, "/v1/responses/" + json.loads(text)["id"])[0], 200)
            finally:
                self.assertEqual(server.stop(), 0)

    def test_state_on_disk_is_each_models_own(self):
        with tempfile.TemporaryDirectory() as folder:
            disk = ["--disk", str(pathlib.Path(folder) / "state")]
            used = []
            for _ in range(2):
                server = self.start(folder, 1000, options=disk)
                try:
                    text = " ".join(turn(user, 1) for user in range(30))
                    messages = [{"role": "user", "content": text}]
                    used.append({name: chat(server.port, name, messages) for name in KINDS})
                finally:
                    self.assertEqual(server.stop(), 0)
            for name in KINDS:
                self.assertEqual(used[0][name]["used"], 0, name)
                self.assertGreater(used[1][name]["used"], 500, "nothing was found after the restart")
                self.assertEqual(used[1][name]["logprobs"], used[0][name]["logprobs"], name)

    def wait_for(self, port, **wanted):
        for _ in range(600):
            states = self.states(port)
            if all(states[name] == state for name, state in wanted.items()):
                return
            time.sleep(0.1)
        self.fail(f"wanted {wanted}: {states}")

    def test_models_of_a_preset_leave_when_nobody_asks_for_them(self):
        with tempfile.TemporaryDirectory() as folder:
            preset = pathlib.Path(folder) / "models.ini"
            preset.write_text(f"version = 1\n[*]\nctx-size = 1024\nn-gpu-layers = 99\n[one]\nmodel = {harness.TINY}\n"
                              f"[two]\nmodel = {harness.TINY}\ncache-type-k = f32\nload-on-startup = true\n")
            server = harness.Server(PROGRAM, "--models-preset", str(preset), "--memory-mib", "2000", "--keep-alive", "2",
                                    "--threads", "1", "--no-idle-work", model="")
            try:
                port = server.port
                self.assertIn("[*] n-gpu-layers has no effect here", server.log.read_text())
                listed = json.loads(ask(port, "/v1/models")[1])["data"]
                self.assertEqual([(m["id"], m["max_model_len"]) for m in listed], [("one", 1024), ("two", 1024)])
                self.assertEqual({(m["quantization"], m["capabilities"][0]) for m in listed}, {("Q8_0", "completion")})
                shown = json.loads(ask(port, "/api/show", {"model": "one"})[1])["details"]
                self.assertEqual((shown["quantization_level"], shown["parameter_size"][-1]), ("Q8_0", "M"))
                self.wait_for(port, one="sleeping", two="sleeping")
                generate = {"model": "one", "prompt": "a", "stream": False, "options": {"num_predict": 1}}
                self.assertEqual(ask(port, "/api/generate", {**generate, "keep_alive": -1})[0], 200)
                self.assertEqual(ask(port, "/api/generate", {**generate, "model": "two"})[0], 200)
                self.wait_for(port, one="loaded", two="sleeping")  # its two seconds were over later
                self.assertEqual(ask(port, "/api/generate", {**generate, "keep_alive": 0})[0], 200)
                self.wait_for(port, one="sleeping")
            finally:
                self.assertEqual(server.stop(), 0)

    def states(self, port):
        return {m["id"]: m["status"]["value"] for m in json.loads(ask(port, "/models")[1])["data"]}

    def wait(self, port, name, *states):
        for _ in range(10000):
            if self.states(port)[name] in states:
                return
            time.sleep(0.002)
        self.fail(f"{name} is {self.states(port)[name]}, not {states}")


# Weights of 18 MiB and 256 to compute in, twice; the rest is for state, and nothing of it is evicted.
MEMORY_OF_TWO = 800 if LONG else 680
MEMORY_OF_ONE = 400


def metric(page, name):
    return float(next(line for line in page.splitlines() if line.startswith(name)).rsplit(" ", 1)[1])


def peak_bytes(pid):
    return int(re.search(r"VmHWM:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text()).group(1)) << 10


def cached_bytes(page):
    return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines()
               if line.startswith("reprise_cache_bytes") and 'tier="memory"' in line)


if __name__ == "__main__":
    unittest.main()
