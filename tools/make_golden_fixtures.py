"""Copies the goldens that the tests always need into tests/golden/.

usage: make_golden_fixtures.py GOLDENS [FAMILY ...]

GOLDENS holds one folder a family, in Hugging Face layout: a tiny random model (config.json,
model.safetensors) and what a reference implementation computes with it (golden.safetensors: tokens
I32 [T], logits F32 [T, V], greedy I32 [n]). Every file is checked before it is copied. Without
families, those that are there are copied again. The tests run whatever lies in tests/golden/; what
GOLDENS does not have is made by golden/make_models.py.
"""
import json
import pathlib
import shutil
import struct
import sys

TOTAL_BYTES_MAX = 20_000_000
WIDTH = {"F32": 4, "BF16": 2, "F16": 2, "I32": 4}


def read_header(path):
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        count = 1
        for extent in entry["shape"]:
            count *= extent
        if end - begin != count * WIDTH[entry["dtype"]] or 8 + size + end > len(data):
            sys.exit(f"{path}: {name} has the wrong size")
    return header


def check(folder):
    config = json.loads((folder / "config.json").read_text())
    golden = read_header(folder / "golden.safetensors")
    read_header(folder / "model.safetensors")
    tokens, logits = golden["tokens"], golden["logits"]
    if tokens["dtype"] != "I32" or golden["greedy"]["dtype"] != "I32" or logits["dtype"] != "F32":
        sys.exit(f"{folder}: unexpected types")
    if logits["shape"] != [tokens["shape"][0], config["vocab_size"]]:
        sys.exit(f"{folder}: logits are not [tokens, vocabulary]")


def main(goldens, families):
    target = pathlib.Path(__file__).resolve().parent.parent / "tests/golden"
    there = sorted(f.name for f in target.iterdir() if (goldens / f.name).is_dir())
    for family in families or there:
        check(goldens / family)
        (target / family).mkdir(parents=True, exist_ok=True)
        for name in ["config.json", "model.safetensors", "golden.safetensors"]:
            shutil.copyfile(goldens / family / name, target / family / name)
    total = sum(f.stat().st_size for f in target.rglob("*") if f.is_file())
    print(f"{target}: {total} bytes")
    if total > TOTAL_BYTES_MAX:
        sys.exit(f"more than {TOTAL_BYTES_MAX} bytes: too much for the tree")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]), sys.argv[2:])
