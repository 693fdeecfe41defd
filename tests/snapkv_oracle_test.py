"""What SnapKV keeps is what the paper's formula says, computed here again from queries and keys that
were captured from every golden, in double precision.

    python3 snapkv_oracle_test.py snapkv_probe tests/golden

Lists may differ only where two places weigh the same within what single precision can tell apart;
such differences are counted and printed.
"""
import json
import math
import pathlib
import subprocess
import sys

SINKS = 4
POOL = 7
TOLERANCE = 1e-5  # of a weight


def softmax(scores):
    most = max(scores)
    weights = [math.exp(s - most) for s in scores]
    total = sum(weights)
    return [w / total for w in weights]


def weights_of(layer, head, tokens, window):
    """Sum over the window's queries, and over the heads that share the keys, of their softmax."""
    dim = layer["head_dim"]
    keys = [row[head * dim:(head + 1) * dim] for row in layer["k"]]
    group = len(layer["q"][0]) // dim // layer["kv_heads"]
    sums = [0.0] * tokens
    for row, queries in enumerate(layer["q"]):
        seen = tokens - window + row + 1
        for h in range(head * group, (head + 1) * group):
            query = [layer["scale"] * x for x in queries[h * dim:(h + 1) * dim]]
            scores = [sum(a * b for a, b in zip(query, key)) for key in keys[:seen]]
            if layer["softcap"]:
                scores = [layer["softcap"] * math.tanh(s / layer["softcap"]) for s in scores]
            for j, weight in enumerate(softmax(scores)):
                sums[j] += weight
    return sums


def pooled(sums, before):
    reach = POOL // 2
    return [max(sums[max(0, i - reach):min(before, i + reach + 1)]) for i in range(before)]


def keep(worth, tokens, window, kept):
    others = sorted(range(SINKS, tokens - window), key=lambda i: (-worth[i], i))
    chosen = others[:kept - SINKS - window]
    return sorted([*range(SINKS), *chosen, *range(tokens - window, tokens)])


def compare(probe, model, tokens_file, budget, window, kv):
    """Returns (lists, lists that differ, entries that differ)."""
    command = [probe, str(model), str(tokens_file), str(budget), str(window), kv]
    answer = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    tokens, kept = answer["tokens"], answer["kept"]
    if not answer["lists"]:
        return 0, 0, 0
    lists, differing, entries = iter(answer["lists"]), 0, 0
    count = 0
    for layer in answer["layers"]:
        for head in range(layer["kv_heads"]):
            found = next(lists)
            count += 1
            assert len(found) == kept and found == sorted(set(found)), (model, count)
            worth = pooled(weights_of(layer, head, tokens, window), tokens - window)
            expected = keep(worth, tokens, window, kept)
            if found == expected:
                continue
            only = set(expected) ^ set(found)
            least = min(worth[i] for i in expected if SINKS <= i < tokens - window)
            for i in only:
                assert abs(worth[i] - least) <= TOLERANCE * max(least, 1e-3), (
                    f"{model.name}: list {count - 1}, place {i} weighs {worth[i]}, the least kept {least}")
            differing += 1
            entries += len(only) // 2
    assert next(lists, None) is None
    return count, differing, entries


def main(probe, goldens):
    total = {}
    for model in sorted(pathlib.Path(goldens).iterdir()):
        golden = model / "golden.safetensors"
        if not golden.exists():
            continue
        for budget, window, kv in [(24, 8, "f32"), (40, 16, "f16"), (15, 1, "bf16"), (31, 12, "q8_0")]:
            count, differing, entries = compare(probe, model, golden, budget, window, kv)
            if count == 0:
                continue
            lists, other, places = total.get(model.name, (0, 0, 0))
            total[model.name] = (lists + count, other + differing, places + entries)
    for name, (lists, differing, entries) in total.items():
        print(f"{name:20} {lists:4} lists, {differing} with ties, {entries} places")
    assert len(total) >= 10, "few goldens have full attention"
    print("snapkv oracle ok")


if __name__ == "__main__":
    main(*sys.argv[1:])
