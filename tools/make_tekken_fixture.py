"""Writes a small tekken.json and the ids that Mistral's own tokenizer has for difficult texts.

    python3 -m venv venv && venv/bin/pip install mistral-common==1.13.1
    venv/bin/python tools/make_tekken_fixture.py

makes tests/data/tokenizers/mistral.json and mistral.vectors.json. Its vocabulary is that of the fixture
tekken.json (a tokenizer.json), in the order of its ids behind the 256 bytes, and some tokens that can be
made in several ways from what overlaps ("aaa"), where the order of equals shows.
"""
import base64
import json
import pathlib
import random

from mistral_common.tokens.tokenizers.tekken import Tekkenizer

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests/data/tokenizers"
OVERLAPS = ["aa", "aaa", "aaaa", "aaaaa", "ab", "aba", "bab", "abab", "ababa", "ba", "baba"]


def alphabet():
    """GPT-2's: printable character -> byte."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(others)}


def vocabulary():
    bytes_of = alphabet()
    source = json.loads((DATA / "tekken.json").read_text())
    tokens = [bytes([byte]) for byte in range(256)]
    words = sorted(source["model"]["vocab"], key=source["model"]["vocab"].get)
    for token in [bytes(bytes_of[c] for c in word) for word in words] + [o.encode() for o in OVERLAPS]:
        if token not in tokens:
            tokens.append(token)
    pattern = source["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
    return tokens, pattern


def texts():
    source = json.loads((DATA / "tekken.vectors.json").read_text())
    rng = random.Random(43)
    found = [vector["text"] for vector in source if "text" in vector]
    found += ["".join(rng.choice("ab") for _ in range(rng.randint(2, 40))) for _ in range(60)]
    return found + ["a" * n for n in range(2, 24)] + ["x<s>[INST] y</s>[/INST]<SPECIAL_23>"]


def main():
    tokens, pattern = vocabulary()
    special = 24
    config = {"pattern": pattern, "num_vocab_tokens": len(tokens), "default_vocab_size": special + len(tokens) - 3,
              "default_num_special_tokens": special, "version": "v3"}
    vocab = [{"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
             for rank, token in enumerate(tokens)]
    path = DATA / "mistral.json"
    path.write_text(json.dumps({"config": config, "vocab": vocab}, separators=(",", ":")) + "\n")
    tokenizer = Tekkenizer.from_file(path)
    vectors = [{"text": text, "plain": tokenizer.encode(text, bos=False, eos=False)} for text in texts()]
    (DATA / "mistral.vectors.json").write_text(
        "[" + ",\n".join(json.dumps(vector, separators=(",", ":")) for vector in vectors) + "]\n")


if __name__ == "__main__":
    main()
