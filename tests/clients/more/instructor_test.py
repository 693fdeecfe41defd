"""instructor's response models: by a forced call, and by the schema of the answer, over both APIs.

usage: instructor_test.py REPRISE
"""
import typing
import unittest

import anthropic
import instructor
import openai
import pydantic
import setting
from instructor.core.exceptions import IncompleteOutputException, InstructorRetryException


class Place(pydantic.BaseModel):
    """A place."""
    model_config = pydantic.ConfigDict(extra="forbid")
    city: typing.Literal["Oslo", "Rome", "Paris"]
    height: int = pydantic.Field(ge=-10, le=3000)


class Instructor(setting.ServerTest):
    def places(self, client, **options):
        """Counts the places of 16 replies; a model that thinks, and never ends, makes none."""
        made = 0
        for seed in range(16):
            seeded = {"seed": seed} if "gpt" in options["model"] else {}
            try:
                place = client.create(response_model=Place, messages=[{"role": "user", "content": "Hi"}], max_retries=0,
                                      max_tokens=200, **seeded, **options)
            except (IncompleteOutputException, InstructorRetryException) as error:
                self.assertRegex(str(error), "(?i)max_tokens|length|incomplete")
                continue
            self.assertIsInstance(place, Place)
            made += 1
        return made

    def test_openai(self):
        plain = openai.OpenAI(base_url=self.server.url + "/v1", api_key="key", max_retries=0)
        for mode in (instructor.Mode.TOOLS, instructor.Mode.TOOLS_STRICT, instructor.Mode.JSON_SCHEMA):
            with self.subTest(mode=mode.name):
                self.assertGreater(self.places(instructor.from_openai(plain, mode=mode), model="gpt-typed", temperature=2), 1)

    def test_anthropic(self):
        plain = anthropic.Anthropic(base_url=self.server.url, api_key="key", max_retries=0)
        client = instructor.from_anthropic(plain, mode=instructor.Mode.ANTHROPIC_TOOLS)
        self.assertGreater(self.places(client, model="claude-typed"), 1)


if __name__ == "__main__":
    unittest.main()
