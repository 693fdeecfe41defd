"""Measures bits per byte of texts with `reprise logits`, so that what is measured is what users run.

    python3 tools/train/bits_per_byte.py --reprise build/release/reprise --model models/reprise-tiny-q8_0.gguf \\
        --tokenizer reprise-tiny/tokenizer.json --texts fragments.jsonl.gz held_out_*.json

A text file is a JSON list of strings or JSON lines with a field `text`. A document's bits are the negative log2 likelihood
of its tokens after the start token, over its bytes. --bytes cuts documents so that models of different context read the
same text.
"""
import argparse
import gzip
import json
import os
import subprocess
import tempfile

import numpy as np
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer


def read_texts(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as f:
        body = f.read()
    if body.lstrip().startswith("["):
        return json.loads(body)
    return [json.loads(line)["text"] for line in body.splitlines() if line]


def cut(text, limit):
    """At most `limit` bytes, at a space."""
    if not limit or len(text.encode()) <= limit:
        return text
    return text.encode()[:limit].decode(errors="ignore").rsplit(" ", 1)[0]


def bits_of(args, ids, folder):
    """Bits of ids[1:] given what stands before each."""
    tokens, logits = os.path.join(folder, "tokens.safetensors"), os.path.join(folder, "logits.safetensors")
    save_file({"tokens": np.array(ids, dtype=np.int32)}, tokens)
    command = [args.reprise, "logits", "-m", args.model, "--input", tokens, "--out", logits, "--kv", args.kv]
    command += ["--weights", args.weights] if args.weights else []
    command += ["--threads", str(args.threads)]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    rows = load_file(logits)["logits"][:-1].astype(np.float64)
    top = rows.max(-1, keepdims=True)
    total = np.log(np.exp(rows - top).sum(-1)) + top[:, 0]
    return float((total - rows[np.arange(len(ids) - 1), ids[1:]]).sum() / np.log(2))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--reprise", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--start", default="<|endoftext|>", help="token before every document")
    parser.add_argument("--texts", nargs="+", required=True)
    parser.add_argument("--limit", type=int, default=100, help="documents per file at most, evenly spread")
    parser.add_argument("--bytes", type=int, default=0, help="cut documents to this many bytes")
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--kv", default="f16")
    parser.add_argument("--weights", default="", help="type of the weights in memory; default as stored")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    tokenizer = Tokenizer.from_file(args.tokenizer)
    start = tokenizer.token_to_id(args.start)
    with tempfile.TemporaryDirectory() as folder:
        for path in args.texts:
            bits = size = count = 0
            texts = read_texts(path)
            for text in texts[::-(-len(texts) // args.limit)]:
                text = cut(text, args.bytes)
                ids = tokenizer.encode(text, add_special_tokens=False).ids
                if not ids or len(ids) >= args.context:
                    continue
                bits += bits_of(args, [start] + ids, folder)
                size += len(text.encode())
                count += 1
            print(f"{os.path.basename(path)}: {bits / size:.4f} bits per byte ({count} documents, {size} bytes)", flush=True)


if __name__ == "__main__":
    main()
