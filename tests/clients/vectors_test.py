"""OpenAI's and Ollama's clients ask for vectors of texts, unchanged.

usage: vectors_test.py REPRISE
"""
import array
import json
import math
import pathlib
import sys
import tempfile
import unittest

import ollama
import openai

import harness

PROGRAM = sys.argv.pop(1)
TEXTS = ["Hello there", "a little parrot", "Hello there", "x" * 300]


def make_embedder(folder, mode):
    """The scripted model as sentence-transformers would save it."""
    harness.make_scripted_model(folder)
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    pathlib.Path(folder, "modules.json").write_text(json.dumps(
        [{"idx": i, "name": str(i), "path": path, "type": "sentence_transformers.models." + kind}
         for i, (path, kind) in enumerate(kinds)]))
    pathlib.Path(folder, "1_Pooling").mkdir()
    pathlib.Path(folder, "1_Pooling/config.json").write_text(json.dumps({"pooling_mode_" + mode: True}))


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


class Vectors(unittest.TestCase):
    mode = "mean_tokens"

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        path = pathlib.Path(cls.folder.name) / "embedder"
        make_embedder(path, cls.mode)
        cls.server = harness.Server(PROGRAM, "--context", "256", model=path)
        cls.openai = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="key", max_retries=0)
        cls.ollama = ollama.Client(host=cls.server.url)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()
        assert cls.server.stop() == 0

    def embed(self, texts, **more):
        reply = self.openai.embeddings.create(model="embedder", input=texts, **more)
        self.assertEqual([item.index for item in reply.data], list(range(len(reply.data))))
        return [item.embedding for item in reply.data]

    def test_unit_length_and_the_same_alone_and_among_others(self):
        together = self.embed(TEXTS[:3])
        for vector in together:
            self.assertAlmostEqual(dot(vector, vector), 1, places=5)
        self.assertEqual(together[0], together[2])
        self.assertLess(dot(together[0], together[1]), 0.999)
        self.assertEqual(self.embed("Hello there"), together[:1])
        self.assertEqual(self.embed(["Hello there"] * 200), together[:1] * 200)

    def test_both_encodings_say_the_same(self):
        # The client asks for base64 unless it is told otherwise.
        for a, b in zip(self.embed(TEXTS[:2], encoding_format="float"), self.embed(TEXTS[:2])):
            self.assertEqual(list(array.array("f", a)), b)

    def test_fewer_dimensions_are_the_first_ones(self):
        whole, short = self.embed("Hi")[0], self.embed("Hi", dimensions=8)[0]
        length = math.sqrt(dot(whole[:8], whole[:8]))
        self.assertEqual(len(short), 8)
        for a, b in zip(short, whole):
            self.assertAlmostEqual(a, b / length, places=5)

    def test_usage_and_limits(self):
        reply = self.openai.embeddings.create(model="embedder", input=TEXTS[:2])
        self.assertEqual(reply.usage.prompt_tokens, reply.usage.total_tokens)
        self.assertGreater(reply.usage.prompt_tokens, 2)
        with self.assertRaises(openai.BadRequestError) as refused:
            self.embed(TEXTS)
        self.assertIn("maximum context length", str(refused.exception))

    def test_ollama(self):
        want = self.embed(TEXTS[:2], encoding_format="float")
        reply = self.ollama.embed(model="embedder", input=TEXTS[:2])
        for got, wanted in zip(reply.embeddings, want):
            self.assertEqual(list(got), wanted)
        self.assertEqual(list(self.ollama.embeddings(model="embedder", prompt=TEXTS[0]).embedding), want[0])
        self.assertEqual(len(self.ollama.embed(model="embedder", input=TEXTS).embeddings), 4)  # the last one is cut
        self.assertIn("embedding", self.ollama.show("embedder").capabilities)

    def test_chat_goes_on_beside_it(self):
        reply = self.openai.chat.completions.create(model="embedder", messages=[{"role": "user", "content": "Hi"}])
        self.assertEqual(reply.choices[0].message.content, "Hello there, little parrot friend")


class LastToken(Vectors):
    mode = "lasttoken"


class Refused(unittest.TestCase):
    def test_a_model_that_writes_is_refused_by_name_unless_told(self):
        server = harness.Server(PROGRAM)
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="key", max_retries=0)
        with self.assertRaises(openai.APIStatusError) as refused:
            client.embeddings.create(model=server.model, input="x")
        self.assertEqual(refused.exception.status_code, 501)
        self.assertIn("--pooling", str(refused.exception))
        self.assertEqual(server.stop(), 0)
        server = harness.Server(PROGRAM, "--pooling", "last")
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="key", max_retries=0)
        self.assertEqual(len(client.embeddings.create(model=server.model, input="x").data), 1)
        self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main()
