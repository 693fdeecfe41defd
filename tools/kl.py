"""How far the next-token distributions of two runs over the same tokens lie apart.

    reprise logits --model M --input tokens.safetensors --out a.safetensors
    reprise logits --model M --input tokens.safetensors --out b.safetensors --split 512,512 --snapshots bf16
    tools/kl.py a.safetensors b.safetensors [FIRST]

FIRST: positions before it are left out. Needs numpy.
"""
import json
import struct
import sys

import numpy


def read_logits(path):
    """F32 [T, V] of a safetensors file that has nothing else."""
    with open(path, "rb") as file:
        facts = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))["logits"]
        assert facts["dtype"] == "F32", facts
        return numpy.frombuffer(file.read(), "<f4").reshape(facts["shape"])


def log_softmax(logits):
    logits = logits.astype(numpy.float64)
    logits = logits - logits.max(axis=1, keepdims=True)
    return logits - numpy.log(numpy.exp(logits).sum(axis=1, keepdims=True))


def main(exact_path, other_path, first=0):
    exact, other = (read_logits(path)[first:] for path in (exact_path, other_path))
    kl, same = [], 0
    for at in range(0, len(exact), 64):
        p, q = log_softmax(exact[at:at + 64]), log_softmax(other[at:at + 64])
        kl.extend((numpy.exp(p) * (p - q)).sum(axis=1))
        same += int((p.argmax(axis=1) == q.argmax(axis=1)).sum())
    print(f"{len(kl)} positions: mean KL {numpy.mean(kl):.2e}, largest {numpy.max(kl):.2e}, "
          f"same first choice {100 * same / len(kl):.2f} %")


if __name__ == "__main__":
    main(*sys.argv[1:3], *(int(first) for first in sys.argv[3:4]))
