"""What an ordinary request waits while another tenant attacks, from one client and from sixteen; and the server's memory.

usage: hostile_bench.py REPRISE [--seconds S] [--context N] [NAME ...]

Each attack runs against a server of its own, with a key of its own, while an ordinary client with another key and
address, in a process of its own, asks for short chats, /health, /v1/models and /metrics. Printed are the medians and the 99th percentiles
alone and under the attack, and the memory before, at most, and after. No time is asserted: machines are busy. With
--check the promises are: 99 % of ordinary requests within 5 times their time alone and 50 ms, memory within --request-mib.
"""
import argparse
import http.client
import itertools
import json
import multiprocessing
import os
import socket
import sys
import threading
import time

import harness
from hostile_test import CHAT, HONEST, TEXT, USER, memory_mib, part_ms

KEYS = ["--api-key", "attacker-key", "--api-key", "ordinary-key"]
REQUEST_MIB = 1024


def ask(port, method, path, body=None, key="ordinary-key", timeout=120):
    address = (HONEST if key == "ordinary-key" else "127.0.0.1", 0)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout, source_address=address)
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    try:
        connection.request(method, path, data, {"Content-Type": "application/json", "Authorization": "Bearer " + key})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def schema(count, end):
    patterns = [{"pattern": f"^(a|b|ab|ba){{0,{50 + j}}}.*x{j}{end}"} for j in range(count)]
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "string", "allOf": patterns}}}


def one_schema(port, numbers):
    return ask(port, "POST", CHAT, {"messages": [USER], "max_tokens": 1, "response_format": schema(20, "")}, "attacker-key")


def new_schemas(port, numbers):
    form = schema(20, f".*y{next(numbers)}")
    return ask(port, "POST", CHAT, {"messages": [USER], "max_tokens": 1, "response_format": form}, "attacker-key")


def followed_schemas(port, numbers):
    """Schemas that are accepted: replies follow them."""
    form = schema(6, f".*y{next(numbers)}")
    return ask(port, "POST", CHAT, {"messages": [USER], "max_tokens": 400, "response_format": form}, "attacker-key")


def references(port, numbers):
    status, body = ask(port, "POST", "/v1/responses", {"input": "Tell me a long story.", "max_output_tokens": 1000}, "attacker-key")
    if status != 200:
        return status, body
    item = next(one for one in json.loads(body)["output"] if one["type"] == "message")
    bomb = {"input": [{"type": "item_reference", "id": item["id"]}] * 16384}
    return ask(port, "POST", "/v1/responses", bomb, "attacker-key")


def many_stops(port, numbers):
    stops = [chr(97 + i % 26) * 4090 + "%02d" % i for i in range(16)]
    return ask(port, "POST", TEXT, {"prompt": "a", "n": 128, "max_tokens": 4000, "ignore_eos": True, "stop": stops},
               "attacker-key", timeout=2)


def long_prompts(port, numbers):
    return ask(port, "POST", TEXT, {"prompt": "a " * (15 << 20), "max_tokens": 1}, "attacker-key")


def long_texts(port, numbers):
    return ask(port, "POST", "/tokenize", {"content": "word " * (2 << 20)}, "attacker-key")


def rerank(port, numbers):
    documents = [f"{i} " + "word " * 3500 for i in range(300)]
    return ask(port, "POST", "/v1/rerank", {"query": "word " * 100, "documents": documents}, "attacker-key")


def agents(port, numbers):
    text = " ".join(f"word{i % 97}" for i in range(24000))
    name = json.loads(ask(port, "GET", "/v1/models", key="attacker-key")[1])["data"][0]["id"]
    body = {"model": name, "messages": [{"role": "user", "content": text}, USER]}
    return ask(port, "POST", "/v1/messages/count_tokens", body, "attacker-key")


def idle_connections(port, numbers):
    """Keeps 250 connections that said hello once, and opens another in each turn."""
    kept = getattr(idle_connections, "kept", None)
    if kept is None:
        kept = idle_connections.kept = []
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
    connection.sendall(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
    kept.append(connection)
    if len(kept) > 6000:
        kept.pop(0).close()
    return 200, b""


ATTACKS = {attack.__name__: attack for attack in (one_schema, new_schemas, followed_schemas, references, many_stops,
                                                  rerank, long_prompts, long_texts, agents, idle_connections)}


def watch(port, over, times):
    """The ordinary client: what each kind of request took."""
    taken = {"chat": [], "/health": [], "/v1/models": [], "/metrics": []}
    statuses = {}
    while not over.is_set():
        for name, times_of in taken.items():
            begin = time.monotonic()
            try:
                if name == "chat":
                    status, _ = ask(port, "POST", CHAT, {"messages": [USER], "max_tokens": 1})
                else:
                    status, _ = ask(port, "GET", name)
            except OSError as error:
                status = type(error).__name__
            times_of.append(time.monotonic() - begin)
            statuses[status] = statuses.get(status, 0) + 1
    times.put((taken, statuses))


def measure(port, seconds):
    over, times = multiprocessing.Event(), multiprocessing.Queue()
    ordinary = multiprocessing.Process(target=watch, args=(port, over, times))
    ordinary.start()
    time.sleep(seconds)
    over.set()
    result = times.get(timeout=240)
    ordinary.join()
    return result


def attack_with(attack, port, clients, over, counts):
    numbers = itertools.count()

    def go():
        # Attackers compute elsewhere: here they take what the server and the ordinary client leave.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        while not over.is_set():
            try:
                status, _ = attack(port, numbers)
            except (OSError, http.client.HTTPException) as error:
                status = type(error).__name__
            counts[status] = counts.get(status, 0) + 1

    threads = [threading.Thread(target=go, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    return threads


def run(program, name, clients, options):
    server = harness.Server(program, "--context", str(options.context), "--cache-mib", "64", "--request-mib",
                            str(REQUEST_MIB), *KEYS, context=options.context)
    ask(server.port, "POST", CHAT, {"messages": [USER], "max_tokens": 1})
    alone, _ = measure(server.port, options.seconds)
    before = memory_mib(server, "VmRSS")
    over, counts = threading.Event(), {}
    threads = attack_with(ATTACKS[name], server.port, clients, over, counts)
    time.sleep(1)
    under, statuses = measure(server.port, options.seconds)
    over.set()
    for thread in threads:
        thread.join(timeout=130)
    most = memory_mib(server, "VmHWM")
    time.sleep(1)
    after = memory_mib(server, "VmRSS")
    line = f"{name:18} {clients:2} clients"
    for kind in alone:
        line += f" | {kind} {part_ms(alone[kind], 0.99):.1f} -> {part_ms(under[kind], 0.5):.1f}, 99 % {part_ms(under[kind], 0.99):.1f} ms"
    print(line + f" | {before} -> {most} -> {after} MiB | ordinary {statuses}, attacks {counts}", flush=True)
    server.process.kill()
    server.process.wait()
    late = part_ms(under["chat"], 0.99)
    good = late <= 50 and late <= 5 * max(part_ms(alone["chat"], 0.99), 1) and most - before <= REQUEST_MIB
    return good and set(statuses) <= {200, 403}  # /metrics is for admins


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_intermixed_args()
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}; ordinary requests: 99 % alone -> median under attack")
    results = [run(options.program, name, clients, options)
               for name in options.names or ATTACKS for clients in (1, 16)]
    sys.exit(1 if options.check and not all(results) else 0)


if __name__ == "__main__":
    main()
