"""`reprise diff`: where two requests part, and what the server then really computes.

usage: diff_test.py REPRISE SOURCE_ROOT
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

REPRISE = sys.argv.pop(1) if len(sys.argv) > 1 else "reprise"
ROOT = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else ".").resolve()
sys.path.insert(0, str(ROOT / "tests/clients"))
import harness  # noqa: E402

TINY = ROOT / "models/reprise-tiny-q8_0.gguf"
RULES = "Tell stories about dogs. Be kind. " * 12


def chat(time, question="And then?", **more):
    return {"model": TINY.stem, "messages": [{"role": "system", "content": f"It is {time}. {RULES}"},
                                             {"role": "user", "content": question}], **more}


class Diff(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

    def run_diff(self, a, b, *options):
        for name, body in [("a.json", a), ("b.json", b)]:
            (self.path / name).write_text(body if isinstance(body, str) else json.dumps(body))
        return subprocess.run([REPRISE, "diff", self.path / "a.json", self.path / "b.json", *map(str, options)],
                              capture_output=True, text=True, timeout=120)

    def diff(self, a, b, *options):
        result = self.run_diff(a, b, *options)
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stderr)
        return result.stdout

    def computed(self, text):
        return int(re.search(r"B computes (\d+)", text).group(1))

    def test_a_time_stamp_is_shown_with_its_place_and_its_cost(self):
        # Attention only: every common token is reused.
        text = self.diff(chat("16:51"), chat("17:42"), "--model", ROOT / "tests/golden/llama", "--tokenizer", TINY)
        self.assertRegex(text, r'both  ".*It is 1"\n')
        self.assertRegex(text, r'A     "6:51\. Tell')
        self.assertRegex(text, r'B     "7:42\. Tell')
        self.assertIn("different in the bodies: messages[0].content\n", text)
        tokens, same = map(int, re.search(r"B (\d+); the first (\d+) are the same", text).groups())
        self.assertEqual(self.computed(text), tokens - same)
        self.assertRegex(text, r"the same in A, behind what differs: move what changes \(\d+ tokens\) to the end")

    def test_recurrent_layers_go_on_from_stored_states(self):
        text = self.diff(chat("16:51"), chat("17:42"))
        tokens, same = map(int, re.search(r"B (\d+); the first (\d+) are the same", text).groups())
        self.assertGreater(self.computed(text), tokens - same)
        self.assertIn("go on from stored states only", text)
        late = self.diff(chat("noon", "It is 16:51."), chat("noon", "It is 17:42."))
        self.assertLess(self.computed(late), 40)
        self.assertIn("messages[1].content", late)

    def test_the_server_computes_what_was_said(self):
        # Nothing is prepared in idle time: requests alone decide.
        server = harness.Server(REPRISE, "--no-idle-work", "--device", "cpu", model=TINY)
        try:
            pairs = [(chat("16:51"), chat("17:42")), (chat("noon", "It is 16:51."), chat("noon", "It is 17:42.")),
                     (chat("one"), chat("one"))]
            for number, (a, b) in enumerate(pairs):
                for body in (a, b):  # each pair on its own
                    body.update(max_tokens=1, cache_salt=f"pair {number}")
                text = self.diff(a, b)
                ask = [self.ask(server, body) for body in (a, b)]
                self.assertEqual(ask[1]["prompt_tokens"] - ask[1]["used_tokens"], self.computed(text), (ask, text))
        finally:
            server.stop()

    def ask(self, server, body):
        request = harness.urllib.request.Request(server.url + "/v1/chat/completions", json.dumps(body).encode(),
                                                 {"Content-Type": "application/json"})
        with harness.urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["reprise"]

    def test_every_api(self):
        self.assertIn("the prompts are equal", self.diff(chat("noon"), chat("noon", temperature=0.3)))
        anthropic = {"model": "m", "system": "You are kind.", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}
        other = {**anthropic, "system": [{"type": "text", "text": "You are rude."}]}
        text = self.diff(anthropic, other)
        self.assertRegex(text, r'B     "rude\.')
        self.assertIn("different in the bodies: system\n", text)
        openai = {"messages": [{"role": "system", "content": "You are kind."}, {"role": "user", "content": "Hi"}]}
        self.assertIn("the prompts are equal", self.diff(anthropic, openai))
        self.assertIn("the prompts are equal",
                      self.diff(anthropic, {"instructions": "You are kind.", "input": "Hi"}))
        text = self.diff({"prompt": "One day a dog"}, {"prompt": "One day a cat ran"})
        self.assertRegex(text, r'both  "One day a "\n  A     "dog"\n  B     "cat ran"')
        self.assertRegex(self.diff({"prompt": "One day"}, {"prompt": "One day a cat"}), r'B goes on where A ends:\n.*\n  B     " a cat"')

    def test_what_is_no_request_is_refused_in_one_sentence(self):
        good = chat("noon")
        for body, words in [("[1]", "a.json is not a JSON object"), ("{}", "a.json has neither"), ("{", "a.json"),
                            ('{"messages": []}', "a.json: "), ('{"messages": [{"role": "king", "content": "x"}]}', "role"),
                            ('{"prompt": ["a", "b"]}', "more than one prompt")]:
            result = self.run_diff(body, good)
            self.assertEqual((result.returncode, result.stdout), (1, ""))
            self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
            self.assertIn(words, result.stderr)
        self.assertIn("A is required", subprocess.run([REPRISE, "diff"], capture_output=True, text=True).stderr)


if __name__ == "__main__":
    unittest.main()
