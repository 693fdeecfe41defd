"""LiteLLM's SDK reaches the server by four of its providers.

usage: litellm_test.py REPRISE
"""
import unittest

import litellm
import setting

HELLO = [{"role": "user", "content": "Hi"}]
TOOLS = [{"type": "function", "function": {"name": setting.harness.WEATHER["name"],
                                           "description": setting.harness.WEATHER["description"],
                                           "parameters": setting.harness.WEATHER["schema"]}}]


class LiteLlm(setting.ServerTest):
    def providers(self):
        yield "openai/scripted", self.server.url + "/v1"
        yield "anthropic/scripted", self.server.url
        yield "ollama_chat/scripted", self.server.url
        yield "hosted_vllm/scripted", self.server.url + "/v1"

    def test_chat_streams_and_tools(self):
        for model, base in self.providers():
            with self.subTest(model=model):
                def ask(messages=HELLO, **more):
                    return litellm.completion(model=model, api_base=base, api_key="key", messages=messages,
                                              max_tokens=100, num_retries=0, **more)
                self.assertEqual(ask().choices[0].message.content, setting.SAID)
                text = "".join(chunk.choices[0].delta.content or "" for chunk in ask(stream=True))
                self.assertEqual(text, setting.SAID)
                message = ask(tools=TOOLS).choices[0].message
                call = message.tool_calls[0]
                self.assertEqual(call.function.name, "get_weather")
                result = {"role": "tool", "tool_call_id": call.id, "name": "get_weather", "content": "sunny"}
                answer = ask([*HELLO, message.model_dump(), result], tools=TOOLS)
                self.assertEqual(answer.choices[0].message.content, setting.ANSWER)

    def test_responses(self):
        reply = litellm.responses(model="openai/scripted", api_base=self.server.url + "/v1", api_key="key", input="Hi")
        self.assertEqual(reply.output[0].content[0].text, setting.SAID)

    def test_a_long_prompt_is_known_as_such(self):
        for model, base in list(self.providers())[:2]:
            with self.subTest(model=model), self.assertRaises(litellm.ContextWindowExceededError):
                litellm.completion(model=model, api_base=base, api_key="key", max_tokens=9, num_retries=0,
                                   messages=[{"role": "user", "content": "x" * 9000}])


if __name__ == "__main__":
    unittest.main()
