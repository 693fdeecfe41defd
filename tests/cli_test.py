"""The program as people use it: every command once, on the tiny models of the tree.

usage: cli_test.py REPRISE SOURCE_ROOT

Proves that logits do not depend on --split and --threads, that convert keeps them, that a chat is
reproducible from its seed and /reset forgets, and that every error is one sentence and exit status 1.
"""
import json
import os
import pathlib
import re
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

REPRISE = sys.argv.pop(1) if len(sys.argv) > 1 else "reprise"
ROOT = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else ".")
GOLDEN = ROOT / "tests/golden"
TINY = ROOT / "models/reprise-tiny-q8_0.gguf"


def run(*args, stdin=""):
    return subprocess.run([REPRISE, *map(str, args)], input=stdin, capture_output=True, text=True, timeout=300)


def read_tensor(path, name):
    data = pathlib.Path(path).read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    entry = json.loads(data[8:8 + size])[name]
    begin, end = entry["data_offsets"]
    return data[8 + size + begin:8 + size + end]


class Commands(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

    def logits(self, model, *options):
        out = self.path / "logits.safetensors"
        result = run("logits", "--model", model, "--input", GOLDEN / "qwen3_5/golden.safetensors", "--out", out,
                     "--device", "cpu", *options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return read_tensor(out, "logits")

    def expect_error(self, words, *args):
        result = run(*args)
        self.assertEqual(result.returncode, 1, result.stderr)
        lines = [line for line in result.stderr.splitlines() if not line.startswith("loading")]
        self.assertEqual(len(lines), 1, result.stderr)
        self.assertTrue(lines[0].startswith("reprise: "), lines[0])
        for word in words:
            self.assertIn(word, lines[0])

    def test_inspect_says_which_rotary_regime_a_context_takes(self):
        for context, factors in [("64", "short factors"), ("65", "long factors")]:
            result = run("inspect", GOLDEN / "phi3_longrope", "--no-tensors", "--context", context)
            self.assertIn("LongRoPE, " + factors, result.stdout)
            self.assertIn("256 bytes", result.stdout)

    def test_logits_do_not_depend_on_the_schedule(self):
        model = GOLDEN / "qwen3_5"
        whole = self.logits(model)
        self.assertEqual(whole, self.logits(model, "--split", "1,7,60", "--threads", "1"))
        self.assertNotEqual(whole, self.logits(model, "--kv", "f32"))
        seen = [whole]
        for kv in ["bf16", "q8_0"]:
            stored = self.logits(model, "--kv", kv)
            self.assertEqual(stored, self.logits(model, "--kv", kv, "--split", "1,7,60", "--threads", "1"))
            self.assertNotIn(stored, seen)
            seen.append(stored)

    def test_a_machine_without_a_gpu_says_so(self):
        if pathlib.Path("/dev/nvidia0").exists():
            self.skipTest("there is one")
        for device in ["cuda", "cuda:1"]:
            self.expect_error(["--device c"], "logits", "--device", device,
                              "--model", GOLDEN / "qwen3_5", "--input", GOLDEN / "qwen3_5/golden.safetensors",
                              "--out", self.path / "x")
        self.expect_error(["auto, cpu, cuda"], "run", "--device", "tpu", "-p", "x")

    def test_the_memory_of_a_gpu_is_limited_only_where_there_is_one(self):
        self.expect_error(["--vram-mib", "--device cuda"], "logits", "--model", GOLDEN / "qwen3_5",
                          "--input", GOLDEN / "qwen3_5/golden.safetensors", "--device", "cpu", "--vram-mib", "100",
                          "--out", self.path / "x")

    def test_one_model_on_several_devices(self):
        model = GOLDEN / "qwen3_5"
        expected = self.logits(model)
        self.assertEqual(expected, self.logits(model, "--devices", "cpu,cpu,cpu", "--split", "1,7,60"))
        self.assertEqual(expected, self.logits(model, "--devices", "cpu,cpu,cpu", "--tensor-parallel",
                                               "--split", "1,7,60"))
        tokens = ["logits", model, "--input", model / "golden.safetensors", "--out", self.path / "x"]
        for words, options in [(["'gpu'"], ["--devices", "cpu,gpu"]), (["'cuda:x'"], ["--devices", "cuda:x"]),
                               (["--devices", "cuda:0,cpu"], ["--cpu-experts", "2"]),
                               (["--cpu-experts", "'few'"], ["--devices", "cpu,cpu", "--cpu-experts", "few"]),
                               (["--devices cuda:0,cpu"], ["--devices", "cpu,cpu", "--gpu-layers", "1"]),
                               (["--devices"], ["--tensor-parallel"]),
                               (["--layers", "--tensor-parallel"],
                                ["--devices", "cpu,cpu", "--tensor-parallel", "--layers", "1,1"]),
                               (["--layers", "8 in all"], ["--devices", "cpu,cpu", "--layers", "1,1"]),
                               (["--vram-mib"], ["--devices", "cpu,cpu", "--vram-mib", "100"])]:
            self.expect_error(words, *tokens, *options)

    def test_no_benchmark_exceeds_its_peak(self):
        for command, rate in [("prefill", "gigaflops"), ("decode", "gigabytes_per_second")]:
            options = ["bench", command, "--device", "cpu", "-n", "8", "--repeat", "1", "--model"]
            for model in [TINY, GOLDEN / "qwen3"]:
                said = json.loads(run(*options, model, "--json").stdout)
                self.assertGreater(said[rate], 0)
                if said["peak"] is not None:  # a ceiling that was exceeded is not called one
                    self.assertLessEqual(said[rate], said["peak"])
            if command == "decode":
                self.expect_error(["--temperature", "--device cuda"], *options, TINY, "--temperature", "1")
            profiled = run(*options, TINY, "--profile").stdout
            for op in ["project", "embed", "(between ops)"]:
                self.assertIn(op, profiled)

    def test_ceilings_of_the_machine(self):
        said = json.loads(run("bench", "machine", "--threads", "2", "--mib", "8", "--json").stdout)
        self.assertEqual([row["threads"] for row in said["ceilings"]], [1, 2])
        for row in said["ceilings"]:
            for name in ["read_gigabytes_per_second", "int8_giga_operations_per_second", "f32_gigaflops"]:
                self.assertGreater(row[name], 0, name)
        self.assertLessEqual(said["cores"], said["cpus"])
        table = run("bench", "machine", "--threads", "1", "--mib", "8").stdout
        for words in ["1 thread", "reading memory", "GB/s", "int8 products", "f32 products", "measured here"]:
            self.assertIn(words, table)

    def test_converted_while_loading_is_converted_before(self):
        # Routers, gates and rows of no whole blocks among them, which are wider in memory than in a file.
        for family in ["qwen3_next", "kimi_linear", "nemotron_h_moe"]:
            for kind in ["f16", "q8_0"]:
                file = self.path / f"{family}-{kind}.gguf"
                result = run("convert", "--model", GOLDEN / family, "--type", kind, "--out", file)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(self.logits(GOLDEN / family, "--weights", kind), self.logits(file), (family, kind))

    def test_convert_keeps_the_logits(self):
        file = self.path / "model.gguf"
        result = run("convert", "--model", GOLDEN / "qwen3_5", "--type", "bf16", "--out", file)
        self.assertEqual(result.returncode, 0, result.stderr)
        a = struct.unpack("<%df" % (83 * 320), self.logits(GOLDEN / "qwen3_5", "--kv", "f32"))
        b = struct.unpack("<%df" % (83 * 320), self.logits(file, "--kv", "f32"))
        self.assertLess(max(abs(x - y) for x, y in zip(a, b)), 1e-3)
        seen = run("inspect", file).stdout
        self.assertIn("qwen35.ssm.state_size", seen)
        self.assertIn("family: qwen3_5", seen)

    def test_synth_in_a_geometry_that_was_changed(self):
        file = self.path / "model.gguf"
        small = ["--set", "num_hidden_layers=1", "--set", "hidden_size=64", "--set", "intermediate_size=64"]
        result = run("synth", "--like", "RWKV7-0.1B", *small, "--set", "vocab_size=320", "--out", file)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn('"rwkv7.embedding_length": 64', run("inspect", file).stdout)
        self.assertEqual(len(self.logits(file)), 83 * 320 * 4)
        for words, change in [(["NAME=VALUE"], "vocab_size"), (["JSON"], "vocab_size=many"), (["260"], "vocab_size=259")]:
            self.expect_error(words, "synth", "--like", "RWKV7-0.1B", "--set", change, "--out", self.path / "x")

    def test_synth_that_repeats_itself(self):
        small = ["--set", "num_hidden_layers=1", "--set", "hidden_size=64", "--set", "intermediate_size=64"]
        different = []
        for flags in [], ["--repeat"]:
            file = self.path / "model.gguf"
            result = run("synth", "--like", "RWKV7-0.1B", *small, "--set", "vocab_size=200000", "--type", "f16", *flags,
                         "--out", file)
            self.assertEqual(result.returncode, 0, result.stderr)
            content = file.read_bytes()
            rows = [content[i:i + 128] for i in range(len(content) % 128, len(content), 128)]
            different.append(len(set(rows)) / len(rows))
        self.assertGreater(different[0], 0.95)
        self.assertLess(different[1], 0.5)

    def test_errors_are_one_sentence(self):
        model = GOLDEN / "qwen3"
        tokens = GOLDEN / "qwen3/golden.safetensors"
        self.expect_error(["frobnicate", "logits"], "frobnicate")
        self.expect_error(["/nonexistent"], "inspect", "/nonexistent")
        self.expect_error(["--input"], "logits", "--out", self.path / "x")
        self.expect_error(["--contxt", "did you mean '--context'?"], "serve", "--contxt", "99")
        self.expect_error(["did you mean 'inspect'?"], "insepct")
        self.expect_error(["'-port'", "did you mean '--port'?"], "serve", "-port", "80")
        self.expect_error(["--context: 30000000 is too large; the most is 16777216"], "serve", "--context", "30000000")
        self.expect_error(["83 are left"], "logits", "-m", model, "--input", tokens, "--out", self.path / "x",
                          "--split", "84")
        self.expect_error(["q9_9", "q4_k_m"], "logits", "-m", model, "--input", tokens, "--out", self.path / "x",
                          "--weights", "q9_9")
        self.expect_error(["tokenizer"], "run", "-m", model, "-p", "hello")
        self.expect_error(["Qwen3.5-0.8B"], "synth", "--like", "GPT-9", "--out", self.path / "x")
        (self.path / "broken.gguf").write_bytes(b"GGUF\3\0\0\0" + b"\xff" * 64)
        self.expect_error(["broken.gguf"], "run", "-m", self.path / "broken.gguf", "-p", "x")

    def test_help_helps(self):
        result = run("--help")
        self.assertEqual(result.returncode, 0)
        for command in ["run", "logits", "bench", "synth", "inspect", "convert", "audit", "diff", "doctor"]:
            self.assertIn(command, result.stdout)
            self.assertEqual(run(command, "--help").returncode, 0)
            self.assertEqual(run("help", command).stdout, run(command, "--help").stdout)
        self.assertEqual(run("help", "bench", "decode").stdout, run("bench", "decode", "--help").stdout)
        version = run("--version").stdout
        self.assertRegex(version, r"^reprise \d+\.\d+\.\d+\ncommit +\S+")
        for line in [r"compiler +(GCC|Clang) \d+", r"backends +cpu", r"instruction sets +scalar"]:
            self.assertRegex(version, "\n" + line)
        self.assertEqual(run("help").stdout, result.stdout)

    def test_the_name_alone_says_what_to_try(self):
        alone = run()
        self.assertEqual((alone.returncode, alone.stderr), (0, ""))
        tried = re.findall(r"^  reprise (\w+)", alone.stdout, re.M)
        self.assertLessEqual({"run", "serve", "inspect", "help"}, set(tried))
        for command in tried:
            self.assertEqual(run(command, "--help").returncode, 0, command)

    def test_the_doctor_says_what_there_is_and_what_fits(self):
        said = json.loads(run("doctor", "--device", "cpu", "--json").stdout)
        self.assertGreater(said["gigabytes_per_second"], 0)
        self.assertGreater(said["memory"]["available_bytes"], 0)
        self.assertIn("scalar", said["cpu"]["instruction_sets"])
        self.assertLessEqual(said["cpu"]["granted"], said["cpu"]["allowed"])
        model = said["model"]
        self.assertTrue(model["fits"])
        self.assertLess(abs(model["weight_bytes"] - TINY.stat().st_size), TINY.stat().st_size / 10)
        self.assertGreater(model["tokens_per_second_at_most"], 0)
        shown = run("doctor", "--device", "cpu", GOLDEN / "qwen3")
        self.assertEqual((shown.returncode, shown.stderr), (0, ""))
        for word in ["CPU", "memory", "GPU", "GB/s (measured)", "qwen3 (qwen3)", "context", "tokens/s for one reply"]:
            self.assertIn(word, shown.stdout)
        self.assertLess(len(shown.stdout.splitlines()), 25)
        limited = subprocess.run([REPRISE, "doctor", "--device", "cpu"], capture_output=True, text=True,
                                 env={**os.environ, "REPRISE_ISA": "scalar"})
        self.assertIn("REPRISE_ISA=scalar limits the instruction sets", limited.stdout)
        self.expect_error(["none.gguf"], "doctor", "none.gguf")

    def test_an_unknown_architecture_is_answered_with_all_that_are_known(self):
        (self.path / "config.json").write_text('{"model_type": "gpt9"}')
        (self.path / "model.safetensors").write_bytes((GOLDEN / "qwen3/model.safetensors").read_bytes())
        self.expect_error(['"gpt9"', "mistral", "falcon_mamba", "llama"], "run", "-m", self.path, "-p", "x")

    def test_a_port_in_use_says_what_to_do(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self.expect_error(["another program has this port", "--port"], "serve", "--port", taken.getsockname()[1])

    def test_help_is_in_groups_and_narrow(self):
        shown = run("serve", "--help").stdout
        groups = re.split(r"^(\S.*):\n", shown, flags=re.M)
        sizes = {name: len(re.findall(r"^  -", rows, re.M)) for name, rows in zip(groups[1::2], groups[2::2])}
        self.assertGreater(len(sizes), 6, sizes)
        self.assertLess(max(sizes.values()), 16, sizes)
        self.assertNotIn("Options", sizes)
        self.assertLessEqual(max(map(len, shown.splitlines())), 100)
        self.assertEqual(len(re.findall(r"--model(?![\w-])", shown)), 1)

    @unittest.skipUnless(TINY.exists(), "needs the bundled model")
    def test_the_bundled_model_is_the_default(self):
        self.assertIn("qwen35.embedding_length", run("inspect", "--no-tensors").stdout)
        self.assertEqual(run("run", "-p", "Hello", "-n", "1").returncode, 0)
        result = run("audit", "--schedules", "1")
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_every_command_takes_a_model_by_place_or_by_name(self):
        model = GOLDEN / "qwen3"
        tokens = ["--input", model / "golden.safetensors", "--out", self.path / "logits"]
        for words in [["logits", *tokens], ["audit", "--schedules", "1", "--device", "cpu"], ["inspect", "--no-tensors"],
                      ["bench", "decode", "-n", "1", "--repeat", "1"], ["convert", "--out", self.path / "x.gguf"]]:
            for named in [[model], ["--model", model], ["-m", model]]:
                result = run(*words, *named)
                self.assertEqual(result.returncode, 0, (words, named, result.stderr))
        for command in ["run", "serve", "inspect"]:
            self.expect_error(["no model 'none.gguf'", "GGUF file"], command, "none.gguf")
        self.expect_error(["--model: given 2 times"], "run", "a.gguf", "--model", "b.gguf")
        self.expect_error(["'reprise run none.gguf'", "'reprise serve none.gguf'"], "none.gguf")

    @unittest.skipUnless(TINY.exists(), "needs the bundled model")
    def test_a_chat_is_reproducible(self):
        options = ["run", "-m", TINY, "--seed", "7", "-n", "60"]
        first = run(*options, "-p", "Tell me about a dog.")
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertTrue(first.stdout.strip())
        self.assertEqual(run(*options, "-p", "Tell me about a dog.").stdout, first.stdout)
        chat = run(*options, "--stats", stdin="Tell me about a dog.\nAnd then?\n/reset\nTell me about a dog.\n/quit\nno\n")
        self.assertEqual(chat.returncode, 0, chat.stderr)
        self.assertTrue(chat.stdout.startswith(first.stdout))
        self.assertTrue(chat.stdout.endswith(first.stdout))
        reused = [int(line.split(",")[1].split()[0]) for line in chat.stderr.splitlines() if line.startswith("[prompt")]
        self.assertEqual(len(reused), 3)
        self.assertEqual(reused[0], 0)
        self.assertGreater(reused[1], 0)

    @unittest.skipUnless(TINY.exists(), "needs the bundled model")
    def test_ten_turns_compute_only_what_is_new(self):
        turns = ["Hello!", "Tell me a story about a hat.", "Who is the story about?", "Continue.", "Make it sad.", "Thanks",
                 "Tell me a story about a wolf.", "Another one, please.", "How does it end?", "Bye"]
        chat = run("run", "-m", TINY, "--seed", "3", "-n", "60", "--stats", stdin="\n".join(turns) + "\n/cache\n")
        self.assertEqual(chat.returncode, 0, chat.stderr)
        found = re.findall(r"^\[prompt (\d+) tokens, (\d+) reused .*; (\d+) tokens at", chat.stderr, re.M)
        numbers = [tuple(map(int, line)) for line in found]
        self.assertEqual(len(numbers), 10)
        for (prompt, _, generated), (_, reused, _) in zip(numbers, numbers[1:]):
            # A reply that was cut lacks its end token, which the next prompt has.
            self.assertGreaterEqual(reused, prompt + generated - 1)
        prompt, reused, _ = numbers[-1]
        self.assertIn(f"last turn: {reused} of {prompt} prompt tokens reused, {prompt - reused} computed", chat.stdout)


if __name__ == "__main__":
    unittest.main()
