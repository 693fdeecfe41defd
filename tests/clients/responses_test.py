"""OpenAI's Python client holds conversations over /v1/responses, whole, streamed and with its stream helper; every answer
and event validates against OpenAI's schema.

usage: responses_test.py REPRISE
"""
import json
import sys
import tempfile
import unittest

import openai

import harness
import openai_schema

PROGRAM = sys.argv.pop(1)
SAID = "Hello there, little parrot friend"
TOOLS = [{"type": "function", "name": harness.WEATHER["name"], "description": harness.WEATHER["description"],
          "parameters": harness.WEATHER["schema"], "strict": False}]
THINK = {"extra_body": {"chat_template_kwargs": {"enable_thinking": True}}}
PART = ["response.content_part.added", "response.content_part.done"]


class Responses(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server(PROGRAM)
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="key", max_retries=0)
        cls.name = cls.client.models.list().data[0].id

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        validated = openai_schema.validate_all(cls.server.recorder.answers())
        assert cls.server.stop() == 0
        assert validated > 100, validated

    def create(self, **more):
        return self.client.responses.create(**{"model": self.name, "input": "Hi", **more})

    def names(self, **more):
        """The names of the events of a stream; deltas that follow each other count as one."""
        names = [event.type for event in self.create(stream=True, **more)]
        return [name for i, name in enumerate(names) if i == 0 or name != names[i - 1]]

    def test_text(self):
        reply = self.create(instructions="Be kind.", metadata={"a": "b"}, max_output_tokens=50)
        self.assertEqual(reply.output_text, SAID)
        self.assertEqual(reply.status, "completed")
        self.assertEqual(reply.instructions, "Be kind.")
        self.assertEqual(reply.metadata, {"a": "b"})
        self.assertEqual(reply.usage.total_tokens, reply.usage.input_tokens + reply.usage.output_tokens)
        self.assertIn("used_tokens", reply.model_extra["reprise"])

    def test_events_of_a_text(self):
        self.assertEqual(self.names(), [
            "response.created", "response.in_progress", "response.output_item.added", PART[0],
            "response.output_text.delta", "response.output_text.done", PART[1], "response.output_item.done",
            "response.completed"])

    def test_events_of_a_call(self):
        self.assertEqual(self.names(tools=TOOLS)[8:], [
            "response.output_item.added", "response.function_call_arguments.delta",
            "response.function_call_arguments.done", "response.output_item.done", "response.completed"])

    def test_events_of_thinking(self):
        self.assertEqual(self.names(**THINK)[2:9], [
            "response.output_item.added", PART[0], "response.reasoning_text.delta", "response.reasoning_text.done",
            PART[1], "response.output_item.done", "response.output_item.added"])

    def test_stream_helper(self):
        with self.client.responses.stream(model=self.name, input="Hi", tools=TOOLS) as stream:
            text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
            final = stream.get_final_response()
        self.assertEqual(text, "Let me look.")
        self.assertEqual(final.output_text, text)
        call = final.output[1]
        self.assertEqual((call.type, call.name, call.arguments), ("function_call", "get_weather", '{"city": "Paris"}'))

    def test_tools_with_the_whole_conversation(self):
        first = self.create(tools=TOOLS, store=False)
        call = first.output[-1]
        items = [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}, *first.output,
                 {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}]
        second = self.create(tools=TOOLS, input=items, store=False)
        self.assertEqual(second.output_text, "It is sunny in Paris today.")
        self.assertGreater(second.usage.input_tokens_details.cached_tokens, 0)

    def test_functions_in_a_namespace(self):
        space = [{"type": "namespace", "name": "sky", "description": "Of the sky.", "tools": TOOLS}]
        call = self.create(tools=space).output[-1]
        self.assertEqual((call.name, call.namespace), ("get_weather", "sky"))
        self.assertIsNone(self.create(tools=TOOLS).output[-1].namespace)

    def test_previous_response(self):
        first = self.create(tools=TOOLS)
        output = [{"type": "function_call_output", "call_id": first.output[-1].call_id,
                   "output": [{"type": "input_text", "text": "sunny"}]}]
        second = self.create(tools=TOOLS, previous_response_id=first.id, input=output)
        self.assertEqual(second.output_text, "It is sunny in Paris today.")
        # The same prompt as when everything is sent.
        whole = [{"role": "user", "content": "Hi"}, *first.output, *output]
        again = self.create(tools=TOOLS, input=whole)
        self.assertEqual(again.usage.input_tokens, second.usage.input_tokens)
        self.assertEqual(again.usage.input_tokens_details.cached_tokens, again.usage.input_tokens - 1)
        references = [{"role": "user", "content": "Hi"},
                      *({"type": "item_reference", "id": item.id} for item in first.output), *output]
        self.assertEqual(self.create(tools=TOOLS, input=references).usage.input_tokens, second.usage.input_tokens)

    def test_instructions_are_of_one_request(self):
        first = self.create(instructions="A long instruction that is gone afterwards.")
        second = self.create(previous_response_id=first.id, input="Again")
        plain = self.create(previous_response_id=self.create().id, input="Again")
        self.assertEqual(second.usage.input_tokens, plain.usage.input_tokens)

    def test_stored_responses_are_found_and_deleted(self):
        made = self.create(input=[{"role": "user", "content": "Hi"}, {"role": "user", "content": "there"}])
        self.assertEqual(self.client.responses.retrieve(made.id), made)
        items = self.client.responses.input_items.list(made.id).data
        self.assertEqual([item.content[0].text for item in items], ["there", "Hi"])
        self.client.responses.delete(made.id)
        with self.assertRaises(openai.NotFoundError):
            self.client.responses.retrieve(made.id)
        with self.assertRaises(openai.BadRequestError) as refused:
            self.create(previous_response_id=made.id)
        self.assertEqual(refused.exception.code, "previous_response_not_found")
        with self.assertRaises(openai.NotFoundError):
            self.client.responses.retrieve(self.create(store=False).id)

    def test_thinking_is_an_item(self):
        reply = self.create(include=["reasoning.encrypted_content"], **THINK)
        thought, said = reply.output
        self.assertEqual((thought.type, thought.content[0].text), ("reasoning", "Two plus two"))
        self.assertEqual(said.content[0].text, "It makes four")
        self.assertEqual(reply.usage.output_tokens_details.reasoning_tokens, 2)
        # Clients that keep only the sealed text give the model the same to read.
        base = [{"role": "user", "content": "Hi"}]
        more = [said, {"role": "user", "content": "And?"}]
        sealed = {"type": "reasoning", "id": thought.id, "summary": [], "encrypted_content": thought.encrypted_content}
        self.assertEqual(self.create(input=base + [sealed] + more).usage.input_tokens,
                         self.create(input=base + [thought] + more).usage.input_tokens)

    def test_what_a_reply_must_be(self):
        # The parrot would say something else; of what is allowed it takes anything. It may begin to think, and never
        # end: then the limit of tokens says so.
        schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
        tool = {"type": "function", "name": "count", "parameters": schema, "strict": True}
        form = {"type": "json_schema", "name": "answer", "schema": schema, "strict": True}
        more = {"temperature": 2, "max_output_tokens": 200}
        complete = 0
        for seed in range(6):
            typed = self.create(text={"format": form}, extra_body={"seed": seed}, **more)
            if typed.status == "completed":
                complete += 1
                self.assertIn(json.loads(typed.output_text)["n"], (1, 2))
            for choice in ("required", {"type": "function", "name": "count"}):
                called = self.create(tools=[tool], tool_choice=choice, parallel_tool_calls=False,
                                     extra_body={"seed": seed}, **more)
                if called.status == "completed":
                    complete += 1
                    self.assertEqual((called.output[-1].type, called.output[-1].name), ("function_call", "count"))
                    self.assertIn(json.loads(called.output[-1].arguments)["n"], (1, 2))
        self.assertGreater(complete, 1)

    def test_effort(self):
        thinks = self.create(reasoning={"effort": "high"})
        self.assertEqual([item.type for item in thinks.output], ["reasoning", "message"])
        self.assertEqual(self.create(reasoning={"effort": "none"}).output_text, SAID)
        with self.assertRaises(openai.BadRequestError) as refused:
            self.create(reasoning={"effort": "enormous"})
        self.assertEqual(refused.exception.param, "reasoning.effort")

    def test_logprobs(self):
        reply = self.create(include=["message.output_text.logprobs"], top_logprobs=2)
        tokens = reply.output[0].content[0].logprobs
        self.assertEqual("".join(token.token for token in tokens[:5]), SAID)
        self.assertEqual(len(tokens[0].top_logprobs), 2)
        self.assertEqual(self.create().output[0].content[0].logprobs, [])

    def test_a_reply_that_is_cut_off(self):
        reply = self.create(max_output_tokens=2)
        self.assertEqual((reply.status, reply.incomplete_details.reason), ("incomplete", "max_output_tokens"))
        self.assertEqual(reply.output[0].status, "incomplete")
        self.assertEqual(self.names(max_output_tokens=2)[-1], "response.incomplete")

    def test_second_time_is_cached(self):
        question = "A question of some length that nobody asked before. " * 8
        self.create(input=question, prompt_cache_key="k")
        again = self.create(input=question, prompt_cache_key="k").usage
        self.assertEqual(again.input_tokens_details.cached_tokens, again.input_tokens - 1)

    def test_tokens_are_counted(self):
        counted = self.client.responses.input_tokens.count(model=self.name, input="Hi", tools=TOOLS)
        self.assertEqual(counted.input_tokens, self.create(tools=TOOLS).usage.input_tokens)

    def test_what_is_refused_is_named(self):
        cases = [("tools[1].name", {"tools": TOOLS * 2}), ("background", {"background": True, "store": False}),
                 ("conversation", {"conversation": "c"}),
                 ("tool_choice", {"tool_choice": "required"}), ("text.format.type", {"text": {"format": {"type": "xml"}}}),
                 ("input[0].type", {"input": [{"type": "computer_call_output"}]}),
                 ("input[0].content[0].type", {"input": [{"role": "user", "content": [{"type": "input_image"}]}]}),
                 ("input[0].id", {"input": [{"type": "item_reference", "id": "msg_none_0"}]}),
                 ("input", {"input": []})]
        for param, fields in cases:
            with self.subTest(param=param), self.assertRaises(openai.BadRequestError) as refused:
                self.create(**fields)
            self.assertEqual(refused.exception.param, param)


class Tenants(unittest.TestCase):
    def test_a_response_is_its_tenants_own(self):
        server = harness.Server(PROGRAM, "--api-key", "one", "--api-key", "two")
        one, two = (openai.OpenAI(base_url=server.url + "/v1", api_key=key, max_retries=0) for key in ("one", "two"))
        made = one.responses.create(model=server.model, input="Hi")
        self.assertEqual(one.responses.retrieve(made.id).id, made.id)
        for ask in (lambda: two.responses.retrieve(made.id), lambda: two.responses.delete(made.id)):
            with self.assertRaises(openai.NotFoundError):
                ask()
        with self.assertRaises(openai.BadRequestError):
            two.responses.create(model=server.model, input="Hi", previous_response_id=made.id)
        one.close()
        two.close()
        self.assertEqual(server.stop(), 0)


class Custom(unittest.TestCase):
    """Tools that take a text. The client's types check them: the schemas here do not have them."""
    create, names = Responses.create, Responses.names
    tools = [{"type": "custom", "name": "get_weather", "description": "The weather.",
              "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}}]

    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server(PROGRAM)
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="key", max_retries=0)
        cls.name = cls.client.models.list().data[0].id

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        assert cls.server.stop() == 0

    def test_a_call_and_its_output(self):
        first = self.create(tools=self.tools)
        call = first.output[-1]
        # The script's arguments have no "input": then the tool gets all of them.
        self.assertEqual((call.type, call.name, call.input), ("custom_tool_call", "get_weather", '{"city": "Paris"}'))
        self.assertIn("tools[0].format", first.model_extra["reprise"]["passed_fields"])
        output = [{"type": "custom_tool_call_output", "call_id": call.call_id, "output": "sunny"}]
        second = self.create(tools=self.tools, previous_response_id=first.id, input=output)
        self.assertEqual(second.output_text, "It is sunny in Paris today.")
        whole = self.create(tools=self.tools, input=[{"role": "user", "content": "Hi"}, *first.output, *output])
        self.assertEqual(whole.usage.input_tokens, second.usage.input_tokens)
        self.assertEqual(self.client.responses.input_items.list(second.id).data[0].type, "custom_tool_call_output")

    def test_events(self):
        self.assertEqual(self.names(tools=self.tools)[8:], [
            "response.output_item.added", "response.custom_tool_call_input.delta", "response.custom_tool_call_input.done",
            "response.output_item.done", "response.completed"])


class Background(unittest.TestCase):
    """Responses that nobody has to wait for, with one that is computed at a time. The client's types check them."""

    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server(PROGRAM, "--parallel", "1", model=harness.TINY)
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="key", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        assert cls.server.stop() == 0

    def create(self, tokens=20, **more):
        return self.client.responses.create(model=self.server.model, input="Tell me a story.", temperature=0, background=True,
                                            max_output_tokens=tokens, extra_body={"ignore_eos": True}, **more)

    def poll(self, made):
        while made.status in ("queued", "in_progress"):
            made = self.client.responses.retrieve(made.id)
        return made

    def test_polled(self):
        made = self.create()
        self.assertEqual((made.status, made.background, made.output), ("queued", True, []))
        done = self.poll(made)
        self.assertEqual((done.id, done.status, done.usage.output_tokens), (made.id, "incomplete", 20))
        again = self.client.responses.create(model=self.server.model, input="More.", previous_response_id=done.id,
                                             max_output_tokens=5)
        self.assertGreater(again.usage.input_tokens, done.usage.total_tokens)

    def test_a_reader_comes_back(self):
        with self.create(stream=True) as stream:  # leaves in the middle
            seen = [event for event, _ in zip(stream, range(6))]
        made = seen[0].response.id
        rest = list(self.client.responses.retrieve(made, stream=True, starting_after=seen[-1].sequence_number))
        whole = list(self.client.responses.retrieve(made, stream=True))
        self.assertEqual(seen + rest, whole)
        self.assertEqual([event.sequence_number for event in seen + rest], list(range(len(whole))))
        self.assertEqual(rest[-1].response.output_text, whole[-1].response.output_text)
        self.assertEqual(self.client.responses.retrieve(made).output_text, whole[-1].response.output_text)

    def test_cancelled(self):
        made = [self.create(1500, stream=False) for _ in range(4)]
        for one in reversed(made):
            self.assertEqual(self.client.responses.cancel(one.id).status, "cancelled")
        for one in made:
            self.assertEqual(self.client.responses.retrieve(one.id).status, "cancelled")
            self.assertEqual(self.client.responses.cancel(one.id).status, "cancelled")
        with self.assertRaises(openai.BadRequestError):
            self.client.responses.cancel(self.client.responses.create(model=self.server.model, input="x", max_output_tokens=1).id)

    def test_deleted(self):
        made = self.create(1500)
        self.client.responses.delete(made.id)
        with self.assertRaises(openai.NotFoundError):
            self.client.responses.retrieve(made.id)


class Restart(unittest.TestCase):
    def test_a_server_that_ends_finishes_them(self):
        with tempfile.TemporaryDirectory() as folder:
            server = harness.Server(PROGRAM, "--disk", folder, model=harness.TINY)
            client = openai.OpenAI(base_url=server.url + "/v1", api_key="key", max_retries=0)
            made = client.responses.create(model=server.model, input="Hi", background=True, max_output_tokens=200)
            client.close()
            self.assertEqual(server.stop(), 0)
            server = harness.Server(PROGRAM, "--disk", folder, model=harness.TINY)
            client = openai.OpenAI(base_url=server.url + "/v1", api_key="key", max_retries=0)
            self.assertIn(client.responses.retrieve(made.id).status, ("completed", "incomplete"))
            client.close()
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main()
