"""Anthropic's Python client drives the server unchanged; every answer and event validates against its models.

usage: anthropic_test.py REPRISE
"""
import json
import sys
import unittest

import anthropic
import pydantic

import harness
import recorder

PROGRAM = sys.argv.pop(1)
SAID = "Hello there, little parrot friend"
HELLO = [{"role": "user", "content": "Hi"}]
TOOLS = [{"name": harness.WEATHER["name"], "description": harness.WEATHER["description"],
          "input_schema": harness.WEATHER["schema"]}]
LONG = "You are a parrot of many words, and each of them is part of the prompt. " * 12
EVENT = pydantic.TypeAdapter(anthropic.types.RawMessageStreamEvent)


def validate(path, status, content_type, body):
    if status >= 400:
        error = json.loads(body)
        assert error["type"] == "error" and error["error"]["type"] and error["error"]["message"], error
    elif path == "/v1/models":
        anthropic.types.ModelInfo.model_validate_json(json.dumps(json.loads(body)["data"][0]), strict=True)
    elif path == "/v1/messages/count_tokens":
        anthropic.types.MessageTokensCount.model_validate(json.loads(body), strict=True)
    elif path == "/v1/messages" and not content_type.startswith("text/event-stream"):
        anthropic.types.Message.model_validate(json.loads(body), strict=True)
    elif path == "/v1/messages":
        for name, data in recorder.events(body):
            value = json.loads(data)
            assert value["type"] == name, (name, value)
            if name != "ping":
                EVENT.validate_python(value, strict=True)


class Messages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server(PROGRAM)
        cls.client = anthropic.Anthropic(base_url=cls.server.url, api_key="key", max_retries=0)
        cls.name = cls.client.models.list().data[0].id

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        answers = cls.server.recorder.answers()
        for _, path, *answer in answers:
            validate(path, *answer)
        assert cls.server.stop() == 0
        assert len(answers) > 10, "too little was recorded"

    def create(self, **more):
        return self.client.messages.create(**{"model": self.name, "max_tokens": 64, "messages": HELLO, **more})

    def stream(self, **more):
        """The message that the events add up to, and the names of the events."""
        names = []
        with self.client.messages.stream(**{"model": self.name, "max_tokens": 64, "messages": HELLO, **more}) as stream:
            for event in stream:
                names.append(event.type)
            return stream.get_final_message(), names

    def total(self, usage):
        return usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens

    def test_message(self):
        message = self.create(system="Be brief.")
        self.assertEqual([(b.type, b.text) for b in message.content], [("text", SAID)])
        self.assertEqual((message.role, message.stop_reason, message.model), ("assistant", "end_turn", self.name))
        self.assertEqual(self.total(message.usage), self.client.messages.count_tokens(
            model=self.name, messages=HELLO, system="Be brief.").input_tokens)
        self.assertIn("used_tokens", message.model_extra["reprise"])

    def test_stream(self):
        message, names = self.stream()
        self.assertEqual(message.content[0].text, SAID)
        self.assertEqual(message.stop_reason, "end_turn")
        self.assertEqual(self.total(message.usage), self.total(self.create().usage))
        self.assertEqual(message.usage.output_tokens, self.create().usage.output_tokens)
        raw = [n for n in names if n not in ("text", "input_json", "thinking", "signature", "ping")]
        self.assertEqual((raw[0], raw[1], raw[-3:]), ("message_start", "content_block_start",
                                                      ["content_block_stop", "message_delta", "message_stop"]))

    def test_tool_use_and_result(self):
        for message in (self.create(tools=TOOLS), self.stream(tools=TOOLS)[0]):
            self.assertEqual(message.stop_reason, "tool_use")
            text, call = message.content
            self.assertEqual((text.text, call.name, call.input), ("Let me look.", "get_weather", {"city": "Paris"}))
            messages = HELLO + [
                {"role": "assistant", "content": message.content},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id,
                                              "content": [{"type": "text", "text": "sunny"}]}]}]
            self.assertEqual(self.create(tools=TOOLS, messages=messages).content[0].text, "It is sunny in Paris today.")

    def test_parallel_calls(self):
        more = {"tools": TOOLS, "messages": [{"role": "user", "content": "Look twice."}]}
        for message in (self.create(**more), self.stream(**more)[0]):
            self.assertEqual([block.input for block in message.content], [{"city": "Rome"}, {"city": "Oslo"}])
        single = self.create(tool_choice={"type": "auto", "disable_parallel_tool_use": True}, **more)
        self.assertEqual([block.input for block in single.content], [{"city": "Rome"}])
        self.assertEqual(single.stop_reason, "tool_use")

    def test_models(self):
        model = self.client.models.retrieve(self.name)
        self.assertEqual((model.id, model.type), (self.name, "model"))

    def test_thinking(self):
        more = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2048}
        for message in (self.create(**more), self.stream(**more)[0]):
            thinking, text = message.content
            self.assertEqual((thinking.thinking, text.text), ("Two plus two", "It makes four"))
            self.assertTrue(thinking.signature)
            # What a client sends back is understood.
            self.create(messages=HELLO + [{"role": "assistant", "content": message.content},
                                          {"role": "user", "content": "And three?"}])
        self.assertEqual(self.create(thinking={"type": "disabled"}).content[0].text, SAID)

    def test_prefill(self):
        message = self.create(messages=HELLO + [{"role": "assistant", "content": "Hello there"}])
        self.assertEqual(message.content[0].text, ", little parrot friend")

    def test_first_event_has_the_counts_of_the_last(self):
        messages = [{"role": "user", "content": "Fourth. " + LONG}]
        for cached in (False, True):
            with self.client.messages.create(model=self.name, max_tokens=64, messages=messages, stream=True) as stream:
                start, *_, delta, _ = list(stream)
            self.assertEqual(start.message.usage.cache_read_input_tokens, delta.usage.cache_read_input_tokens)
            self.assertEqual(start.message.usage.input_tokens, delta.usage.input_tokens)
            self.assertEqual(start.message.usage.cache_read_input_tokens > 100, cached)

    def test_stops(self):
        message = self.create(stop_sequences=[" parrot", "never"])
        self.assertEqual((message.content[0].text, message.stop_reason, message.stop_sequence),
                         ("Hello there, little", "stop_sequence", " parrot"))
        message = self.create(max_tokens=2)
        self.assertEqual((message.content[0].text, message.stop_reason), ("Hello there", "max_tokens"))

    def test_cache_control_and_prewarm(self):
        system = [{"type": "text", "text": "First. " + LONG, "cache_control": {"type": "ephemeral", "ttl": "1h"}},
                  {"type": "text", "text": "And this changes."}]
        warm = self.create(system=system, max_tokens=0)
        self.assertEqual((warm.content, warm.stop_reason, warm.usage.output_tokens), ([], "max_tokens", 0))
        self.assertLess(warm.usage.cache_read_input_tokens, 20)  # marks that all prompts begin with
        written = warm.usage.cache_creation_input_tokens
        self.assertEqual(warm.usage.cache_creation.ephemeral_1h_input_tokens, written)
        self.assertGreater(written, 100)
        self.assertGreater(warm.usage.input_tokens, 0)
        # Another end of the system prompt: the part before the breakpoint is read.
        system[1]["text"] = "Something else."
        again = self.create(system=system)
        self.assertGreaterEqual(again.usage.cache_read_input_tokens, written)
        self.assertEqual(again.usage.cache_creation_input_tokens, 0)
        self.assertEqual(again.content[0].text, SAID)

    def test_whole_request_as_breakpoint(self):
        usage = self.create(messages=[{"role": "user", "content": "Second. " + LONG}],
                            cache_control={"type": "ephemeral"}).usage
        self.assertGreater(usage.cache_creation.ephemeral_5m_input_tokens, 100)
        self.assertEqual(usage.cache_creation.ephemeral_1h_input_tokens, 0)

    def test_varying_preamble_does_not_defeat_the_cache(self):
        def system(nonce):
            return [{"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1.0; cch={nonce};"},
                    {"type": "text", "text": "Third. " + LONG}]
        first = self.create(system=system("0a1b2"))
        again = self.create(system=system("fffff"))
        self.assertEqual(self.total(first.usage), self.total(again.usage))
        self.assertGreaterEqual(again.usage.cache_read_input_tokens, self.total(again.usage) - 1)

    def test_diagnostics_name_what_changed(self):
        first = self.create(system=LONG, diagnostics={"previous_message_id": None})
        self.assertIsNone(first.diagnostics)
        turns = HELLO + [{"role": "assistant", "content": first.content}, {"role": "user", "content": "And?"}]

        def reason(**more):
            message = self.create(**{"system": LONG, "messages": turns,
                                     "diagnostics": {"previous_message_id": first.id}, **more})
            return message.diagnostics and message.diagnostics.cache_miss_reason
        self.assertIsNone(reason())
        self.assertEqual(reason(tools=TOOLS).type, "tools_changed")
        self.assertEqual(reason(system="Other. " + LONG).type, "system_changed")
        self.assertGreater(reason(system="Another. " + LONG).cache_missed_input_tokens, 100)
        self.assertEqual(reason(messages=[{"role": "user", "content": "Hello?"}]).type, "messages_changed")
        self.assertEqual(reason(diagnostics={"previous_message_id": "msg_none"}).type, "previous_message_not_found")

    def test_errors(self):
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
        marked = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}
        for more, kind, words in [
                ({"model": "no-such-model"}, anthropic.NotFoundError, "no-such-model"),
                ({"max_tokens": -1}, anthropic.BadRequestError, "max_tokens"),
                ({"messages": []}, anthropic.BadRequestError, "messages"),
                ({"extra_body": {"temperature": 9}}, anthropic.BadRequestError, "temperature"),
                ({"messages": [{"role": "user", "content": [image]}]}, anthropic.BadRequestError, "image"),
                ({"messages": [{"role": "user", "content": [marked] * 5}]}, anthropic.BadRequestError, "cache_control"),
                ({"tool_choice": {"type": "any"}}, anthropic.BadRequestError, "tool_choice"),
                ({"tools": [{"type": "computer_20250124", "name": "computer"}]}, anthropic.BadRequestError, "computer_20250124"),
                ({"messages": [{"role": "user", "content": "long " * 5000}]}, anthropic.BadRequestError, "")]:
            with self.subTest(more=str(more)[:60]):
                with self.assertRaises(kind) as caught:
                    self.create(**more)
                self.assertEqual(caught.exception.body["type"], "error")
                self.assertIn(words, caught.exception.body["error"]["message"])
                self.assertTrue(caught.exception.request_id)
        # Also where it is not an endpoint of Anthropic's that refuses.
        for call in (lambda: self.client.models.retrieve("none"), lambda: self.client.messages.batches.list()):
            with self.assertRaises(anthropic.NotFoundError) as caught:
                call()
            self.assertEqual(caught.exception.body["type"], "error")
            self.assertEqual(caught.exception.body["request_id"], caught.exception.request_id)
        self.assertEqual(self.create().content[0].text, SAID)

    def test_a_streamed_warm_up(self):
        messages = [{"role": "user", "content": "Seventh. " + LONG}]
        with self.client.messages.create(model=self.name, max_tokens=0, messages=messages, stream=True) as stream:
            events = list(stream)
        self.assertEqual([event.type for event in events], ["message_start", "message_delta", "message_stop"])
        self.assertEqual((events[1].delta.stop_reason, events[1].usage.output_tokens), ("max_tokens", 0))
        self.assertGreater(self.create(messages=messages).usage.cache_read_input_tokens, 100)

    def test_system_in_blocks(self):
        blocks = [{"type": "text", "text": "Be kind."}, {"type": "text", "text": "Be short."}]
        counts = [self.client.messages.count_tokens(model=self.name, messages=HELLO, system=system).input_tokens
                  for system in (blocks, "Be kind.\nBe short.")]
        self.assertEqual(*counts)


if __name__ == "__main__":
    unittest.main()
