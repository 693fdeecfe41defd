"""LangChain's with_structured_output gets what it asks for, by the schema of the answer and by calls.

usage: langchain_typed_test.py REPRISE
"""
import typing
import unittest

import pydantic
import setting
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI


class Place(pydantic.BaseModel):
    """A place."""
    city: typing.Literal["Oslo", "Rome", "Paris"]
    height: int = pydantic.Field(ge=-10, le=3000)


class LangChainTyped(setting.ServerTest):
    def ask(self, model, **how):
        made = 0
        typed = model.with_structured_output(Place, include_raw=True, **how)
        for _ in range(16):
            try:
                answer = typed.invoke("Hi")
            except Exception as error:  # it thinks, and never ends
                self.assertIn("length", str(error))
                continue
            if answer["parsed"] is None:
                reason = answer["raw"].response_metadata
                self.assertIn("length" if "finish_reason" in reason else "max_tokens", str(reason))
                continue
            self.assertIsInstance(answer["parsed"], Place)
            made += 1
        self.assertGreater(made, 1)

    def test_openai(self):
        model = ChatOpenAI(model="scripted", base_url=self.server.url + "/v1", api_key="key", max_retries=0, temperature=2,
                           max_tokens=200)
        for method in ("json_schema", "function_calling"):
            with self.subTest(method=method):
                self.ask(model, method=method)

    def test_anthropic(self):
        model = ChatAnthropic(model_name="scripted", base_url=self.server.url, api_key="key", max_retries=0, temperature=1,
                              max_tokens=200)
        self.ask(model)


if __name__ == "__main__":
    unittest.main()
