"""instructor gets Pydantic models: by the schema of the answer, and by calls.

usage: instructor_test.py REPRISE
"""
import typing
import unittest

import instructor
import openai
import pydantic
import setting


class Place(pydantic.BaseModel):
    city: typing.Literal["Oslo", "Rome", "Paris"]
    height: int = pydantic.Field(ge=-10, le=3000)


class Instructor(setting.ServerTest):
    def test_models_of_pydantic(self):
        client = openai.OpenAI(base_url=self.server.url + "/v1", api_key="key", max_retries=0)
        for mode in (instructor.Mode.JSON_SCHEMA, instructor.Mode.TOOLS, instructor.Mode.TOOLS_STRICT):
            with self.subTest(mode=mode):
                typed = instructor.from_openai(client, mode=mode)
                made = 0
                for seed in range(16):
                    try:
                        place = typed.chat.completions.create(
                            model="scripted", messages=[{"role": "user", "content": "Hi"}], response_model=Place,
                            temperature=2, seed=seed, max_tokens=200, max_retries=0)
                    except instructor.exceptions.IncompleteOutputException:  # it thinks, and never ends
                        continue
                    except instructor.exceptions.InstructorRetryException as error:
                        self.assertIn("max_tokens", str(error))
                        continue
                    self.assertIsInstance(place, Place)
                    made += 1
                self.assertGreater(made, 1)


if __name__ == "__main__":
    unittest.main()
