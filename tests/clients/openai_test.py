"""OpenAI's Python client drives the server unchanged; every answer and chunk validates against OpenAI's schema.

usage: openai_test.py REPRISE
"""
import json
import sys
import typing
import unittest

import openai
import pydantic

import harness
import openai_schema

PROGRAM = sys.argv.pop(1)
SAID = "Hello there, little parrot friend"
HELLO = [{"role": "user", "content": "Hi"}]
TOOLS = [{"type": "function", "function": {"name": harness.WEATHER["name"],
                                           "description": harness.WEATHER["description"],
                                           "parameters": harness.WEATHER["schema"]}}]


class Report(pydantic.BaseModel):
    city: typing.Literal["Paris", "Rome"]
    sunny: bool
    days: list[typing.Literal[1, 2]] = pydantic.Field(max_length=2)


class ClientTest(unittest.TestCase):
    options, model = (), None

    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server(PROGRAM, *cls.options, model=cls.model)
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="key", max_retries=0)
        cls.name = cls.client.models.list().data[0].id

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        validated = openai_schema.validate_all(cls.server.recorder.answers())
        assert cls.server.stop() == 0
        assert validated > 0, "nothing was recorded"

    def chat(self, **more):
        return self.client.chat.completions.create(**{"model": self.name, "messages": HELLO, **more})


class Scripted(ClientTest):
    def test_models(self):
        self.assertEqual(self.client.models.retrieve(self.name).id, self.name)

    def test_chat(self):
        reply = self.chat()
        self.assertEqual(reply.choices[0].message.content, SAID)
        self.assertEqual(reply.choices[0].finish_reason, "stop")
        self.assertEqual(reply.usage.total_tokens, reply.usage.prompt_tokens + reply.usage.completion_tokens)
        self.assertIn("used_tokens", reply.model_extra["reprise"])

    def test_stream_adds_up(self):
        chunks = list(self.chat(stream=True, stream_options={"include_usage": True}))
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        self.assertEqual(text, SAID)
        self.assertEqual([c.choices[0].finish_reason for c in chunks if c.choices][-1], "stop")
        self.assertEqual(chunks[-1].choices, [])
        self.assertEqual(chunks[-1].usage.prompt_tokens, self.chat().usage.prompt_tokens)
        self.assertTrue(all(c.usage is None for c in chunks[:-1]))

    def test_second_time_is_cached(self):
        messages = [{"role": "user", "content": "A question of some length that nobody asked before. " * 8}]
        first = self.chat(messages=messages)
        again = self.chat(messages=messages)
        self.assertEqual(first.choices[0].message.content, again.choices[0].message.content)
        self.assertGreaterEqual(again.usage.prompt_tokens_details.cached_tokens, again.usage.prompt_tokens - 1)

    def test_tool_call_and_result(self):
        reply = self.chat(tools=TOOLS, tool_choice="auto").choices[0]
        self.assertEqual(reply.finish_reason, "tool_calls")
        self.assertEqual(reply.message.content, "Let me look.")
        call = reply.message.tool_calls[0]
        self.assertEqual((call.function.name, call.function.arguments), ("get_weather", '{"city": "Paris"}'))
        messages = HELLO + [reply.message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
        answer = self.chat(tools=TOOLS, messages=messages).choices[0]
        self.assertEqual(answer.message.content, "It is sunny in Paris today.")
        self.assertEqual(answer.finish_reason, "stop")

    def test_streamed_tool_call(self):
        name, arguments, content, reasons = "", "", "", []
        for chunk in self.chat(tools=TOOLS, stream=True):
            delta = chunk.choices[0].delta
            content += delta.content or ""
            reasons.append(chunk.choices[0].finish_reason)
            for call in delta.tool_calls or []:
                self.assertEqual(call.index, 0)
                name += call.function.name or ""
                arguments += call.function.arguments or ""
        self.assertEqual((content, name, arguments), ("Let me look.", "get_weather", '{"city": "Paris"}'))
        self.assertEqual(reasons[-1], "tool_calls")

    def test_parallel_calls(self):
        more = {"tools": TOOLS, "messages": [{"role": "user", "content": "Look twice."}]}
        calls = self.chat(**more).choices[0].message.tool_calls
        self.assertEqual([c.function.arguments for c in calls], ['{"city": "Rome"}', '{"city": "Oslo"}'])
        streamed = [c for chunk in self.chat(stream=True, **more) for c in chunk.choices[0].delta.tool_calls or []]
        arguments = ["", ""]
        for call in streamed:
            arguments[call.index] += call.function.arguments
        self.assertEqual(arguments, ['{"city": "Rome"}', '{"city": "Oslo"}'])
        # The name and the id come once, with the first piece.
        self.assertEqual([(c.index, c.function.name) for c in streamed if c.id], [(0, "get_weather"), (1, "get_weather")])
        single = self.chat(parallel_tool_calls=False, **more).choices[0]
        self.assertEqual([c.function.arguments for c in single.message.tool_calls], ['{"city": "Rome"}'])
        self.assertEqual(single.finish_reason, "tool_calls")

    def test_a_stop_after_a_call_does_not_hide_it(self):
        more = {"tools": TOOLS, "messages": [{"role": "user", "content": "Look twice."}], "stop": "\n<tool_call>"}
        choice = self.chat(**more).choices[0]
        self.assertEqual([c.function.arguments for c in choice.message.tool_calls], ['{"city": "Rome"}'])
        self.assertEqual(choice.finish_reason, "tool_calls")

    def test_no_limit(self):
        self.assertEqual(self.chat(max_tokens=-1).choices[0].message.content, SAID)

    def test_replies_have_the_type_that_was_asked_for(self):
        # The parrot would say something else; of what is allowed it takes anything. It may begin to think, and never
        # end: then the limit of tokens says so.
        typed = 0
        for seed in range(12):
            try:
                reply = self.client.chat.completions.parse(model=self.name, messages=HELLO, response_format=Report,
                                                           temperature=2, seed=seed, max_tokens=300)
            except openai.LengthFinishReasonError:
                continue
            typed += 1
            self.assertIsInstance(reply.choices[0].message.parsed, Report)
            self.assertEqual(reply.choices[0].finish_reason, "stop")
        self.assertGreater(typed, 1)

    def test_forced_calls(self):
        schema = Report.model_json_schema()
        tools = [openai.pydantic_function_tool(Report, name="report"),
                 {"type": "function", "function": {"name": "other", "parameters": schema}}]
        named = {"type": "function", "function": {"name": "report"}}
        for seed in range(4):
            for choice in ("required", named):
                reply = self.chat(tools=tools, tool_choice=choice, temperature=2, seed=seed, max_tokens=300,
                                  parallel_tool_calls=False).choices[0]
                if reply.finish_reason == "length":  # it thinks
                    continue
                self.assertEqual(reply.finish_reason, "tool_calls")
                call = reply.message.tool_calls[0].function
                self.assertIn(call.name, ["report"] if choice is named else ["report", "other"])
                if call.name == "report":
                    Report.model_validate(json.loads(call.arguments))

    def test_without_calls_the_text_stays(self):
        reply = self.chat(tools=TOOLS, tool_choice="none").choices[0]
        self.assertIsNone(reply.message.tool_calls)
        self.assertIn("<tool_call>", reply.message.content)

    def test_thinking_is_apart(self):
        more = {"extra_body": {"chat_template_kwargs": {"enable_thinking": True}}}
        message = self.chat(**more).choices[0].message
        self.assertEqual((message.reasoning_content, message.content), ("Two plus two", "It makes four"))
        details = self.chat(**more).usage.completion_tokens_details
        self.assertEqual(details.reasoning_tokens, 2)
        deltas = [c.choices[0].delta for c in self.chat(stream=True, **more)]
        self.assertEqual("".join(getattr(d, "reasoning_content", None) or "" for d in deltas), "Two plus two")
        self.assertEqual("".join(d.content or "" for d in deltas), "It makes four")

    def test_logprobs(self):
        tokens = self.chat(logprobs=True, top_logprobs=2).choices[0].logprobs.content
        self.assertEqual("".join(t.token for t in tokens[:5]), SAID)
        for token in tokens:
            self.assertLessEqual(token.logprob, 0)
            self.assertEqual(len(token.top_logprobs), 2)
            self.assertEqual(token.top_logprobs[0].token, token.token)
        streamed = [t for c in self.chat(logprobs=True, top_logprobs=2, stream=True)
                    for t in (c.choices[0].logprobs.content if c.choices[0].logprobs else [])]
        self.assertEqual([t.token for t in streamed], [t.token for t in tokens])

    def streamed(self, **more):
        """The choices of a stream, put together: (content, finish_reason, token ids, logprobs) each."""
        choices = {}
        for chunk in self.chat(stream=True, **more):
            for choice in chunk.choices:
                text, ends, ids, logprobs = choices.setdefault(choice.index, ([], [], [], []))
                text.append(choice.delta.content or "")
                ends += [choice.finish_reason] if choice.finish_reason else []
                ids += (choice.model_extra or {}).get("token_ids", [])
                logprobs += [(t.token, t.logprob) for t in choice.logprobs.content] if choice.logprobs else []
        return [("".join(text), *ends, ids, logprobs) for _, (text, ends, ids, logprobs) in sorted(choices.items())]

    def whole(self, **more):
        return [(c.message.content or "", c.finish_reason, (c.model_extra or {}).get("token_ids", []),
                 [(t.token, t.logprob) for t in c.logprobs.content] if c.logprobs else [])
                for c in self.chat(**more).choices]

    def test_a_stream_says_what_the_whole_says(self):
        twice = {"tools": TOOLS, "messages": [{"role": "user", "content": "twice"}]}
        thinking = {"chat_template_kwargs": {"enable_thinking": True}}
        for more in ({}, {"tools": TOOLS}, twice, {"n": 3, "temperature": 1, "seed": 7}, {"stop": ["t p"]},
                     {"stop": ["e, l", "zzz", ""]}, {"max_tokens": 0}, {"max_tokens": 3}, {"extra_body": thinking}):
            for tokens in ({}, {"return_token_ids": True}):
                for logprobs in ({}, {"logprobs": True, "top_logprobs": 2}):
                    asked = {**more, **logprobs, "extra_body": {**more.get("extra_body", {}), **tokens}}
                    with self.subTest(asked=str(asked)):
                        whole = self.whole(**asked)
                        self.assertEqual(self.streamed(**asked), whole)
                        if more.get("max_tokens") != 0:
                            self.assertEqual((bool(tokens), bool(logprobs)), (bool(whole[0][2]), bool(whole[0][3])))

    def test_stops_between_and_inside_tokens(self):
        for begin in range(0, len(SAID) - 1, 2):
            for length in (2, 7):
                stop = SAID[begin:begin + length]
                said = SAID[:SAID.index(stop)]
                self.assertEqual(self.whole(stop=stop)[0][:2], (said, "stop"), stop)
                self.assertEqual(self.streamed(stop=[stop])[0][:2], (said, "stop"), stop)

    def test_a_warm_up_makes_the_next_request_warm(self):
        messages = [{"role": "user", "content": "Something that nobody has said before, at some length. " * 8}]
        warm = self.chat(messages=messages, max_tokens=0)
        self.assertEqual((warm.choices[0].message.content, warm.choices[0].finish_reason), ("", "length"))
        self.assertEqual(warm.usage.completion_tokens, 0)
        self.assertLess(warm.usage.prompt_tokens_details.cached_tokens, 20)
        usage = self.chat(messages=messages).usage
        self.assertEqual(usage.prompt_tokens_details.cached_tokens, usage.prompt_tokens - 1)

    def test_parts_of_messages(self):
        parts = [{"type": "text", "text": "Be kind."}, {"type": "text", "text": "Be short."}]
        joined = [{"role": "system", "content": "Be kind.\nBe short."}, *HELLO]
        reply = self.chat(messages=[{"role": "system", "content": parts}, *HELLO])
        self.assertEqual(reply.usage.prompt_tokens, self.chat(messages=joined).usage.prompt_tokens)
        for part in ({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
                     {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
                     {"type": "file", "file": {"file_id": "x"}}):
            with self.assertRaises(openai.BadRequestError) as caught:
                self.chat(messages=[{"role": "user", "content": [*parts, part]}])
            self.assertEqual(caught.exception.param, "messages[0].content[2].type")

    def test_what_means_nothing_here_passes(self):
        reply = self.chat(user="u", store=True, metadata={"a": "b"}, service_tier="auto", verbosity="medium",
                          prompt_cache_key="k", safety_identifier="s")
        self.assertEqual(reply.choices[0].message.content, SAID)

    def test_what_nobody_knows_is_named(self):
        reply = self.chat(extra_body={"no_such_field": {"a": [1]}, "mirostat": 2}, verbosity="low")
        self.assertEqual(sorted(reply.model_extra["reprise"]["passed_fields"]), ["mirostat", "no_such_field", "verbosity"])
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(extra_body={"max_token": 5})
        self.assertEqual((caught.exception.param, caught.exception.code), ("max_token", "unknown_parameter"))

    def test_reasoning_effort_is_heard(self):
        self.assertTrue(self.chat(reasoning_effort="low").choices[0].message.model_extra["reasoning_content"])
        self.assertEqual(self.chat(reasoning_effort="none").choices[0].message.content, SAID)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(reasoning_effort="lots")
        self.assertEqual(caught.exception.param, "reasoning_effort")

    def test_what_cannot_be_honoured_is_refused_by_name(self):
        for name, value in (("functions", [{"name": "f"}]), ("extra_body", {"best_of": 3}),
                            ("extra_body", {"logits_processors": ["x"]})):
            with self.assertRaises(openai.BadRequestError) as caught:
                self.chat(**{name: value})
            wanted = next(iter(value)) if name == "extra_body" else name
            self.assertTrue(caught.exception.param.startswith(wanted), caught.exception.param)

    def test_a_last_message_of_the_assistant_goes_on(self):
        said = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello there,"}]
        open_end = self.chat(messages=said).usage.prompt_tokens
        closed = self.chat(messages=said, extra_body={"continue_final_message": False}).usage.prompt_tokens
        self.assertLess(open_end, closed)

    def test_biases_at_their_ends(self):
        first = self.chat(max_tokens=1, extra_body={"return_token_ids": True}).choices[0].model_extra["token_ids"][0]
        self.assertNotEqual(self.chat(max_tokens=1, logit_bias={str(first): -100}).choices[0].message.content, "Hello")
        self.assertEqual(self.chat(max_tokens=2, logit_bias={str(first): 100}).choices[0].message.content, "HelloHello")

    def test_limits_and_choices(self):
        cut = self.chat(max_tokens=2).choices[0]
        self.assertEqual((cut.message.content, cut.finish_reason), ("Hello there", "length"))
        stopped = self.chat(stop=[" parrot"]).choices[0]
        self.assertEqual((stopped.message.content, stopped.finish_reason), ("Hello there, little", "stop"))
        self.assertEqual([c.message.content for c in self.chat(n=3, temperature=1).choices], [SAID] * 3)
        exclamation = 33  # the byte "!" in the scripted vocabulary
        biased = self.chat(logit_bias={str(exclamation): 100}, max_tokens=3).choices[0]
        self.assertEqual(biased.message.content, "!!!")

    def test_completions(self):
        reply = self.client.completions.create(model=self.name, prompt="<|say|>", max_tokens=8, logprobs=1)
        self.assertEqual(reply.choices[0].text, SAID)
        self.assertEqual(len(reply.choices[0].logprobs.tokens), len(reply.choices[0].logprobs.token_logprobs))
        chunks = self.client.completions.create(model=self.name, prompt="<|say|>", max_tokens=8, stream=True)
        self.assertEqual("".join(c.choices[0].text for c in chunks if c.choices), SAID)

    def test_errors(self):
        for more, kind, param in [
                ({"model": "no-such-model"}, openai.NotFoundError, "model"),
                ({"temperature": 3}, openai.BadRequestError, "temperature"),
                ({"messages": []}, openai.BadRequestError, "messages"),
                ({"n": 0}, openai.BadRequestError, "n"),
                ({"top_logprobs": 3}, openai.BadRequestError, "top_logprobs"),
                ({"tool_choice": "required"}, openai.BadRequestError, "tool_choice"),
                ({"response_format": {"type": "xml"}}, openai.BadRequestError, "response_format.type"),
                ({"messages": [{"role": "user", "content": "long " * 5000}]}, openai.BadRequestError, None)]:
            with self.subTest(more=str(more)[:60]):
                with self.assertRaises(kind) as caught:
                    self.chat(**more)
                if param:
                    self.assertEqual(caught.exception.param, param)
        self.assertEqual(self.chat().choices[0].message.content, SAID)

    def test_a_client_that_leaves(self):
        stream = self.chat(stream=True)
        next(iter(stream))
        stream.close()
        self.assertEqual(self.chat().choices[0].message.content, SAID)


class WithKeys(ClientTest):
    options = ("--api-key", "key", "--api-key", "other")

    def test_keys(self):
        self.assertEqual(self.chat().choices[0].message.content, SAID)
        with self.assertRaises(openai.AuthenticationError):
            self.client.with_options(api_key="wrong").models.list()

    def test_keys_share_nothing(self):
        messages = [{"role": "user", "content": "What one tenant asked is nothing to the other. " * 8}]
        self.chat(messages=messages)
        other = self.client.with_options(api_key="other")
        reply = other.chat.completions.create(model=self.name, messages=messages)
        self.assertEqual(reply.usage.prompt_tokens_details.cached_tokens, 0)


class Bundled(ClientTest):
    """The bundled hybrid: recurrent state, snapshots at the boundaries of the template."""
    model = harness.TINY

    def test_conversation_is_reused_and_the_same(self):
        messages = [{"role": "system", "content": "You tell short stories about animals. " * 12},
                    {"role": "user", "content": "Tell me a story about a fox."}]
        first = self.chat(messages=messages, temperature=0, max_tokens=24)
        again = self.chat(messages=messages, temperature=0, max_tokens=24)
        self.assertEqual(first.choices[0].message.content, again.choices[0].message.content)
        self.assertGreaterEqual(again.usage.prompt_tokens_details.cached_tokens, again.usage.prompt_tokens - 8)
        messages += [{"role": "assistant", "content": first.choices[0].message.content},
                     {"role": "user", "content": "What did the fox do?"}]
        third = self.chat(messages=messages, temperature=0, max_tokens=8)
        self.assertGreaterEqual(third.usage.prompt_tokens_details.cached_tokens, first.usage.prompt_tokens - 4)


del ClientTest
if __name__ == "__main__":
    unittest.main()
