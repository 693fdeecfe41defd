"""How smooth the page is with 50 conversations and a tree of 2,000 nodes while a reply streams in, and what an open page
costs the engine. Prints numbers; asserts nothing.

usage: frames_bench.py REPRISE
"""
import http.client
import json
import statistics
import sys
import time

import browser
import harness

PROGRAM = sys.argv[1]
NODES = 2000
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


def speed(server):
    """Tokens per second of one reply, as the engine saw it."""
    report = ask(server, f"Tell me a story. {time.monotonic()}", 500)["reprise"]
    return 1000 * (report["generated_tokens"] - 1) / (report["total_ms"] - report["first_token_ms"])


def main():
    server = harness.Server(PROGRAM, model=harness.TINY)
    page = browser.Browser(server)
    page.driver.get("about:blank")
    count = 0
    while node_count(server) < NODES:
        for _ in range(100):
            ask(server, f"{count * 7919 % 100003} apples")
            count += 1
    page.open()
    conversations = [{"id": f"c{i}", "title": "", "system": "", "messages": [
        {"role": role, "content": f"Message {j} of conversation {i}. " * 20} for j in range(10) for role in ("user", "assistant")]}
        for i in range(50)]
    page.script("localStorage.setItem('reprise.conversations', JSON.stringify(arguments[0]))", conversations)
    page.open(clean=False)
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
    closed, opened = [], []
    for _ in range(8):
        page.driver.get("about:blank")
        closed.append(speed(server))
        page.open(clean=False)
        opened.append(speed(server))
    print(f"tokens/s, median: {statistics.median(closed):.0f} with the page closed, {statistics.median(opened):.0f} open "
          "(the browser draws on the same machine)")
    page.close()
    server.stop()


main()
