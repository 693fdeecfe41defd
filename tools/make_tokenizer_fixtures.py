"""Makes the small tokenizers and expected ids in tests/data/tokenizers/.

    python3 -m venv /tmp/v && /tmp/v/bin/pip install tokenizers==0.23.3 sentencepiece==0.2.2
    /tmp/v/bin/python tools/make_tokenizer_fixtures.py tests/data/tokenizers

NAME.json is a tokenizer.json, NAME.model a SentencePiece model, NAME.txt a vocabulary in RWKV's format, all
with small vocabularies trained here. NAME.vectors.json has texts with the ids and the decoded text that
Hugging Face tokenizers, sentencepiece and RWKV's rule give for them; what is not UTF-8 is there as "hex".
"""
import io
import json
import pathlib
import random
import sys
import tempfile

import sentencepiece
import tokenizers
from compare_tokenizers import BROKEN, SAMPLES, HuggingFace, RwkvWorld, SentencePiece, break_text
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

CONTRACTIONS = r"'s|'t|'re|'ve|'m|'ll|'d"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = (rf"(?i:{CONTRACTIONS})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|"
          + SPACES)
QWEN2 = LLAMA3.replace("{1,3}", "")
QWEN35 = (rf"(?i:{CONTRACTIONS})|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|"
          + SPACES)
DEEPSEEK3 = ["\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
             "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
             "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
PREFIX = r"[^\r\n\p{L}\p{N}]?"
TEKKEN = (rf"{PREFIX}{UPPER}*{LOWER}+|{PREFIX}{UPPER}+{LOWER}*|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|" + SPACES)
O200K = (rf"{PREFIX}{UPPER}*{LOWER}+(?i:{CONTRACTIONS})?|{PREFIX}{UPPER}+{LOWER}*(?i:{CONTRACTIONS})?|\p{{N}}{{1,3}}|"
         r" ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES)
TEXTS = ["", " ", "   ", "\n\n \n", "a", " a ", "▁", "\U0001171E\u0327", "\U00011F02\U00031350 \U0001CCD6x"] + SAMPLES
BROKEN_TEXTS = BROKEN + [break_text(random.Random(i), text) for i, text in enumerate(SAMPLES[::3])]
SPECIALS = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]


def split(*patterns):
    steps = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return pre_tokenizers.Sequence(steps + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def trained(pre_tokenizer, normalizer=None):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=480, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    tokenizer.train_from_iterator(SAMPLES * 3, trainer)
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIALS])
    tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken("can't", single_word=True),
                          AddedToken("[l]", lstrip=True, normalized=False),
                          AddedToken("[r]", rstrip=True, normalized=False)])
    return tokenizer


def with_bos(tokenizer):
    bos = SPECIALS[0]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A", special_tokens=[(bos, tokenizer.token_to_id(bos))])
    return tokenizer


def byte_level():
    yield "gpt2", trained(pre_tokenizers.ByteLevel(add_prefix_space=False))
    yield "gpt2_prefix_space", trained(pre_tokenizers.ByteLevel(add_prefix_space=True))
    yield "llama3", with_bos(trained(split(LLAMA3)))
    yield "qwen2", trained(split(QWEN2), normalizers.NFC())
    yield "qwen35", trained(split(QWEN35), normalizers.NFC())
    yield "deepseek3", trained(split(*DEEPSEEK3), normalizers.Sequence([]))
    yield "tekken", trained(split(TEKKEN))
    yield "o200k", trained(split(O200K))
    digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                      pre_tokenizers.ByteLevel(add_prefix_space=False)])
    yield "digits", trained(digits)
    after = pre_tokenizers.Sequence([pre_tokenizers.Punctuation("contiguous"),
                                     pre_tokenizers.ByteLevel(add_prefix_space=False),
                                     pre_tokenizers.Digits(individual_digits=False),
                                     pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")])
    yield "falcon", trained(after)


def trained_characters(name, normalizer, pre_tokenizer, decoder):
    """SentencePiece's conventions in a tokenizer.json: characters, spaces as U+2581, byte tokens."""
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    specials = ["<unk>", "<s>", "</s>"]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    if normalizer:
        tokenizer.normalizer = normalizer
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoder
    trainer = trainers.BpeTrainer(vocab_size=560, special_tokens=specials + byte_tokens, limit_alphabet=120,
                                  show_progress=False)
    # Without a pre-tokenizer the trainer would learn whole lines: train on words.
    words = [("▁" if i else "") + word for text in SAMPLES * 3 for i, word in enumerate(text.split(" "))]
    tokenizer.train_from_iterator(words, trainer)
    document = json.loads(tokenizer.to_str())
    # The trainer marks byte tokens as special; published files do not.
    document["added_tokens"] = [dict(token, normalized=name == "llama2_normalized")
                                for token in document["added_tokens"] if token["content"] in specials]
    tokenizer = Tokenizer.from_str(json.dumps(document))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return name, tokenizer


def character_level():
    replace = normalizers.Replace(" ", "▁")
    spaces = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    llama2 = (normalizers.Sequence([normalizers.Prepend("▁"), replace]), None,
              decoders.Sequence(spaces + [decoders.Strip(" ", 1, 0)]))
    yield trained_characters("llama2", *llama2)
    yield trained_characters("llama2_normalized", *llama2)
    yield trained_characters("gemma", replace, None, decoders.Sequence(spaces))
    for scheme, cut in (("first", False), ("always", True), ("never", True)):
        yield trained_characters(
            f"metaspace_{scheme}", None, pre_tokenizers.Metaspace(prepend_scheme=scheme, split=cut),
            decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme=scheme, split=cut)]))


def unigram():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip(True, True)])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    trainer = trainers.UnigramTrainer(vocab_size=320, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>",
                                      show_progress=False)
    tokenizer.train_from_iterator(SAMPLES[:3] * 3, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    return "unigram", tokenizer


def sentencepiece_model(**options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter((SAMPLES[:4] + SAMPLES[12:18]) * 5), model_writer=model,
        hard_vocab_limit=False, minloglevel=2, **options)
    return model.getvalue()


def sentencepiece_models():
    # A small map instead of the 240 kB of NFKC.
    rules = {"Ａ": "A", "ﬁ": "fi", "e\u0301": "é", "①": "1", "\u3000": " ", "\u00a0": " ", "½": "1/2", "…": "..."}
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as table:
        for source, target in rules.items():
            columns = [" ".join(f"{ord(c):X}" for c in text) for text in (source, target)]
            table.write("\t".join(columns) + "\n")
        table.flush()
        yield "spm_bpe", sentencepiece_model(
            model_type="bpe", vocab_size=600, byte_fallback=True, normalization_rule_name="identity",
            remove_extra_whitespaces=False, split_digits=True, allow_whitespace_only_pieces=True)
        yield "spm_unigram", sentencepiece_model(
            model_type="unigram", vocab_size=500, normalization_rule_tsv=table.name)
        yield "spm_unigram_bytes", sentencepiece_model(
            model_type="unigram", vocab_size=700, byte_fallback=True, add_dummy_prefix=False,
            normalization_rule_name="identity", remove_extra_whitespaces=False)


def sentencepiece_vectors(model):
    library = sentencepiece.SentencePieceProcessor(model_proto=model)
    for text in TEXTS + ["Ａﬁ e\u0301 ①\u3000½…  x  "]:
        ids = library.encode(text)
        vector = {"text": text, "plain": ids}
        if library.unk_id() not in ids:  # printed as U+2047 there
            vector["decoded"] = library.decode(ids)
        yield vector


def rwkv_vocabulary():
    tokens = [bytes([byte]) for byte in range(256)]
    words = {word.encode() for text in SAMPLES for word in text.replace(" ", "\0 ").split("\0") if len(word) > 1}
    tokens += sorted(words) + ["  ".encode(), b"\n\n", "中文".encode(), b"\xe4\xb8", b"\xf0\x9f"]
    lines = []
    for number, token in enumerate(dict.fromkeys(tokens), 1):
        try:
            literal = repr(token.decode())
        except UnicodeDecodeError:
            literal = repr(token)
        lines.append(f"{number} {literal} {len(token)}\n")
    return "".join(lines)


def rwkv_vectors(path):
    rule = RwkvWorld(path)
    for text, ids in zip(TEXTS, rule.encode(TEXTS, False)):
        yield {"text": text, "plain": ids, "decoded": rule.decode(ids)}


def vectors(tokenizer):
    flags = "x [l] y  [r]  z can't cannot can'ts <think> \u3000[l]\u3000[r]\u3000"
    for text in TEXTS + [flags]:
        tokenizer.encode_special_tokens = True
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        tokenizer.encode_special_tokens = False
        special = tokenizer.encode(text, add_special_tokens=True).ids
        vector = {"text": text, "special": special, "decoded": tokenizer.decode(special, skip_special_tokens=False)}
        # The library's unigram model makes special tokens of plain text; ours never does.
        if not isinstance(tokenizer.model, models.Unigram) or not any(t in text for t in ("<unk>", "<s>", "</s>")):
            vector["plain"] = plain
        yield vector


def broken_vectors(reference):
    return [{"hex": data.hex(), "plain": ids} for data, ids in zip(BROKEN_TEXTS, reference.encode_bytes(BROKEN_TEXTS))]


def write(folder, name, document):
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    (folder / name).write_text(text + "\n")


def main():
    folder = pathlib.Path(sys.argv[1])
    assert tokenizers.__version__ == "0.23.3", tokenizers.__version__
    assert sentencepiece.__version__ == "0.2.2", sentencepiece.__version__
    for name, tokenizer in [*byte_level(), *character_level(), unigram()]:
        write(folder, f"{name}.json", json.loads(tokenizer.to_str()))
        # A unigram model without byte tokens has nothing for such bytes.
        broken = [] if name == "unigram" else broken_vectors(HuggingFace(folder / f"{name}.json"))
        write(folder, f"{name}.vectors.json", list(vectors(tokenizer)) + broken)
    for name, model in sentencepiece_models():
        (folder / f"{name}.model").write_bytes(model)
        broken = broken_vectors(SentencePiece(folder / f"{name}.model"))
        write(folder, f"{name}.vectors.json", list(sentencepiece_vectors(model)) + broken)
    (folder / "rwkv.txt").write_text(rwkv_vocabulary())
    broken = broken_vectors(RwkvWorld(folder / "rwkv.txt"))
    write(folder, "rwkv.vectors.json", list(rwkv_vectors(folder / "rwkv.txt")) + broken)


if __name__ == "__main__":
    main()
