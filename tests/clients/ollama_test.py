"""Ollama's Python client drives /api/chat and its siblings unchanged.

usage: ollama_test.py REPRISE
"""
import sys
import unittest

import ollama

import harness

PROGRAM = sys.argv.pop(1)
SAID = "Hello there, little parrot friend"
HELLO = [{"role": "user", "content": "Hi"}]
TOOLS = [{"type": "function", "function": {"name": harness.WEATHER["name"],
                                           "description": harness.WEATHER["description"],
                                           "parameters": harness.WEATHER["schema"]}}]


def get_weather(city: str) -> str:
    """The weather in a city.

    Args:
      city: its name
    """
    return "sunny in " + city


class Ollama(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server(PROGRAM)
        cls.client = ollama.Client(host=cls.server.url)
        cls.name = cls.server.model

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def chat(self, **more):
        return self.client.chat(**{"model": self.name, "messages": HELLO, **more})

    def test_chat(self):
        reply = self.chat(options={"temperature": 0, "num_ctx": 2048, "num_gpu": 1}, keep_alive="5m")
        self.assertEqual((reply.message.role, reply.message.content), ("assistant", SAID))
        self.assertEqual((reply.done, reply.done_reason, reply.model), (True, "stop", self.name))
        self.assertGreater(reply.prompt_eval_count, 0)
        self.assertEqual(reply.eval_count, 5)
        self.assertGreaterEqual(reply.total_duration, reply.eval_duration)

    def test_stream_adds_up(self):
        parts = list(self.chat(stream=True))
        self.assertEqual("".join(part.message.content for part in parts), SAID)
        self.assertEqual([part.done for part in parts], [False] * (len(parts) - 1) + [True])
        self.assertEqual(parts[-1].done_reason, "stop")
        self.assertEqual(parts[-1].eval_count, 5)

    def test_a_limit(self):
        self.assertEqual(self.chat(options={"num_predict": 2}).done_reason, "length")

    def test_tools(self):
        first = self.chat(tools=[get_weather])
        self.assertEqual(first.message.content, "Let me look.")
        call = first.message.tool_calls[0].function
        self.assertEqual((call.name, call.arguments), ("get_weather", {"city": "Paris"}))
        messages = [*HELLO, first.message,
                    {"role": "tool", "tool_name": call.name, "content": get_weather(**call.arguments)}]
        second = self.chat(messages=messages, tools=[get_weather])
        self.assertEqual(second.message.content, "It is sunny in Paris today.")
        streamed = [c for part in self.chat(tools=TOOLS, stream=True) for c in part.message.tool_calls or []]
        self.assertEqual([c.function.arguments for c in streamed], [{"city": "Paris"}])

    def test_thinking(self):
        reply = self.chat(think=True)
        self.assertEqual((reply.message.thinking, reply.message.content), ("Two plus two", "It makes four"))
        parts = list(self.chat(think=True, stream=True))
        self.assertEqual("".join(part.message.thinking or "" for part in parts), "Two plus two")

    def test_generate(self):
        self.assertEqual(self.client.generate(model=self.name, prompt="Hi", system="Be kind.").response, SAID)
        parts = list(self.client.generate(model=self.name, prompt="Hi", stream=True))
        self.assertEqual("".join(part.response for part in parts), SAID)
        raw = self.client.generate(model=self.name, prompt="<|say|>", raw=True)
        self.assertEqual((raw.response, raw.prompt_eval_count), (SAID, 1))
        self.assertEqual(self.client.generate(model=self.name, prompt="").done_reason, "load")

    def test_models(self):
        listed = self.client.list().models[0]
        self.assertEqual(listed.model, self.name + ":latest")
        self.assertEqual(self.client.ps().models[0].model, listed.model)
        shown = self.client.show(listed.model)
        self.assertEqual(shown.capabilities, ["completion", "tools", "thinking"])
        self.assertEqual(shown.modelinfo[shown.details.family + ".context_length"], 4096)
        self.assertEqual(self.client.chat(model=listed.model, messages=HELLO).message.content, SAID)

    def test_what_is_refused_is_named(self):
        cases = [("temperature", {"options": {"temperature": 9}}), ("uniqueItems", {"format": {"type": "array", "uniqueItems": True}}),
                 ("images", {"messages": [{"role": "user", "content": "x", "images": [b"\x89PNG"]}]})]
        for name, fields in cases:
            with self.subTest(name=name), self.assertRaises(ollama.ResponseError) as refused:
                self.chat(**fields)
            self.assertIn(name, refused.exception.error)
            self.assertEqual(refused.exception.status_code, 400)
        with self.assertRaises(ollama.ResponseError) as refused:
            self.chat(model="none")
        self.assertEqual(refused.exception.status_code, 404)
        with self.assertRaises(ollama.ResponseError) as refused:
            self.client.embed(model=self.name, input="x")
        self.assertEqual(refused.exception.status_code, 501)


if __name__ == "__main__":
    unittest.main()
