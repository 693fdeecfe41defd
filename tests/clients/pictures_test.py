"""Pictures as a client sends them: what is reused of them, how they are counted, and what is refused by name.

usage: pictures_test.py REPRISE

The model is a tiny random one with a tower (tests/vision/qwen3_5): its words mean nothing, its state does.
"""
import base64
import http.client
import json
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import urllib.request
import zlib

import harness

PROGRAM = sys.argv.pop(1)
MODEL = harness.ROOT / "tests/vision/qwen3_5"
CORPUS = harness.ROOT / "tests/corpus/picture_fuzz"


def png(width, height, value):
    """A grey picture; `value` is that of its last pixel."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = [b"\0" + bytes((x * 5 + y * 3) % 256 for x in range(width)) for y in range(height)]
    rows[-1] = rows[-1][:-1] + bytes([value])
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(b"".join(rows))) + chunk(b"IEND", b""))


A, B = png(96, 64, 1), png(64, 96, 2)


def data_url(file, kind="png"):
    return f"data:image/{kind};base64," + base64.b64encode(file).decode()


def image(file, kind="png"):
    return {"type": "image_url", "image_url": {"url": data_url(file, kind)}}


def input_image(file):
    return {"type": "input_image", "detail": "auto", "image_url": data_url(file)}


def text(words):
    return {"type": "text", "text": words}


class Pictures(unittest.TestCase):
    model, options = MODEL, ()

    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server(PROGRAM, "--device", "cpu", "--kv", "f32", *cls.options, model=cls.model)
        cls.salt = 0

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def setUp(self):
        type(self).salt += 1  # tests do not see each other

    def post(self, path, body, status=200):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        said = json.loads(answer.read())
        connection.close()
        self.assertEqual(answer.status, status, said)
        return said

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.server.port}{path}", timeout=60) as answer:
            return json.load(answer)

    def ask(self, messages, status=200, **more):
        body = {"messages": messages, "max_tokens": 6, "temperature": 0, "cache_salt": str(self.salt), **more}
        return self.post("/v1/chat/completions", body, status)

    @staticmethod
    def cached(answer):
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    def refusal(self, content, status=400):
        return self.ask([{"role": "user", "content": content}], status=status)["error"]["message"]

    def check_terminal(self):
        """`reprise run --image` says what the server says."""
        with tempfile.NamedTemporaryFile(suffix=".png") as file:
            file.write(A)
            file.flush()
            for images in ([], [file.name], [file.name, file.name]):
                options = [option for name in images for option in ("--image", name)]
                done = subprocess.run([PROGRAM, "run", "-m", self.model, "--device", "cpu", "--kv", "f32", "-t", "0", "-n", "8",
                                       "-p", "What is this?", *options], capture_output=True, timeout=120)
                self.assertEqual(done.returncode, 0, done.stderr)
                content = [image(A)] * len(images) + [text("What is this?")]
                reply = self.ask([{"role": "user", "content": content}], max_tokens=8)["choices"][0]["message"]["content"]
                self.assertEqual(done.stdout.decode(errors="replace").strip(), reply.strip(), images)


class Seeing(Pictures):
    def test_the_second_turn_computes_neither_picture(self):
        talk = [{"role": "user", "content": [text("Look: "), image(A), text(" and "), image(B), text("?")]}]
        first = self.ask(talk)
        self.assertEqual(self.cached(first), 0)
        talk += [first["choices"][0]["message"], {"role": "user", "content": "And now?"}]
        talk[1] = {"role": "assistant", "content": talk[1]["content"]}
        second = self.ask(talk)
        self.assertGreaterEqual(self.cached(second), first["usage"]["prompt_tokens"] - 16)
        cold = self.ask(talk, cache_prefix=False)
        self.assertEqual(self.cached(cold), 0)
        self.assertEqual(cold["choices"][0]["message"]["content"], second["choices"][0]["message"]["content"])

    def test_tokens_are_counted(self):
        without = self.ask([{"role": "user", "content": [text("x")]}])["usage"]["prompt_tokens"]
        # 48 x 32 pixels of 16 x 16 a token, one token before and one behind.
        with_one = self.ask([{"role": "user", "content": [image(png(48, 32, 3)), text("x")]}])
        self.assertEqual(with_one["usage"]["prompt_tokens"], without + 6 + 2)
        tokens = self.post("/tokenize", {"messages": [{"role": "user", "content": [image(png(48, 32, 3)), text("x")]}]})
        self.assertEqual(len(tokens["tokens"]), without + 6 + 2)
        self.assertEqual(tokens["tokens"].count(258), 6)

    def test_swapped_and_changed_pictures_are_others(self):
        def show(first, second):
            return self.ask([{"role": "user", "content": [image(first), image(second), text("?" * 40)]}])
        whole = show(A, B)
        count = whole["usage"]["prompt_tokens"]
        swapped = show(B, A)
        self.assertLess(self.cached(swapped), 64)
        self.assertGreater(self.cached(show(A, B)), count - 16)
        changed = show(A, png(64, 96, 255))  # by enough to outlive its reduction to what the tower sees
        self.assertLess(self.cached(changed), count - 40)

    def test_equal_pixels_from_another_file_hit(self):
        def show(file, kind):
            return self.ask([{"role": "user", "content": [image(file, kind), text("?" * 40)]}])
        first = show((CORPUS / "rgb.png").read_bytes(), "png")
        again = show((CORPUS / "lossless.webp").read_bytes(), "webp")
        self.assertGreater(self.cached(again), first["usage"]["prompt_tokens"] - 16)
        self.assertEqual(first["choices"][0]["message"]["content"], again["choices"][0]["message"]["content"])

    def test_all_apis_share(self):
        self.ask([{"role": "user", "content": [image(A), text("What?" * 20)]}], cache_salt=None)
        anthropic = self.post("/v1/messages", {"model": "qwen3_5", "max_tokens": 4, "messages": [{"role": "user", "content": [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png",
                                         "data": base64.b64encode(A).decode()}},
            {"type": "text", "text": "What?" * 20}]}]})
        self.assertGreater(anthropic["usage"]["cache_read_input_tokens"], 90)
        ollama = self.post("/api/chat", {"model": "qwen3_5", "stream": False, "options": {"num_predict": 4}, "messages": [
            {"role": "user", "content": "What?" * 20, "images": [base64.b64encode(A).decode()]}]})
        self.assertIn("message", ollama)
        responses = self.post("/v1/responses", {"max_output_tokens": 4, "input": [{"role": "user", "content": [
            input_image(A), {"type": "input_text", "text": "What?" * 20}]}]})
        self.assertGreater(responses["usage"]["input_tokens_details"]["cached_tokens"], 90)

    def respond(self, items, status=200, **more):
        body = {"input": items, "max_output_tokens": 6, "temperature": 0, "cache_salt": str(self.salt), **more}
        return self.post("/v1/responses", body, status)

    def test_responses_see_messages_and_results_of_tools(self):
        talk = [{"role": "user", "content": [{"type": "input_text", "text": "Look: "}, input_image(A)]},
                {"type": "function_call", "call_id": "c", "name": "camera", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": [input_image(B)]}]
        first = self.respond(talk)
        count = first["usage"]["input_tokens"]
        self.assertEqual(first["usage"]["input_tokens_details"]["cached_tokens"], 0)
        self.assertEqual(self.post("/v1/responses/input_tokens", {"input": talk})["input_tokens"], count)
        # The conversation is kept with its pictures; they are neither sent nor computed again.
        more = [{"role": "user", "content": "And now?"}]
        second = self.respond(more, previous_response_id=first["id"])
        self.assertGreaterEqual(second["usage"]["input_tokens_details"]["cached_tokens"], count - 16)
        whole = self.respond([*talk, *first["output"], *more], cache_prefix=False)
        self.assertEqual(whole["usage"]["input_tokens_details"]["cached_tokens"], 0)
        self.assertEqual(whole["usage"]["input_tokens"], second["usage"]["input_tokens"])
        self.assertEqual(whole["output"][-1]["content"], second["output"][-1]["content"])
        # The input is listed as it was sent, the latest first.
        items = self.get(f"/v1/responses/{first['id']}/input_items")["data"]
        self.assertEqual(items[0]["output"], talk[2]["output"])
        self.assertEqual(items[2]["content"], talk[0]["content"])

    def test_responses_refuse_other_files_by_name(self):
        def refusal(part):
            return self.respond([{"role": "user", "content": [part]}], status=400)["error"]["message"]
        self.assertIn("'input_file' is not supported", refusal({"type": "input_file", "file_data": "eA=="}))
        self.assertIn("'input_audio' is not supported", refusal({"type": "input_audio"}))
        self.assertIn("file_id", refusal({"type": "input_image", "file_id": "file-1"}))
        self.assertIn("fetches no pictures", refusal({"type": "input_image", "image_url": "https://a.example/b.png"}))
        self.assertIn("no picture", refusal(input_image(b"hello")))

    def test_the_terminal_sees_the_same(self):
        self.check_terminal()

    def test_a_gif_is_seen(self):
        answer = self.ask([{"role": "user", "content": [image((CORPUS / "moving.gif").read_bytes(), "gif")]}])
        self.assertGreater(answer["usage"]["prompt_tokens"], 4)

    def test_what_cannot_be_seen_is_said(self):
        self.assertIn("fetches no pictures", self.refusal([{"type": "image_url", "image_url": {
            "url": "http://127.0.0.1/a.png"}}]))
        self.assertIn("base64", self.refusal([{"type": "image_url", "image_url": {"url": "data:image/png,abc"}}]))
        self.assertIn("not valid base64", self.refusal([{"type": "image_url", "image_url": {
            "url": "data:image/png;base64,abc!"}}]))
        self.assertIn("no picture", self.refusal([image(b"hello")]))
        self.assertIn("cut off", self.refusal([image((CORPUS / "cut.png").read_bytes())]))
        self.assertIn("32000 x 32000", self.refusal([image((CORPUS / "bomb.png").read_bytes())]))
        self.assertIn("200 times", self.refusal([image(png(2100, 8, 1))]))
        self.assertIn("messages[0].content[0]", self.refusal([image(b"hello")]))
        self.assertIn("'video_url' is not supported", self.refusal([{"type": "video_url"}]))
        self.assertIn("'input_audio' is not supported", self.refusal([{"type": "input_audio"}]))

    # A client cannot write the token of a picture.
    def test_text_is_no_picture(self):
        answer = self.ask([{"role": "user", "content": [text("<|image_pad|>"), image(png(48, 32, 3))]}])
        self.assertGreater(answer["usage"]["prompt_tokens"], 13 + 6)


# A GGUF file and its tower's, which lies beside it (llama.cpp's mmproj): the same words as from the folder.
class Gguf(Pictures):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        folder = pathlib.Path(cls.folder.name)
        cls.model = folder / "seeing.gguf"
        # GGUF has a name for Qwen's way to split text, and wants a merge.
        cls.source = source = folder / "source"
        shutil.copytree(MODEL, source)
        words = json.loads((source / "tokenizer.json").read_text())
        named = json.loads((harness.ROOT / "tests/data/tokenizers/qwen2.json").read_text())
        words |= {part: named[part] for part in ("normalizer", "pre_tokenizer")}
        words["model"]["vocab"]["\u0120t"] = 262
        words["model"]["merges"] = ["\u0120 t"]
        (source / "tokenizer.json").write_text(json.dumps(words))
        subprocess.run([PROGRAM, "convert", source, "--type", "bf16", "-o", cls.model], check=True, capture_output=True)
        shutil.copy(MODEL / "mmproj.gguf", folder / "mmproj-BF16.gguf")
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()

    def test_it_sees_as_the_folder_does(self):
        talk = [{"role": "user", "content": [text("Look: "), image(A), text(" and "), image(B), text("?")]}]
        mine = self.ask(talk, max_tokens=12)
        self.assertEqual(self.cached(mine), 0)
        again = self.ask(talk, max_tokens=12)
        self.assertGreaterEqual(self.cached(again), mine["usage"]["prompt_tokens"] - 16)
        server = harness.Server(PROGRAM, "--device", "cpu", "--kv", "f32", model=self.source)
        self.addCleanup(server.stop)
        (own, Gguf.server) = (Gguf.server, server)
        self.addCleanup(setattr, Gguf, "server", own)
        folder = self.ask(talk, max_tokens=12)
        self.assertEqual(folder["usage"]["prompt_tokens"], mine["usage"]["prompt_tokens"])
        self.assertEqual(folder["choices"][0]["message"], mine["choices"][0]["message"])

    def test_a_wrong_tower_is_refused(self):
        def why(model, *options):
            run = subprocess.run([PROGRAM, "serve", "--model", model, "--device", "cpu", "--port", "0", *options],
                                 capture_output=True, text=True, timeout=60)
            self.assertNotEqual(run.returncode, 0)
            return run.stderr + run.stdout
        self.assertIn("not the tower of one (mmproj)", why(self.model, "--mmproj", self.model))
        self.assertIn("vectors of another width", why(harness.TINY, "--mmproj", MODEL / "mmproj.gguf"))
        self.assertIn("a folder has its tower in it", why(MODEL, "--mmproj", MODEL / "mmproj.gguf"))


# A picture of Gemma 3 is seen whole: no step ends inside one, and what is found may.
class Gemma(Pictures):
    model = harness.ROOT / "tests/vision/gemma3"

    def test_the_second_turn_computes_neither_picture(self):
        talk = [{"role": "user", "content": [text("Look: "), image(A), text(" and "), image(B), text("?" * 30)]}]
        first = self.ask(talk)
        self.assertEqual(self.cached(first), 0)
        second = self.ask(talk)
        self.assertGreaterEqual(self.cached(second), first["usage"]["prompt_tokens"] - 1)
        self.assertEqual(second["choices"][0]["message"], first["choices"][0]["message"])

    def test_tokens_are_counted(self):
        without = self.ask([{"role": "user", "content": [text("x")]}])["usage"]["prompt_tokens"]
        # 16 of any picture, one before and one behind, two ends of lines on both sides.
        for file in (A, B, png(3, 300, 3)):
            with_one = self.ask([{"role": "user", "content": [image(file), text("x")]}])
            self.assertEqual(with_one["usage"]["prompt_tokens"], without + 16 + 2 + 4)
        # 198: the end of a line.
        tokens = self.post("/tokenize", {"messages": [{"role": "user", "content": [image(A), text("x")]}]})["tokens"]
        at = tokens.index(258)
        self.assertEqual(tokens[at - 2:at + 20], [198, 198, 258] + [260] * 16 + [259, 198, 198])

    def test_text_is_no_picture(self):
        answer = self.ask([{"role": "user", "content": [text("<start_of_image><image_soft_token>"), image(A)]}])
        self.assertGreater(answer["usage"]["prompt_tokens"], 34 + 22)

    def test_the_terminal_sees_the_same(self):
        self.check_terminal()

    def test_snapkv_is_refused(self):
        said = self.ask([{"role": "user", "content": [image(A), text("x" * 300)]}], status=400, snapkv={"budget": 20})
        self.assertIn("not supported with pictures", said["error"]["message"])


class Ignoring(Pictures):
    options = ("--ignore-images",)

    def test_a_text_stands_for_it(self):
        answer = self.ask([{"role": "user", "content": [image(A)]}])
        self.assertGreater(answer["usage"]["prompt_tokens"], 30)


class Blind(Pictures):
    model = harness.TINY

    def test_a_model_without_a_tower_refuses_by_name(self):
        self.assertIn("understands text only", self.refusal([image(A)]))


if __name__ == "__main__":
    unittest.main()
