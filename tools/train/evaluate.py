"""Measures bits per byte of text files with Transformers, on the machine that trained.

    python3 tools/train/evaluate.py --model reprise-tiny/ --texts held_out.json ...

A text file is a JSON list of strings or JSON lines with a field `text`. Bits per byte: the model's negative log2
likelihood of a document after <|endoftext|>, over its bytes; documents are cut to the context.
"""
import argparse
import gzip
import json
import math
import os

import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast


def read_texts(path):
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8") as f:
        body = f.read()
    if body.lstrip().startswith("["):
        return json.loads(body)
    return [json.loads(line)["text"] for line in body.splitlines() if line]


@torch.no_grad()
def bits_per_byte(model, tokenizer, texts, device, limit=400, context=1024):
    start = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    bits, size = 0.0, 0
    for text in texts[:limit]:
        ids = tokenizer(text, add_special_tokens=False).input_ids[:context]
        if not ids:
            continue
        window = torch.tensor([[start] + ids], device=device)
        logits = model(window[:, :-1]).logits.float()
        loss = torch.nn.functional.cross_entropy(logits[0], window[0, 1:], reduction="sum")
        bits += loss.item() / math.log(2)
        size += len(tokenizer.decode(ids).encode())
    return bits / size


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--texts", nargs="*", default=[])
    parser.add_argument("--limit", type=int, default=400, help="documents per file")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=os.path.join(args.model, "tokenizer.json"))
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).to(device).eval()
    for path in args.texts:
        measured = bits_per_byte(model, tokenizer, read_texts(path), device, args.limit)
        print(f"{os.path.basename(path)}: {measured:.4f} bits per byte", flush=True)


if __name__ == "__main__":
    main()
