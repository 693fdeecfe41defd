"""The vendors' own clients show pictures: OpenAI's (chat and responses), Anthropic's and Ollama's.

usage: sight_test.py REPRISE

The model is a tiny random one with a tower: what it says means nothing, but it is the same for the same picture, whoever shows it.
"""
import base64
import sys
import unittest

import anthropic
import ollama
import openai

import harness

PROGRAM = sys.argv.pop(1)
MODEL = harness.ROOT / "tests/vision/qwen3_vl"
PICTURES = [(MODEL / f"picture_{i}.png").read_bytes() for i in range(2)]
ENCODED = [base64.b64encode(picture).decode() for picture in PICTURES]
URLS = ["data:image/png;base64," + picture for picture in ENCODED]
WORDS = "What is this? " * 8
TOKENS = [10, 8]  # of each picture


class Sight(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server(PROGRAM, "--device", "cpu", model=MODEL)
        cls.openai = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="key", max_retries=0)
        cls.anthropic = anthropic.Anthropic(base_url=cls.server.url, api_key="key", max_retries=0)
        cls.ollama = ollama.Client(host=cls.server.url)
        cls.name = cls.openai.models.list().data[0].id

    @classmethod
    def tearDownClass(cls):
        cls.openai.close()
        cls.anthropic.close()
        assert cls.server.stop() == 0

    def chat(self, pictures, **more):
        parts = [{"type": "image_url", "image_url": {"url": URLS[i]}} for i in pictures]
        return self.openai.chat.completions.create(
            model=self.name, max_tokens=8, temperature=0,
            messages=[{"role": "user", "content": [*parts, {"type": "text", "text": WORDS}]}], **more)

    def message(self, content, **more):
        return dict(model=self.name, max_tokens=8, extra_body={"temperature": 0},
                    messages=[{"role": "user", "content": content}], **more)

    @staticmethod
    def block(i):
        return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ENCODED[i]}}

    def test_chat_counts_and_reuses(self):
        blind, one = self.chat([]).usage, self.chat([0]).usage
        self.assertEqual(one.prompt_tokens - blind.prompt_tokens, TOKENS[0] + 2)  # and one before it and behind it
        again = self.chat([0])
        self.assertGreaterEqual(again.usage.prompt_tokens_details.cached_tokens, again.usage.prompt_tokens - 1)

    def test_chat_streams(self):
        whole = self.chat([0, 1]).choices[0].message.content
        self.assertNotEqual(whole, self.chat([1, 0]).choices[0].message.content)
        parts = [chunk.choices[0].delta.content or "" for chunk in self.chat([0, 1], stream=True) if chunk.choices]
        self.assertEqual("".join(parts), whole)

    def test_responses(self):
        content = [{"type": "input_image", "detail": "auto", "image_url": URLS[0]}, {"type": "input_text", "text": WORDS}]
        first = self.openai.responses.create(model=self.name, max_output_tokens=8, temperature=0,
                                             input=[{"role": "user", "content": content}])
        self.assertEqual(first.output_text, self.chat([0]).choices[0].message.content)
        second = self.openai.responses.create(model=self.name, max_output_tokens=8, temperature=0, input=WORDS,
                                              previous_response_id=first.id)
        self.assertGreaterEqual(second.usage.input_tokens_details.cached_tokens, first.usage.input_tokens)
        with self.openai.responses.stream(model=self.name, max_output_tokens=8, temperature=0,
                                          input=[{"role": "user", "content": content}]) as stream:
            said = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        self.assertEqual(said, first.output_text)

    def test_messages(self):
        content = [self.block(0), {"type": "text", "text": WORDS}]
        said = self.anthropic.messages.create(**self.message(content))
        self.assertEqual(said.content[0].text, self.chat([0]).choices[0].message.content)
        with self.anthropic.messages.stream(**self.message(content)) as stream:
            self.assertEqual(stream.get_final_text(), said.content[0].text)
        count = self.anthropic.messages.count_tokens(model=self.name, messages=[{"role": "user", "content": content}])
        usage = said.usage
        self.assertEqual(count.input_tokens, usage.input_tokens + (usage.cache_read_input_tokens or 0) +
                         (usage.cache_creation_input_tokens or 0))

    def test_ollama(self):
        said = self.ollama.chat(model=self.name, options={"temperature": 0, "num_predict": 8},
                                messages=[{"role": "user", "content": WORDS, "images": [PICTURES[0]]}])
        self.assertEqual(said.message.content, self.chat([0]).choices[0].message.content)
        self.assertIn("vision", self.ollama.show(self.name).capabilities)

    def test_what_is_no_picture(self):
        with self.assertRaises(openai.BadRequestError) as refused:
            self.openai.chat.completions.create(model=self.name, messages=[{"role": "user", "content": [
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}])
        self.assertIn("no picture", str(refused.exception))
        with self.assertRaises(anthropic.BadRequestError):
            self.anthropic.messages.create(**self.message([{"type": "image", "source": {
                "type": "base64", "media_type": "image/png", "data": "AAAA"}}]))


if __name__ == "__main__":
    unittest.main()
