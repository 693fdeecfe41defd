"""Adapters through the server: chosen by name, loaded and unloaded beside streams, as vLLM's and llama.cpp's clients do it.

usage: lora_test.py REPRISE
"""
import json
import pathlib
import random
import struct
import sys
import tempfile
import threading
import unittest
import urllib.error
import urllib.request

import harness

PROGRAM = sys.argv.pop(1)
MODULES = {"mlp.up_proj": (1024, 384), "mlp.down_proj": (384, 1024)}  # of the bundled model
LAYERS = 8
PROMPT = "Once upon a time there was a little bird who"


def write_adapter(folder, seed, size=2.0, **config):
    """A PEFT adapter of the bundled model, with random values."""
    folder = pathlib.Path(folder)
    folder.mkdir()
    drawn, header, data = random.Random(seed), {}, b""
    for layer in range(LAYERS):
        for module, (rows, cols) in MODULES.items():
            name = f"base_model.model.model.layers.{layer}.{module}.lora_"
            for part, shape, scale in (("A", (4, cols), cols ** -0.5), ("B", (rows, 4), size)):
                values = [drawn.gauss(0, scale) for _ in range(shape[0] * shape[1])]
                header[f"{name}{part}.weight"] = {"dtype": "F32", "shape": shape,
                                                  "data_offsets": [len(data), len(data) + 4 * len(values)]}
                data += struct.pack(f"<{len(values)}f", *values)
    text = json.dumps(header).encode()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "r": 4, "lora_alpha": 4, "bias": "none", "target_modules": ["up_proj", "down_proj"], **config}))
    return folder


class Lora(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        at = pathlib.Path(cls.folder.name)
        cls.one = write_adapter(at / "one", 1)
        cls.two = write_adapter(at / "two", 2)
        cls.dora = write_adapter(at / "dora", 3, use_dora=True)
        cls.server = harness.Server(PROGRAM, "--lora", f"first={cls.one}", "--lora", f"half={cls.one}:0.5", "--context", "1024",
                                    "--no-idle-work", model=harness.TINY)
        cls.base = harness.model_id(cls.server)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        cls.folder.cleanup()

    def call(self, path, body=None, status=200):
        request = urllib.request.Request(f"http://127.0.0.1:{self.server.port}{path}", None if body is None else json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request) as answer:
                code, text = answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            code, text = error.code, error.read().decode()
        self.assertEqual(code, status, text)
        return text

    def ask(self, model, prompt=PROMPT, status=200, **more):
        text = self.call("/v1/completions", {"model": model, "prompt": prompt, "max_tokens": 24, "temperature": 0, **more}, status)
        return json.loads(text)

    def say(self, model, **more):
        return self.ask(model, **more)["choices"][0]["text"]

    def ids(self):
        return [one["id"] for one in json.loads(self.call("/v1/models"))["data"]]

    def test_the_model_of_a_request_chooses(self):
        base, first, half = (self.say(name) for name in (self.base, "first", "half"))
        self.assertEqual(len({base, first, half}), 3, "each is another model")
        self.assertEqual([self.say(name) for name in (self.base, "first", "half")], [base, first, half])
        self.assertEqual(self.ask("first")["model"], "first")
        self.assertLessEqual({"first", "half", self.base}, set(self.ids()))
        chat = json.loads(self.call("/v1/chat/completions", {"model": "first", "max_tokens": 4, "messages": [{"role": "user", "content": "hi"}]}))
        self.assertEqual(chat["model"], "first")
        self.ask("nobody", status=404)

    def test_nothing_is_reused_between_adapters(self):
        prompt = "The old house on the hill had a red door. " * 12
        used = lambda model: self.ask(model, prompt)["usage"].get("prompt_tokens_details", {}).get("cached_tokens", 0)
        for model in (self.base, "first", "half"):
            self.assertEqual(used(model), 0, model)
        for model in (self.base, "first", "half"):
            self.assertGreater(used(model), 0, model)

    def test_load_and_unload_as_vllm(self):
        load = lambda status=200, **body: self.call("/v1/load_lora_adapter", body, status)
        plain = self.say(self.base)
        self.assertIn("Success", load(lora_name="later", lora_path=str(self.two)))
        self.assertIn("later", self.ids())
        later = self.say("later")
        self.assertNotEqual(later, plain)
        self.assertIn("already", load(400, lora_name="later", lora_path=str(self.one)))
        self.assertIn("must be given", load(400, lora_name="x"))
        self.assertIn("use_dora", load(400, lora_name="x", lora_path=str(self.dora)))
        load(404, lora_name="x", lora_path="/nowhere")
        self.assertIn("name of the model", load(400, lora_name=self.base, lora_path=str(self.one)))
        # Other content under the name: nothing of the old one is used, and the answer is that of the new one.
        load(lora_name="later", lora_path=str(self.one), load_inplace=True)
        self.assertEqual(self.say("later"), self.say("first"))
        self.assertIn("Success", self.call("/v1/unload_lora_adapter", {"lora_name": "later"}))
        self.ask("later", status=404)
        self.call("/v1/unload_lora_adapter", {"lora_name": "later"}, 404)
        load(lora_name="later", lora_path=str(self.two))
        self.assertEqual(self.say("later"), later)
        self.call("/v1/unload_lora_adapter", {"lora_name": "later"})
        self.assertEqual(self.say(self.base), plain)

    def test_scales_as_llama_cpp(self):
        listed = json.loads(self.call("/lora-adapters"))
        self.assertEqual([(one["name"], one["scale"]) for one in listed[:2]], [("first", 0), ("half", 0)])
        plain, first, half = (self.say(name) for name in (self.base, "first", "half"))
        wish = lambda *scales: {"lora": [{"id": i, "scale": s} for i, s in enumerate(scales)]}
        complete = lambda **more: json.loads(self.call("/completion", {
            "prompt": "Once upon a time there was a little bird who", "n_predict": 24, "temperature": 0, **more}))["content"]
        self.assertEqual(complete(), plain)
        self.assertEqual(complete(**wish(1, 0)), first)
        self.assertEqual(complete(**wish(0.5, 0)), half)
        self.assertEqual(complete(**wish(0, 0)), plain)
        self.call("/completion", {"prompt": "x", **wish(1, 1)}, 400)
        self.call("/completion", {"prompt": "x", "lora": [{"id": 99, "scale": 1}]}, 404)
        self.call("/lora-adapters", [{"id": 0, "scale": 0.5}])
        self.assertEqual(complete(), half)
        self.assertEqual(self.say(self.base), half)
        self.call("/lora-adapters", [])
        self.assertEqual(complete(), plain)

    def test_streams_go_on_while_adapters_come_and_go(self):
        stop, failures = threading.Event(), []

        def load():
            count = 0
            while not stop.is_set():
                name = f"busy{count % 3}"
                try:
                    self.call("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(self.two)})
                    self.call("/v1/unload_lora_adapter", {"lora_name": name})
                except AssertionError as error:
                    failures.append(error)
                count += 1
        expected = self.say("first", max_tokens=200)
        thread = threading.Thread(target=load)
        thread.start()
        try:
            for _ in range(2):
                self.assertEqual(self.say("first", max_tokens=200), expected)
        finally:
            stop.set()
            thread.join()
        self.assertEqual(failures, [])

    def test_unloading_waits_for_those_that_have_it(self):
        self.call("/v1/load_lora_adapter", {"lora_name": "leaving", "lora_path": str(self.two)})
        expected = self.say("leaving", max_tokens=600, ignore_eos=True)
        body = {"model": "leaving", "prompt": PROMPT, "max_tokens": 600, "temperature": 0, "ignore_eos": True, "stream": True}
        request = urllib.request.Request(f"http://127.0.0.1:{self.server.port}/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        said = []
        with urllib.request.urlopen(request) as stream:
            for line in stream:
                if not line.startswith(b"data: {"):
                    continue
                said += [choice["text"] for choice in json.loads(line[6:])["choices"]]
                if len(said) == 1:  # it has the adapter, and is far from its end
                    self.call("/v1/unload_lora_adapter", {"lora_name": "leaving"})
                    self.ask("leaving", status=404)
        self.assertEqual("".join(said), expected)


class TwoModels(unittest.TestCase):
    call, ask, say, ids = Lora.call, Lora.ask, Lora.say, Lora.ids

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        at = pathlib.Path(self.folder.name)
        self.one, self.two = write_adapter(at / "one", 1), write_adapter(at / "two", 2)
        config = at / "models.toml"
        config.write_text(f'[models.a]\nmodel = "{harness.TINY}"\nlora = "early={self.one}"\n'
                          f'[models.b]\nmodel = "{harness.TINY}"\nkv = "f32"\n')
        self.server = harness.Server(PROGRAM, "--config", str(config), "--context", "512", "--no-idle-work", model="")

    def tearDown(self):
        self.server.stop()
        self.folder.cleanup()

    def test_adapters_belong_to_their_model(self):
        self.assertNotEqual(self.say("early"), self.say("a"))
        self.call("/v1/load_lora_adapter", {"model": "b", "lora_name": "late", "lora_path": str(self.two)})
        self.assertEqual(self.ask("late")["model"], "late")
        self.assertNotEqual(self.say("late"), self.say("b"))
        self.assertLessEqual({"a", "b", "early", "late"}, set(self.ids()))
        self.call("/v1/unload_lora_adapter", {"model": "a", "lora_name": "late"}, 404)
        self.call("/v1/unload_lora_adapter", {"model": "b", "lora_name": "late"})
        self.ask("late", status=404)


class Refusals(unittest.TestCase):
    def test_what_cannot_be_honoured_ends_the_start(self):
        import subprocess
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            dora = write_adapter(folder / "dora", 1, use_dora=True)
            for lora, word in ((f"x={dora}", "use_dora"), ("x=/nowhere", "/nowhere"), (str(dora), "give it a name")):
                ran = subprocess.run([PROGRAM, "serve", "--model", harness.TINY, "--port", "0", "--lora", lora], capture_output=True, text=True)
                self.assertNotEqual(ran.returncode, 0)
                self.assertIn(word, ran.stderr)


if __name__ == "__main__":
    unittest.main()
