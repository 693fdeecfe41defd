"""Makes the small tokenizers and expected ids in tests/data/tokenizers/.

    python3 -m venv /tmp/v && /tmp/v/bin/pip install tokenizers==0.23.3
    /tmp/v/bin/python tools/make_tokenizer_fixtures.py tests/data/tokenizers

Each NAME.json is a tokenizer.json whose small vocabulary was trained here; NAME.vectors.json has texts
with the ids and the decoded text that Hugging Face tokenizers gives for them.
"""
import json
import pathlib
import sys

import tokenizers
from compare_tokenizers import SAMPLES
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


def vectors(tokenizer):
    flags = "x [l] y  [r]  z can't cannot can'ts <think> \u3000[l]\u3000[r]\u3000"
    for text in TEXTS + [flags]:
        tokenizer.encode_special_tokens = True
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        tokenizer.encode_special_tokens = False
        special = tokenizer.encode(text, add_special_tokens=True).ids
        yield {"text": text, "plain": plain, "special": special,
               "decoded": tokenizer.decode(special, skip_special_tokens=False)}


def write(folder, name, document):
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    (folder / name).write_text(text + "\n")


def main():
    folder = pathlib.Path(sys.argv[1])
    assert tokenizers.__version__ == "0.23.3", tokenizers.__version__
    for name, tokenizer in byte_level():
        write(folder, f"{name}.json", json.loads(tokenizer.to_str()))
        write(folder, f"{name}.vectors.json", list(vectors(tokenizer)))


if __name__ == "__main__":
    main()
