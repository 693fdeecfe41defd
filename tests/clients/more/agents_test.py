"""The OpenAI Agents SDK runs an agent with a tool, over /v1/responses and over /v1/chat/completions.

usage: agents_test.py REPRISE
"""
import asyncio
import unittest

import agents
import setting


@agents.function_tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return "sunny in " + city


class Agents(setting.ServerTest):
    def agent(self, kind, **more):
        client = agents.AsyncOpenAI(base_url=self.server.url + "/v1", api_key="key", max_retries=0)
        return agents.Agent(name="reporter", instructions="Be brief.", tools=[get_weather],
                            model=kind(model=self.server.model, openai_client=client), **more)

    def test_an_agent_calls_its_tool(self):
        agents.set_tracing_disabled(True)
        for kind in (agents.OpenAIResponsesModel, agents.OpenAIChatCompletionsModel):
            with self.subTest(kind=kind.__name__):
                result = agents.Runner.run_sync(self.agent(kind), "Hi")
                self.assertEqual(result.final_output, setting.ANSWER)
                outputs = [item.output for item in result.new_items if item.type == "tool_call_output_item"]
                self.assertEqual(outputs, ["sunny in Paris"])

    def test_streamed(self):
        async def run():
            result = agents.Runner.run_streamed(self.agent(agents.OpenAIResponsesModel), "Hi")
            names = [event.data.type async for event in result.stream_events() if event.type == "raw_response_event"]
            return result.final_output, names

        final, names = asyncio.run(run())
        self.assertEqual(final, setting.ANSWER)
        self.assertEqual(names.count("response.completed"), 2)
        self.assertIn("response.function_call_arguments.done", names)

    def test_a_second_question_goes_on_from_the_first(self):
        agent = self.agent(agents.OpenAIResponsesModel)
        first = agents.Runner.run_sync(agent, "Hi", auto_previous_response_id=True)
        second = agents.Runner.run_sync(agent, "Again", previous_response_id=first.last_response_id)
        self.assertEqual(second.final_output, setting.ANSWER)
        usage = second.raw_responses[-1].usage
        self.assertGreater(usage.input_tokens_details.cached_tokens, usage.input_tokens // 2)


if __name__ == "__main__":
    unittest.main()
