"""The vendors' typed helpers get what they ask for from a model that would rather say something else.

usage: typed_test.py REPRISE

The model takes anything of what is allowed. It may begin to think, and never end: then the limit of tokens says so, and
another seed is tried.
"""
import json
import sys
import typing
import unittest

import anthropic
import harness
import openai
import pydantic

PROGRAM = sys.argv.pop(1)
HELLO = [{"role": "user", "content": "Hi"}]
SEEDS = range(20)


class Place(pydantic.BaseModel):
    city: typing.Literal["Oslo", "Rome", "Paris"]
    height: int = pydantic.Field(ge=-10, le=3000)


class Report(pydantic.BaseModel):
    kind: typing.Literal["sun", "rain"]
    place: Place


class Typed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server(PROGRAM)
        cls.name = harness.model_id(cls.server)
        cls.openai = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="key", max_retries=0)
        cls.anthropic = anthropic.Anthropic(base_url=cls.server.url, api_key="key", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def test_openai_chat_parse(self):
        parsed = 0
        for seed in SEEDS:
            try:
                reply = self.openai.chat.completions.parse(model=self.name, messages=HELLO, response_format=Report,
                                                           temperature=2, seed=seed, max_tokens=500)
            except openai.LengthFinishReasonError:
                continue
            parsed += 1
            self.assertIsInstance(reply.choices[0].message.parsed, Report)
        self.assertGreater(parsed, 1)

    def test_openai_responses_parse(self):
        parsed = 0
        for _ in SEEDS:
            try:
                reply = self.openai.responses.parse(model=self.name, input="Hi", text_format=Report, temperature=2,
                                                    max_output_tokens=500)
            except pydantic.ValidationError:  # cut off, and parsed nevertheless
                continue
            if reply.status == "completed":
                parsed += 1
                self.assertIsInstance(reply.output_parsed, Report)
        self.assertGreater(parsed, 0)

    def test_anthropic_forced_tools(self):
        tools = [{"name": "report", "description": "Reports.", "input_schema": Report.model_json_schema()},
                 {"name": "place", "description": "A place.", "input_schema": Place.model_json_schema()}]
        kinds = {"report": Report, "place": Place}
        for choice in ({"type": "any"}, {"type": "tool", "name": "place"}):
            called = 0
            for _ in SEEDS:
                message = self.anthropic.messages.create(
                    model=self.name, messages=HELLO, max_tokens=1000, tools=tools, extra_body={"temperature": 1},
                    tool_choice={"disable_parallel_tool_use": True, **choice})
                if message.stop_reason == "max_tokens":
                    continue
                self.assertEqual(message.stop_reason, "tool_use")
                for block in message.content:
                    if block.type != "tool_use":
                        continue
                    called += 1
                    self.assertEqual(block.name, choice.get("name", block.name))
                    kinds[block.name].model_validate(block.input)
            self.assertGreater(called, 0, choice)

    def test_anthropic_output_format(self):
        parsed = 0
        for _ in SEEDS:
            message = self.anthropic.messages.create(
                model=self.name, messages=HELLO, max_tokens=500,
                extra_body={"temperature": 1,
                            "output_config": {"format": {"type": "json_schema", "schema": Report.model_json_schema()}}})
            if message.stop_reason == "max_tokens":
                continue
            parsed += 1
            Report.model_validate(json.loads(message.content[-1].text))
        self.assertGreater(parsed, 0)


if __name__ == "__main__":
    unittest.main()
