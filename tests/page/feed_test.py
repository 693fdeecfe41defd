"""What the server pushes to those who watch the cache: all of it at first, then only what is new; nothing of other tenants.

usage: feed_test.py REPRISE
"""
import http.client
import json
import pathlib
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "clients"))
import harness  # noqa: E402

PROGRAM = sys.argv.pop(1)
LONG = "You are a parrot of many words, and each of them is part of the prompt. " * 12


class Watcher:
    """A connection to the feed of one tenant."""

    def __init__(self, server, key):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        self.connection.request("GET", "/v1/cache/events", headers={"Authorization": f"Bearer {key}"})
        self.answer = self.connection.getresponse()

    def next(self):
        deadline = time.monotonic() + 60
        while True:
            line = self.answer.readline()
            assert line, "the feed has ended"
            assert time.monotonic() < deadline, "the feed goes on, but what is waited for does not come"
            if line.startswith(b"data: "):
                return json.loads(line[6:])

    def until(self, condition):
        views = [self.next()]
        while not condition(views[-1]):
            views.append(self.next())
        return views

    def close(self):
        self.connection.close()


class Feed(unittest.TestCase):
    def setUp(self):
        self.server = harness.Server(PROGRAM, "--api-key", "mine", "--api-key", "yours", "--no-idle-work")
        self.watcher = Watcher(self.server, "mine")

    def tearDown(self):
        self.watcher.close()
        self.assertEqual(self.server.stop(), 0)

    def post(self, key, path, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        connection.request("POST", path, json.dumps(body), {"Authorization": f"Bearer {key}", "Content-Type": "application/json"})
        response = connection.getresponse()
        answer = json.load(response)
        self.assertEqual(response.status, 200, answer)
        connection.close()
        return answer

    def ask(self, key, text):
        body = {"messages": [{"role": "system", "content": LONG}, {"role": "user", "content": text}]}
        return self.post(key, "/v1/chat/completions", body)

    def test_parts_that_are_known_are_left_out(self):
        first = self.watcher.next()
        self.assertEqual((first["tree"]["nodes"], first["reports"]), ([], []))
        for text in ("Hello", "Good morning"):
            answer = self.ask("mine", text)
            views = self.watcher.until(lambda view: view.get("reports"))
            self.assertEqual(views[-1]["reports"][-1]["reprise"], answer["reprise"])
            self.assertLessEqual(sum("reports" in view for view in views), 1)
        nodes = next(view for view in reversed(views) if "tree" in view)["tree"]["nodes"]
        lit = [node for node in nodes if node["lit_end"] > node["begin"]]
        dark = [node for node in nodes if node["lit_end"] == node["begin"]]
        self.assertTrue(lit and dark, nodes)
        self.assertEqual([node["begin"] for node in lit], [0] + [node["lit_end"] for node in lit[:-1]], "one path")
        self.assertTrue(all(node["parent"] is None or node["parent"] in {n["id"] for n in nodes} for node in nodes))

    def test_reset_is_pushed(self):
        self.ask("mine", "Hello")
        self.watcher.until(lambda view: view.get("tree", {}).get("nodes"))
        self.post("mine", "/v1/cache/reset", {})
        self.watcher.until(lambda view: "tree" in view and not view["tree"]["nodes"])

    def test_tenants_see_their_own(self):
        self.ask("yours", "Hello")
        self.ask("mine", "Something else")
        view = self.watcher.until(lambda view: view.get("reports"))[-1]
        self.assertEqual(len(view["reports"]), 1)
        self.assertNotIn("server", view, "numbers of all tenants are for admins")


if __name__ == "__main__":
    unittest.main()
