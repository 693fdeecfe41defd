"""pydantic-ai's output types: by a forced call, and by the schema of the answer.

usage: pydantic_ai_typed_test.py REPRISE
"""
import typing
import unittest

import pydantic
import setting
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.exceptions import AgentRunError
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


class Place(pydantic.BaseModel):
    """A place."""
    city: typing.Literal["Oslo", "Rome", "Paris"]
    height: int = pydantic.Field(ge=-10, le=3000)


class PydanticAiTyped(setting.ServerTest):
    def test_output_types(self):
        model = OpenAIChatModel("gpt-typed", provider=OpenAIProvider(base_url=self.server.url + "/v1", api_key="key"))
        for output in (ToolOutput(Place), NativeOutput(Place)):
            with self.subTest(output=type(output).__name__):
                made = 0
                for seed in range(16):
                    agent = Agent(model, output_type=output, retries=0)
                    try:
                        place = agent.run_sync("Hi", model_settings={"temperature": 2, "seed": seed, "max_tokens": 200})
                    except AgentRunError as error:  # it thinks, and never ends
                        self.assertRegex(str(error), "token limit|retries|max_tokens")
                        continue
                    self.assertIsInstance(place.output, Place)
                    made += 1
                self.assertGreater(made, 1)


if __name__ == "__main__":
    unittest.main()
