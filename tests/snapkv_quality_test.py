"""snapkv_quality, with which tools/quality measures, on tiny models: what it must say whatever they know.

    python snapkv_quality_test.py SNAPKV_QUALITY GOLDENS
"""
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

LENGTH, PROMPT, WINDOW, SINKS = 180, 160, 64, 4


def write(path, tensors):
    header, data = {}, b""
    for name, ids in tensors.items():
        raw = struct.pack(f"<{len(ids)}i", *ids)
        header[name] = {"dtype": "I32", "shape": [len(ids)], "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def check(probe, model, folder):
    vocab = json.loads((model / "config.json").read_text())["vocab_size"]
    texts = folder / "texts.safetensors"
    draw = random.Random(7)
    write(texts, {"tokens": [draw.randrange(vocab) for _ in range(3 * LENGTH)], "length": [LENGTH], "prompt": [PROMPT]})
    budgets = [SINKS + WINDOW, 100, PROMPT - 1]
    command = [probe, model, texts, 2, WINDOW, "cpu", *budgets]
    result = json.loads(subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True).stdout)
    runs = {(run["keeps"], run["budget"]): run for run in result["runs"]}
    assert len(runs) == 1 + 2 * len(budgets), runs.keys()
    exact = runs["exact", PROMPT]
    for run in runs.values():
        for logprob, first, whole in zip(run["logprob"], run["first"], exact["logprob"], strict=True):
            assert len(logprob) == len(first) == LENGTH - PROMPT
            assert all(x < 0 for x in logprob)
            assert logprob[0] == whole[0], "the first token follows all of the prompt"
    least = SINKS + WINDOW
    assert runs["snapkv", least] == runs["window", least] | {"keeps": "snapkv"}, "there is nothing to choose"
    assert runs["snapkv", 100]["logprob"] != runs["window", 100]["logprob"], "the same is kept"
    away = lambda run: sum(abs(a - b) for one, other in zip(run["logprob"], exact["logprob"]) for a, b in zip(one, other))
    assert away(runs["snapkv", PROMPT - 1]) < away(runs["snapkv", least]), "nearly all is farther away than little"


def main():
    probe, goldens = sys.argv[1], pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        for family in ("qwen3", "qwen3_5"):
            check(probe, goldens / family, pathlib.Path(folder))
            print(family, "ok")


if __name__ == "__main__":
    main()
