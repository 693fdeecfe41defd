"""pydantic-ai runs an agent with a tool over chat completions, responses and Anthropic's messages.

usage: pydantic_ai_test.py REPRISE
"""
import unittest

import setting
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider


def get_weather(city: str) -> str:
    """The weather in a city."""
    return "sunny in " + city


class PydanticAi(setting.ServerTest):
    def models(self):
        openai = OpenAIProvider(base_url=self.server.url + "/v1", api_key="key")
        yield OpenAIChatModel("scripted", provider=openai)
        yield OpenAIResponsesModel("scripted", provider=openai)
        yield AnthropicModel("scripted", provider=AnthropicProvider(base_url=self.server.url, api_key="key"))

    def test_an_agent_calls_its_tool(self):
        for model in self.models():
            with self.subTest(model=type(model).__name__):
                self.assertEqual(Agent(model).run_sync("Hi").output, setting.SAID)
                result = Agent(model, tools=[get_weather]).run_sync("Hi")
                self.assertEqual(result.output, setting.ANSWER)
                again = Agent(model, tools=[get_weather]).run_sync("Again", message_history=result.all_messages())
                self.assertEqual(again.output, setting.ANSWER)


if __name__ == "__main__":
    unittest.main()
