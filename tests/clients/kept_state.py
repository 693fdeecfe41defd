"""What tests of kept state ask of a server and look at: conversations with every bit that is sent, and the tiers' own figures."""
import json
import unittest
import urllib.request

import harness

SLACK = 64  # tokens that may be computed besides the new ones
STORY = "Once upon a time there was a fox who lived in the forest near the river and had many friends. "


def user(text):
    return {"role": "user", "content": text}


def post(server, path, body):
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def get(server, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=60) as answer:
        return json.load(answer)


def ask(server, messages, **more):
    body = {"messages": messages, "temperature": 0.8, "seed": 7, "max_tokens": 24, "logprobs": True, "top_logprobs": 5,
            **more}
    return post(server, "/v1/chat/completions", body)


def said(answer):
    """All that the model had to say, to the last bit that is sent."""
    return answer["choices"][0]["message"]["content"], answer["choices"][0]["logprobs"]


def tier_of(server, name):
    return next(tier for tier in get(server, "/v1/cache")["server"]["budget"] if tier["tier"] == name)


class BesideCold(unittest.TestCase):
    """Tests with `cold`, a server that has kept nothing, to compare with. `program` is the file of the server."""

    @classmethod
    def setUpClass(cls):
        cls.cold = harness.Server(cls.program, "--no-idle-work", model=harness.TINY)

    @classmethod
    def tearDownClass(cls):
        cls.cold.stop()
