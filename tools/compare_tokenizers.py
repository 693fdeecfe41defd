"""Compares our token ids with those of Hugging Face tokenizers, sentencepiece and RWKV's own rule.

    python3 -m venv /tmp/v && /tmp/v/bin/pip install tokenizers sentencepiece
    /tmp/v/bin/python tools/compare_tokenizers.py --probe build/dev/tests/tokenizer_probe [--quick] FILE...

FILE is a tokenizer.json (compared with `tokenizers`), a SentencePiece model (*.model*, compared with
`sentencepiece`) or rwkv_vocab_v20230424.txt (compared with a few lines below). Each is read as it is, and again
from GGUF metadata made of it (gguf_vocab.py).

The text is made here: prose and code of this repository, samples of many scripts, all of Unicode, every kind of
white space, emoji with joiners, marks in any order, long runs; about 20 MB (3 with --quick), and 1 MB that is not
UTF-8. The libraries take no bytes, except sentencepiece. There the expected ids are those of the library's own
pre-tokenizer, on the text with control characters in the place of invalid bytes, and of its model on pieces that
have the bytes. Shows the first differences and exits with 1 if there are any.
"""
import argparse
import ast
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

import gguf_vocab

ROOT = pathlib.Path(__file__).resolve().parent.parent
SAMPLES = [
    "The quick brown fox can't jump over the lazy dog's fence; they'll say it's 1,234.56 metres!",
    "We've I'M HE'LL you'RE don'T 'Tis 'twas rock'n'roll ''quoted'' \"double\" `tick` 'ſ",
    "Größe, Äpfel, Straße, naïve café, Żółć, čeština, Íslenska, Ελληνικά, ΑΒΓ αβγ, Русский язык.",
    "中文分词测试：我爱北京天安门，2024年12月31日。「引号」、《书名号》！简体與繁體。",
    "日本語のテキスト：ひらがな、カタカナ、漢字。ｶﾀｶﾅ半角〜ー々〆。東京タワーへ行きました。",
    "한국어 형태소 분석: 안녕하세요, 세계! 각각 가나다라 ㄱㄴㄷ",
    "مرحبا بالعالم! هذا نص عربي للاختبار، ١٢٣٤٥ مُشَكَّل بِالْحَرَكَاتِ.",
    "שלום עולם בְּרֵאשִׁית ברא אלהים", "नमस्ते दुनिया! क्षत्रिय हिन्दी १२३", "สวัสดีชาวโลก ภาษาไทยไม่มีช่องว่าง",
    "Xin chào thế giới! Tiếng Việt có dấu: ạảãàáâậấầẩẫăắằặẳẵ", "বাংলা ভাষা தமிழ் తెలుగు ಕನ್ನಡ മലയാളം සිංහල",
    "👨‍👩‍👧‍👦 👩🏽‍🚀 🏳️‍🌈 🇩🇪🇯🇵 ❤️‍🔥 🤷🏾‍♀️ ☺️ 1️⃣ #️⃣ ©️ ™ 😀😃😄😁",
    "def f(x: int) -> str:\n    return f\"{x:>10}\"  # comment\n\n\nclass A(B):\n\tpass\r\n",
    "#include <vector>\nint main() {\n  std::vector<int> v{1, 2, 3};\n  return v[0] << 2 | 0xFF;\n}\n",
    "{\"key\": [1, 2.5e-10, null, true], \"nested\": {\"a\\u00e9\": \"\\n\"}}", "SELECT * FROM t WHERE a>=10 AND b!='x';",
    "https://example.com/path?q=1&r=%20#frag user@example.org /usr/local/bin C:\\Windows\\System32",
    "a  b   c    d\t\te\n\nf\n \n g \r\n\r\n h\u00a0i\u2003j\u3000k\u2028l\u2029m\u0085n\u200bo\ufeffp",
    "e\u0301 o\u0308\u0304 a\u0323\u0302 \u1100\u1161\u11a8 q\u0307\u0323 \u0344 \u212b \u2126 \u0958 ≠ =\u0338",
    "1234567890 12 345 6789 ½ ² ³ ① Ⅷ ٣ ३ 三 〇 1.000.000,00 0x1F 1e5 v2.0.1",
    "!!! ??? ... --- *** ### @@@ $$$ %%% ^^^ &&& ((( ))) [[[ ]]] {{{ }}} <<< >>> |||  ~~~ ```",
    "<|im_start|>user\nHi<|im_end|> <|endoftext|> <s> </s> <think>hm</think> <0x0A> <unk> [INST] <bos>",
    "<｜User｜>hi<｜Assistant｜> <｜end▁of▁sentence｜> <|eot_id|><|begin_of_text|> <tool_call>",
]
SPACES = "\t\n\v\f\r \u0085\u00a0\u1680\u2000\u2003\u2009\u200a\u2028\u2029\u202f\u205f\u3000\u180e\u200b\ufeff"
BLOCKS = [(0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x52F), (0x590, 0x5FF),
          (0x600, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F), (0x1100, 0x11FF), (0x1E00, 0x1EFF), (0x2000, 0x206F),
          (0x20A0, 0x20FF), (0x2100, 0x214F), (0x2190, 0x22FF), (0x2600, 0x27BF), (0x3000, 0x30FF),
          (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xE000, 0xE0FF), (0xF900, 0xFAFF), (0xFE00, 0xFEFF),
          (0xFF00, 0xFFEF), (0x10400, 0x1044F), (0x11F00, 0x11F59), (0x1D400, 0x1D7FF), (0x1F300, 0x1FAFF),
          (0x20000, 0x2A6DF), (0x31350, 0x323AF)]


def every_code_point():
    codes = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    for begin in range(0, len(codes), 48):
        row = codes[begin:begin + 48]
        yield "".join(row)
        yield "a" + " x".join(row) + "1"
        yield "e" + "e".join(row)


def random_texts(rng, count):
    words = " ".join(SAMPLES).split(" ")
    for _ in range(count):
        parts = []
        for _ in range(rng.randrange(1, 60)):
            kind = rng.random()
            if kind < 0.45:
                parts.append(rng.choice(words))
            elif kind < 0.6:
                first, last = rng.choice(BLOCKS)
                parts.append("".join(chr(rng.randint(first, last)) for _ in range(rng.randrange(1, 8))))
            elif kind < 0.7:
                parts.append("".join(rng.choice(SPACES) for _ in range(rng.randrange(1, 5))))
            elif kind < 0.75:
                parts.append(str(rng.randrange(10 ** rng.randrange(1, 12))))
            elif kind < 0.8:
                parts.append(rng.choice("aA .\n'-=*") * rng.randrange(1, 200))
            else:
                parts.append(" ")
        yield "".join(parts)


def hostile_texts(rng, size):
    """Long lines that no pre-tokenizer splits, and such that it splits at every other byte."""
    lower = "abcdefghijklmnopqrstuvwxyz"
    letters = lower + lower.upper()
    for alphabet in (lower, letters, letters + "0123456789", letters + "0123456789+/", "01", "ab", "aA0 ",
                     "!\"#$%&'()*+,-./:;<=>?@[]^_`{|}~", "aeiou\u00e4\u00e9", " \n\t"):
        yield "".join(rng.choices(alphabet, k=size))
    for first, last in BLOCKS[20:30]:
        yield "".join(chr(rng.randint(first, last)) for _ in range(size // 3))
    yield " ".join("".join(rng.choices(lower, k=rng.randrange(1, 40))) for _ in range(size // 20))
    yield "".join(rng.choice("a-=*#. \n") * rng.randrange(1, 97) for _ in range(size // 48))
    for unit in ("a", "ab", "abc", " ", "\n", "=", "\u4e2d", "\U0001f642", "the", "1234567890", "aAbB", "\u00e9x"):
        yield unit * (size // len(unit.encode()))
        yield unit * rng.randrange(300, 900) + "x" + unit * rng.randrange(300, 900) + "yz" + unit * 131


def corpus(quick):
    rng = random.Random(20240501)
    texts = ["", " ", "  ", "\n", "a", " a", "a ", "▁", "▁a", " ▁ a"] + SAMPLES
    texts += [a + b for a in SAMPLES for b in SAMPLES[::5]]
    for path in sorted(ROOT.glob("src/**/*")) + sorted(ROOT.glob("tools/*.py")) + sorted(ROOT.glob("*.md")):
        if path.suffix in {".cc", ".h", ".py", ".md"} and ".gen." not in path.name:
            texts.append(path.read_text())
    texts += random_texts(rng, 1500 if quick else 4000)
    rows = list(every_code_point())
    texts += rows[::15] if quick else rows
    texts += ["".join(rng.choice(SAMPLES) for _ in range(500)),
              "".join(rng.choice(SAMPLES[3:8]).replace(" ", "") for _ in range(200))]
    texts += [c * n for c in ("a", " ", "\n", "中", "é", "🙂", "ab", " a", "'s", "=") for n in (100, 1000, 5000)]
    texts += hostile_texts(rng, 20_000 if quick else 100_000)
    return texts


# Bytes that are not UTF-8: stray, cut off, overlong, surrogates, beyond the last code point.
BROKEN = [b"\xff", b"\x80", b"\xc3", b"\xe4\xbd", b"\xf0\x9f\x9a", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80",
          b"\xe2\x96", b"\xfe\xfe", b"\xe0\x80\x80"]


def break_text(rng, text):
    """The text's bytes with others between them, and cut anywhere."""
    # Without what could be an added token, for which pieces alone would not be enough.
    data = bytearray(re.sub("[<\\[\x1a]|  +|can't", "(", text).encode())
    for _ in range(rng.randrange(1, 20)):
        at = rng.randrange(len(data) + 1)
        data[at:at] = rng.choice(BROKEN) if rng.random() < 0.7 else bytes([rng.randrange(128, 256)])
    if rng.random() < 0.3:
        del data[rng.randrange(len(data)):]
    return bytes(data)


def broken_corpus(quick):
    rng = random.Random(7)
    texts = BROKEN + [b"a" + part + b" b" for part in BROKEN]
    any_byte = [byte for byte in range(0x21, 256) if byte not in b"<["]
    texts += [bytes(rng.choices(any_byte, k=5000)) for _ in range(8)]
    size = 0
    while size < (200_000 if quick else 1_000_000):
        texts.append(break_text(rng, next(random_texts(rng, 1))))
        size += len(texts[-1])
    return texts


def ours(probe, path, texts, options):
    records = bytearray()
    for text in texts:
        data = text if isinstance(text, bytes) else text.encode()
        records += struct.pack("<I", len(data)) + data
    out = subprocess.run([probe, path, *options], input=bytes(records), stdout=subprocess.PIPE, check=True).stdout
    at = 0
    for _ in texts:
        count, = struct.unpack_from("<I", out, at)
        ids = struct.unpack_from(f"<{count}i", out, at + 4)
        at += 4 + 4 * count
        size, = struct.unpack_from("<I", out, at)
        yield list(ids), out[at + 4:at + 4 + size].decode()
        at += 4 + size


def byte_alphabet():
    """GPT-2's printable character for every byte."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {**{byte: chr(byte) for byte in plain}, **{byte: chr(256 + i) for i, byte in enumerate(others)}}


class HuggingFace:
    def __init__(self, path):
        import tokenizers
        self.name = f"tokenizers {tokenizers.__version__}"
        self.reference = tokenizers.Tokenizer.from_file(str(path))

    def encode(self, texts, special):
        self.reference.encode_special_tokens = not special
        for begin in range(0, len(texts), 1000):
            for encoding in self.reference.encode_batch(texts[begin:begin + 1000], add_special_tokens=special):
                yield encoding.ids

    def encode_bytes(self, texts):
        alphabet = byte_alphabet()
        byte_level = "ByteLevel" in str(self.reference.pre_tokenizer)
        # Byte tokens are for what is no token itself.
        control = next(code for code in (*range(1, 9), *range(14, 32)) if self.reference.token_to_id(chr(code)) is None)
        stand_in = self.reference.token_to_id(f"<0x{control:02X}>")
        for data in texts:
            text = data.decode("utf-8", "surrogateescape")
            bad = iter(ord(c) - 0xDC00 for c in text if "\udc80" <= c <= "\udcff")
            if not byte_level:
                text = re.sub("[\udc80-\udcff]", chr(control), text)
                ids = self.reference.encode(text, add_special_tokens=False).ids
                yield [self.reference.token_to_id(f"<0x{next(bad):02X}>") if i == stand_in else i for i in ids]
                continue
            text = re.sub("[\udc80-\udcff]", "\x1a", text)
            if self.reference.normalizer:
                text = self.reference.normalizer.normalize_str(text)
            ids = []
            for piece, _ in self.reference.pre_tokenizer.pre_tokenize_str(text):
                piece = "".join(alphabet[next(bad)] if c == alphabet[0x1A] else c for c in piece)
                ids += [token.id for token in self.reference.model.tokenize(piece)]
            yield ids

    def decode(self, ids):
        return self.reference.decode(ids, skip_special_tokens=False)

    def token(self, token_id):
        return self.reference.id_to_token(token_id)


class SentencePiece:
    def __init__(self, path):
        import sentencepiece
        self.name = f"sentencepiece {sentencepiece.__version__}"
        self.reference = sentencepiece.SentencePieceProcessor(model_file=str(path))

    def encode(self, texts, special):
        # Control symbols are never parsed here, so only plain text is compared.
        for text in texts if not special else []:
            yield self.reference.encode(text)

    def encode_bytes(self, texts):
        yield from map(self.reference.encode, texts)

    def decode(self, ids):
        return self.reference.decode(ids)

    def token(self, token_id):
        return self.reference.id_to_piece(token_id)


class RwkvWorld:
    name = "the greedy rule of RWKV World"

    def __init__(self, path):
        self.ids = {}
        for line in pathlib.Path(path).read_text().splitlines():
            literal = ast.literal_eval(line[line.index(" "):line.rindex(" ")].strip())
            self.ids[literal if isinstance(literal, bytes) else literal.encode()] = int(line[:line.index(" ")])
        self.tokens = {number: token for token, number in self.ids.items()}
        self.sizes = {}  # by the first two bytes, the longest first
        for size in sorted({len(token) for token in self.ids}, reverse=True):
            for start in {token[:2] for token in self.ids if len(token) == size}:
                self.sizes.setdefault(start, []).append(size)

    def encode(self, texts, special):
        return self.encode_bytes([text.encode() for text in texts] if not special else [])

    def encode_bytes(self, texts):
        for data in texts:
            at, ids = 0, []
            while at < len(data):
                sizes = self.sizes.get(data[at:at + 2], [])
                size = next((size for size in sizes if data[at:at + size] in self.ids), 1)
                ids.append(self.ids[data[at:at + size]])
                at += size
            yield ids

    def decode(self, ids):
        return b"".join(self.tokens[i] for i in ids).decode()

    def token(self, token_id):
        return self.tokens.get(token_id)


def reference_for(path):
    name = pathlib.Path(path).name
    return SentencePiece(path) if ".model" in name else RwkvWorld(path) if name.endswith(".txt") else HuggingFace(path)


def show(reference, text, expected, got):
    at = next((i for i, (a, b) in enumerate(zip(expected, got)) if a != b), min(len(expected), len(got)))
    window = slice(max(0, at - 3), at + 6)
    print(f"  text      {text[:200]!r}{'...' if len(text) > 200 else ''}")
    print(f"  expected  {expected[window]} {[reference.token(i) for i in expected[window]]}")
    print(f"  got       {got[window]} {[reference.token(i) for i in got[window]]}")


class Expected:
    """What the reference gives, computed once for both kinds of file."""

    def __init__(self, reference, texts, broken):
        self.reference = reference
        self.plain = list(reference.encode(texts, False))
        self.special = list(reference.encode(texts, True))
        self.decoded = [reference.decode(ids) for ids in self.plain]
        self.broken = list(reference.encode_bytes(broken))


def compare(probe, path, expected, texts, broken):
    """The number of texts whose ids or decoded text differ."""
    differences = 0
    runs = [(texts, expected.plain, [])]
    is_gguf = path.suffix == ".gguf"
    if not is_gguf:  # whose metadata does not know the flags of added tokens
        runs.append((texts, expected.special, ["special"]))
    if not (is_gguf and isinstance(expected.reference, SentencePiece)):  # where we keep the bytes, it has U+FFFD
        runs.append((broken, expected.broken, []))
    for inputs, wanted, options in runs:
        for index, (text, ids, (got, decoded)) in enumerate(zip(inputs, wanted, ours(probe, path, inputs, options))):
            if ids != got:
                differences += 1
                if differences <= 5:
                    show(expected.reference, text, ids, got)
            elif wanted is expected.plain:
                ought = expected.decoded[index]
                if "\ufffd" not in ought and ought != decoded:
                    differences += 1
                    if differences <= 5:
                        print(f"  decoded {decoded[:200]!r}, expected {ought[:200]!r}")
    return differences


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--probe", required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("files", nargs="+")
    arguments = parser.parse_args()
    texts, broken = corpus(arguments.quick), broken_corpus(arguments.quick)
    size, broken_size = sum(len(text.encode()) for text in texts), sum(map(len, broken))
    print(f"{len(texts)} texts, {size / 1e6:.1f} MB; {len(broken)} not UTF-8, {broken_size / 1e6:.1f} MB", flush=True)
    failed = False
    for path in arguments.files:
        reference = reference_for(path)
        expected = Expected(reference, texts, broken)
        with tempfile.TemporaryDirectory() as folder:
            gguf = pathlib.Path(folder) / "vocab.gguf"
            gguf_vocab.convert(path, gguf)
            for name, file in ((path, pathlib.Path(path)), (path + ", as GGUF", gguf)):
                differences = compare(arguments.probe, file, expected, texts, broken)
                print(f"{name}: {differences or 'no'} differences to {reference.name}", flush=True)
                failed |= differences > 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
