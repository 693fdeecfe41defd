"""Measures bits per byte of text files with Transformers, on the machine that trained.

    python3 tools/train/evaluate.py --models reprise-tiny/ --texts held_out.json ...

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
def bits_per_byte(model, tokenizer, texts, device, batch=64, context=1024):
    """Over all texts, those of similar length together; what stands behind a text does not change what is said of it."""
    start = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    rows = sorted((tokenizer(text, add_special_tokens=False).input_ids[:context] for text in texts), key=len)
    bits, size = 0.0, sum(len(tokenizer.decode(ids, clean_up_tokenization_spaces=False).encode()) for ids in rows)
    for at in range(0, len(rows), batch):
        part = rows[at:at + batch]
        longest = len(part[-1])
        given = torch.tensor([[start] + ids + [start] * (longest - len(ids)) for ids in part], device=device)
        wanted = torch.tensor([ids + [-100] * (longest - len(ids)) for ids in part], device=device)
        logits = model(given[:, :-1]).logits.float()
        bits += torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="sum").item() / math.log(2)
    return bits / size


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", nargs="+", required=True)
    parser.add_argument("--texts", nargs="*", default=[])
    parser.add_argument("--limit", type=int, default=400, help="documents per file at most, evenly spread")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for folder in args.models:
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=os.path.join(folder, "tokenizer.json"))
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(device).eval()
        for path in args.texts:
            texts = read_texts(path)
            texts = texts[::-(-len(texts) // args.limit)]
            measured = bits_per_byte(model, tokenizer, texts, device)
            print(f"{os.path.basename(folder)} {os.path.basename(path)}: {measured:.4f} bits per byte ({len(texts)} documents)", flush=True)


if __name__ == "__main__":
    main()
