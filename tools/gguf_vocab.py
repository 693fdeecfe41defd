"""Writes vocabularies as GGUF files that have nothing else, with the keys that llama.cpp's converter writes.

For tools/compare_tokenizers.py: what is read from GGUF metadata must give the ids of the vocabulary's own file.
"""
import ast
import json
import pathlib
import struct

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
# By what the file's pre-tokenizer has that no other has.
PRE_TOKENIZERS = [("[\\\\p{L}\\\\p{M}]+|\\\\p{N}|", "qwen35"), ("[一-龥", "deepseek-v3"), ("\\\\p{Lu}", "tekken"),
                  ("\\\\p{N}{1,3}", "llama-bpe"), ("\\\\p{N}|", "qwen2")]


def write(path, keys):
    """Strings, ints (as u32), bools, and lists of strings, ints (as i32) or floats."""
    def text(value):
        data = value if isinstance(value, bytes) else value.encode()
        return struct.pack("<Q", len(data)) + data

    def value_of(value):
        if isinstance(value, bool):
            return struct.pack("<I?", 7, value)
        if isinstance(value, int):
            return struct.pack("<II", 4, value)
        if isinstance(value, str):
            return struct.pack("<I", 8) + text(value)
        if isinstance(value[0], (str, bytes)):
            return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
        if isinstance(value[0], float):
            return struct.pack(f"<IIQ{len(value)}f", 9, 6, len(value), *value)
        return struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)

    keys = {"general.architecture": "llama", **{f"tokenizer.ggml.{key}": value for key, value in keys.items()}}
    with open(path, "wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, 0, len(keys)))
        for key, value in keys.items():
            file.write(text(key) + value_of(value))


def from_json(path):
    data = json.loads(pathlib.Path(path).read_text())
    model, added = data["model"], data["added_tokens"]
    size = 1 + max(list(model["vocab"].values()) + [token["id"] for token in added])
    tokens, types = [f"[PAD{i}]" for i in range(size)], [UNUSED] * size
    fallback = model.get("byte_fallback", False)
    for token, number in model["vocab"].items():
        is_byte = fallback and len(token) == 6 and token.startswith("<0x")
        tokens[number], types[number] = token, BYTE if is_byte else NORMAL
    for token in added:
        tokens[token["id"]] = token["content"]
        types[token["id"]] = CONTROL if token["special"] else USER_DEFINED
    merges = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
    keys = {"tokens": tokens, "token_type": types, "add_bos_token": False}
    if not fallback:
        pre = json.dumps(data["pre_tokenizer"], ensure_ascii=False)
        normalized = data["normalizer"] is not None and "NFC" in json.dumps(data["normalizer"])
        name = next((name for mark, name in PRE_TOKENIZERS if mark in pre), "olmo" if normalized else "gpt-2")
        return {**keys, "model": "gpt2", "pre": name, "merges": [" ".join(merge) for merge in merges]}
    # SentencePiece files have scores instead: the earlier a token is merged, the higher.
    scores = [0.0] * size
    for rank, merge in reversed(list(enumerate(merges))):
        scores[model["vocab"]["".join(merge)]] = float(-rank)
    prefix = "Prepend" in json.dumps(data["normalizer"])
    unknown = model["vocab"][model["unk_token"]]
    types[unknown] = UNKNOWN
    return {**keys, "model": "llama", "scores": scores, "add_space_prefix": prefix, "unknown_token_id": unknown}


def fields(data):
    """(number, value) of a protocol buffer message."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        tag = varint()
        if tag & 7 == 0:
            yield tag >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(tag & 7) or varint()
        yield tag >> 3, data[at:at + size]
        at += size


def from_sentencepiece(path):
    tokens, scores, types, unigram, prefix, extra = [], [], [], True, True, True
    chars_map = b""
    for number, value in fields(pathlib.Path(path).read_bytes()):
        if number == 1:
            piece = dict(fields(value))
            tokens.append(piece.get(1, b""))
            scores.append(struct.unpack("<f", piece.get(2, b"\0\0\0\0"))[0])
            types.append(piece.get(3, NORMAL))
        elif number == 2:
            unigram = dict(fields(value)).get(3, 1) == 1
        elif number == 3:
            normalizer = dict(fields(value))
            prefix, extra = normalizer.get(3, 1) != 0, normalizer.get(4, 1) != 0
            chars_map = normalizer.get(2, b"")
    assert not unigram and not chars_map, "only BPE models without a character map are written here"
    return {"model": "llama", "tokens": tokens, "scores": scores, "token_type": types, "add_space_prefix": prefix,
            "remove_extra_whitespaces": extra, "unknown_token_id": types.index(UNKNOWN), "add_bos_token": False}


def from_rwkv(path):
    tokens, types = {0: "<s>"}, {0: CONTROL}
    for line in pathlib.Path(path).read_text().splitlines():
        number, literal = line[:line.rindex(" ")].split(" ", 1)
        token = ast.literal_eval(literal)
        tokens[int(number)] = repr(token if isinstance(token, bytes) else token.encode())[2:-1]
        types[int(number)] = NORMAL
    size = max(tokens) + 1
    return {"model": "rwkv", "tokens": [tokens.get(i, f"[PAD{i}]") for i in range(size)],
            "token_type": [types.get(i, UNUSED) for i in range(size)]}


def convert(path, out):
    name = pathlib.Path(path).name
    read = from_sentencepiece if ".model" in name else from_rwkv if name.endswith(".txt") else from_json
    write(out, read(path))
