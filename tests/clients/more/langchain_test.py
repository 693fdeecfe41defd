"""LangChain talks to the server through its OpenAI (chat and responses), Anthropic and Ollama models.

usage: langchain_test.py REPRISE
"""
import unittest

import setting
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI, OpenAI


@tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return "sunny in " + city


class LangChain(setting.ServerTest):
    def models(self):
        url = self.server.url
        yield ChatOpenAI(model="scripted", base_url=url + "/v1", api_key="key", max_retries=0)
        yield ChatOpenAI(model="scripted", base_url=url + "/v1", api_key="key", use_responses_api=True, max_retries=0)
        yield ChatAnthropic(model_name="scripted", base_url=url, api_key="key", max_retries=0)
        yield ChatOllama(model="scripted", base_url=url)

    def test_conversations_with_a_tool(self):
        for model in self.models():
            with self.subTest(model=type(model).__name__):
                self.assertEqual(model.invoke("Hi").text, setting.SAID)
                self.assertEqual("".join(chunk.text for chunk in model.stream("Hi")), setting.SAID)
                bound = model.bind_tools([get_weather])
                messages = [HumanMessage("Hi")]
                messages.append(bound.invoke(messages))
                call = messages[-1].tool_calls[0]
                self.assertEqual((call["name"], call["args"]), ("get_weather", setting.CALLED))
                messages.append(ToolMessage(get_weather.invoke(call["args"]), tool_call_id=call["id"]))
                self.assertEqual(bound.invoke(messages).text, setting.ANSWER)
                self.assertGreater(messages[1].usage_metadata["input_tokens"], 0)

    def test_completions(self):
        model = OpenAI(model="scripted", base_url=self.server.url + "/v1", api_key="key", max_retries=0)
        self.assertEqual(model.invoke("<|say|>"), setting.SAID)


if __name__ == "__main__":
    unittest.main()
