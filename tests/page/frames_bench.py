"""How smooth the page is with 50 conversations and a tree of 2,000 nodes while a reply streams in, and what an open page
costs the engine. Prints numbers; asserts nothing.

usage: frames_bench.py REPRISE
"""
import http.client
import json
import pathlib
import socket
import statistics
import sys
import threading
import time

import browser
import harness

PROGRAM = sys.argv[1]
NODES = 2000
FILLING = "and pears in a basket. " * 14  # short prompts leave nothing behind
FRAMES = """const done = arguments[0];
let last = performance.now();
const times = [];
function frame(now) {
  times.push(now - last);
  last = now;
  if (document.querySelector('.message.busy') && times.length < 2000) requestAnimationFrame(frame);
  else done(times);
}
requestAnimationFrame(frame);"""


def ask(server, text, tokens=1):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = json.load(connection.getresponse())
    connection.close()
    return answer


def node_count(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("GET", "/v1/cache")
    return len(json.load(connection.getresponse())["tree"]["nodes"])


def engine_ms(server):
    """Processor time of its busiest thread so far."""
    tasks = pathlib.Path(f"/proc/{server.process.pid}/task")
    return max(int((task / "schedstat").read_text().split()[0]) / 1e6 for task in tasks.iterdir())


def token_cost(server):
    """Processor time of the engine per token of one long reply."""
    before = engine_ms(server)
    report = ask(server, f"Tell me a story. {time.monotonic()}", 1000)["reprise"]
    return (engine_ms(server) - before) / report["generated_tokens"]


class Watcher:
    """Reads the feed as an open page does, without drawing it: the browser's own work is not the engine's."""

    def __init__(self, server):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port)
        self.connection.request("GET", "/v1/cache/events")
        answer = self.connection.getresponse()
        self.bytes = 0
        threading.Thread(target=self.read, args=(answer,), daemon=True).start()

    def read(self, answer):
        try:
            while piece := answer.read1(1 << 20):
                self.bytes += len(piece)
        except (OSError, http.client.HTTPException, ValueError, AttributeError):
            pass  # closed

    def close(self):
        self.connection.sock.shutdown(socket.SHUT_RDWR)
        self.connection.close()


def main():
    server = harness.Server(PROGRAM, "--threads", "1", "--no-idle-work", "--cache-mib", "3000", model=harness.TINY)
    page = browser.Browser(server)
    page.driver.get("about:blank")
    count = 0
    while node_count(server) < NODES:
        for _ in range(100):
            ask(server, f"{count * 7919 % 100003} apples, {FILLING}")
            count += 1
    page.open()
    conversations = [{"id": f"c{i}", "title": "", "system": "", "messages": [
        {"role": role, "content": f"Message {j} of conversation {i}. " * 20} for j in range(10) for role in ("user", "assistant")]}
        for i in range(50)]
    page.script("localStorage.setItem('reprise.conversations', JSON.stringify(arguments[0]))", conversations)
    page.open(clean=False)
    page.show_cache()
    page.wait("[role=treeitem]")
    page.click("#new")
    page.set_number("max_tokens", 1500)
    times = []
    for _ in range(5):
        page.send("Tell me a very long story about a dog and a boat.", wait=False)
        times += page.driver.execute_async_script(FRAMES)
        page.wait_for_reply()
    times.sort()
    print(f"{node_count(server)} nodes, 50 conversations, {len(times)} frames while streaming: median "
          f"{statistics.median(times):.1f} ms, 95 % {times[int(0.95 * len(times))]:.1f} ms, longest {times[-1]:.1f} ms")
    page.close()
    alone, watched, pushed = [], [], []
    for _ in range(8):
        alone.append(token_cost(server))
        watcher = Watcher(server)
        time.sleep(0.5)
        before = watcher.bytes
        watched.append(token_cost(server))
        pushed.append(watcher.bytes - before)
        watcher.close()
    print(f"engine, processor time per token, median: {statistics.median(alone):.3f} ms alone, {statistics.median(watched):.3f} ms "
          f"watched ({100 * (statistics.median(watched) / statistics.median(alone) - 1):+.1f} %); "
          f"{statistics.median(pushed):.0f} bytes pushed in 1,000 tokens")
    server.stop()


main()
