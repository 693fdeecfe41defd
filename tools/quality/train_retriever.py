"""A small model that retrieves, and held-out texts to ask it about: what SnapKV is measured with (README.md beside this).

    python3 tools/quality/train_retriever.py --books classic_childrens_books.jsonl.gz --out retriever/ --minutes 4

Trains a byte-level BPE and a decoder of Qwen3's architecture (plain PyTorch, one GPU; --small for a CPU) on books into which needles
are put, " Remember:KEY VALUE." with two rare words, and further on questions about them. Writes a Hugging Face folder and, in files of
`tokens` [texts, length], texts that end with the answers: `passkey` (one needle), `needle` (eight, one asked for), `needles` (eight, four asked
for) and `books` (books that were not trained on: how likely they go on).
"""
import argparse
import gzip
import json
import math
import pathlib
import re
import sys
import time

import torch
import torch.nn.functional as F
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "train"))
from muon import Muon  # noqa: E402

PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
           r"\s*[\r\n]+|\s+(?!\S)|\s+")  # of Qwen3: digits are tokens of their own
END = "<|endoftext|>"
ASKED, KEYS, VALUES = 4, 512, 512
SLOT = 16  # tokens; needles and questions begin in slots of their own
ANSWER_WEIGHT = 4.0
HEAD = 64
LENGTH = 4096  # of held-out texts
REAL = 4  # one text in so many is of books; the others are of their words in any order, which nobody can learn by heart
STAGES = ((0.25, 256), (0.4, 512), (0.55, 1024), (0.75, 2048), (1.0, 4096))  # up to this share of the time: tokens of a text
MATRIX_RATE, OTHER_RATE, WARM, FLAT = 4e-3, 3e-3, 0.02, 0.4


class Shape:
    def __init__(self, small):
        self.dim, self.layers, self.heads, self.kv_heads = (128, 2, 2, 1) if small else (256, 6, 4, 2)
        self.hidden = 3 * self.dim


class Layer(torch.nn.Module):
    def __init__(self, shape):
        super().__init__()
        line = lambda i, o: torch.nn.Linear(i, o, bias=False)
        weight = lambda n: torch.nn.ParameterDict({"weight": torch.ones(n)})
        self.shape = shape
        self.input_layernorm, self.post_attention_layernorm = weight(shape.dim), weight(shape.dim)
        q, kv = shape.heads * HEAD, shape.kv_heads * HEAD
        self.self_attn = torch.nn.ModuleDict({
            "q_proj": line(shape.dim, q), "k_proj": line(shape.dim, kv), "v_proj": line(shape.dim, kv),
            "o_proj": line(q, shape.dim), "q_norm": weight(HEAD), "k_norm": weight(HEAD)})
        self.mlp = torch.nn.ModuleDict({"gate_proj": line(shape.dim, shape.hidden), "up_proj": line(shape.dim, shape.hidden),
                                        "down_proj": line(shape.hidden, shape.dim)})

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        attention = self.self_attn
        h = norm(x, self.input_layernorm)
        heads = lambda name, n: attention[name](h).view(batch, length, n, HEAD).transpose(1, 2)
        v = heads("v_proj", self.shape.kv_heads)
        q = rotate(norm(heads("q_proj", self.shape.heads), attention["q_norm"]), cos, sin).to(v.dtype)
        k = rotate(norm(heads("k_proj", self.shape.kv_heads), attention["k_norm"]), cos, sin).to(v.dtype)
        group = self.shape.heads // self.shape.kv_heads
        y = F.scaled_dot_product_attention(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), is_causal=True)
        x = x + attention["o_proj"](y.transpose(1, 2).reshape(batch, length, -1))
        h = norm(x, self.post_attention_layernorm)
        return x + self.mlp["down_proj"](F.silu(self.mlp["gate_proj"](h)) * self.mlp["up_proj"](h))


def norm(x, weight):
    return F.rms_norm(x.float(), (x.shape[-1],), weight["weight"], 1e-6)


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Model(torch.nn.Module):
    def __init__(self, shape, vocab):
        super().__init__()
        self.shape, self.vocab = shape, vocab
        self.embed_tokens = torch.nn.Embedding(vocab, shape.dim)  # and the matrix of the logits
        self.layers = torch.nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = torch.nn.ParameterDict({"weight": torch.ones(shape.dim)})
        for name, p in self.named_parameters():
            if p.ndim == 2:
                torch.nn.init.normal_(p, 0, 0.02 / (math.sqrt(2 * shape.layers) if "o_proj" in name or "down" in name else 1))

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        rates = 10000.0 ** (-torch.arange(0, HEAD, 2, device=tokens.device) / HEAD)
        angle = torch.outer(places, rates)
        x = self.embed_tokens(tokens)
        with torch.autocast(tokens.device.type, torch.bfloat16, enabled=tokens.device.type == "cuda"):
            for layer in self.layers:
                x = layer(x, angle.cos(), angle.sin())
            return F.linear(norm(x, self.norm), self.embed_tokens.weight)


def read_books(path):
    quotes = {0x2018: "'", 0x2019: "'", 0x201C: '"', 0x201D: '"', 0x2014: "-", 0x2013: "-"}
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        texts = [re.sub(r"^#.*$|^-+$", "", json.loads(line)["text"], flags=re.M).translate(quotes) for line in lines]
    return [re.sub(r"\n{2,}", "\n", text).strip() for text in texts]


def train_tokenizer(texts, size):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size - 1, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    tokenizer.add_special_tokens([END])
    return tokenizer


class Texts:
    """Windows of the tokens of books, with needles and questions over them. All on the device of `tokens`."""

    def __init__(self, tokenizer, tokens, seed):
        self.tokens, self.device = tokens, tokens.device
        self.random = torch.Generator(self.device).manual_seed(seed)
        ids = lambda text: torch.tensor(tokenizer.encode(text).ids, device=self.device)
        words = sorted((i, word) for word, i in tokenizer.get_vocab().items() if re.fullmatch(r"Ġ[a-z]{3,}", word))
        rare = torch.tensor([i for i, _ in words[-KEYS - VALUES:]], device=self.device)  # words, not syllables
        self.keys, self.values = rare[1::2], rare[::2]
        self.state, self.stop = ids(" Remember:"), ids(".")
        self.what, self.comma, self.and_, self.mark = (ids(text) for text in ("\nWhat goes with", ",", " and", "?"))
        self.needle_tokens = len(self.state) + 2 + len(self.stop)
        word = lambda i: tokenizer.id_to_token(int(i)).replace("Ġ", " ")
        (key, other), (value, second) = map(word, self.keys[:2]), map(word, self.values[:2])
        one = self.questions(self.keys[:1].view(1, 1, 1), self.values[:1].view(1, 1, 1))[0].flatten()
        two = self.questions(self.keys[:2].view(1, 1, 2), self.values[:2].view(1, 1, 2))[0].flatten()
        assert one.tolist() == tokenizer.encode(f"\nWhat goes with{key}? Remember:{key}{value}.").ids
        assert two.tolist() == tokenizer.encode(f"\nWhat goes with{key} and{other}? Remember:{key}{value}."
                                                f" Remember:{other}{second}.").ids

    def below(self, n, shape):
        return torch.randint(n, shape, generator=self.random, device=self.device)

    def distinct(self, n, rows, count):
        return torch.rand(rows, n, generator=self.random, device=self.device).argsort(1)[:, :count]

    def needles(self, keys, values):
        """[.., needle tokens] and what each weighs in the loss: words out of nowhere nothing."""
        wide = lambda piece: piece.expand(*keys.shape, len(piece))
        text = torch.cat([wide(self.state), keys[..., None], values[..., None], wide(self.stop)], -1)
        weight = torch.ones(text.shape, device=self.device)
        weight[..., -3:-1] = 0
        return text, weight

    def questions(self, keys, values):
        """For keys [rows, n, asked]: [rows, n, tokens] of a question and its answers, and what each weighs."""
        wide = lambda piece: piece.expand(*keys.shape[:2], len(piece))
        asked = keys.shape[2]
        parts = [wide(self.what)]
        for i in range(asked):
            parts += [wide(self.and_ if i == asked - 1 else self.comma)] if i > 0 else []
            parts.append(keys[..., i:i + 1])
        parts.append(wide(self.mark))
        head = torch.cat(parts, -1)
        answers, weight = self.needles(keys, values)
        weight[..., -3:-1] = ANSWER_WEIGHT
        return torch.cat([head, answers.flatten(2)], -1), torch.cat([torch.ones(head.shape, device=self.device), weight.flatten(2)], -1)

    def put(self, rows, weights, at, text, weight):
        """Writes text [rows, n, tokens] at [rows, n]."""
        places = (at[..., None] + torch.arange(text.shape[-1], device=self.device)).flatten(1)
        rows.scatter_(1, places, text.flatten(1))
        weights.scatter_(1, places, weight.flatten(1))

    def windows(self, count, length):
        at = self.below(len(self.tokens) - length, (count, 1))
        return self.tokens[at + torch.arange(length, device=self.device)].long()

    def make(self, count, length, needles, asked, inside):
        """Texts that end with a question about `asked` of the needles and its answers; `inside`, to learn from: and are asked
        about all of them on the way, and most are words in any order, which weigh nothing."""
        rows = self.windows(count, length)
        weights = torch.ones(rows.shape, device=self.device)
        if inside:
            real = max(1, count // REAL)
            order = torch.rand(count - real, length, generator=self.random, device=self.device).argsort(1)
            rows[real:] = rows[real:].gather(1, order)
            weights[real:] = 0
        keys = self.keys[self.distinct(len(self.keys), count, needles)]
        values = self.values[self.below(len(self.values), (count, needles))]
        tail, tail_weight = self.questions(keys[:, None, :asked], values[:, None, :asked])
        slots = (length - tail.shape[-1]) // SLOT
        taken = self.distinct(slots, count, needles * (2 if inside else 1))
        first = taken if not inside else torch.minimum(taken[:, :needles], taken[:, needles:])
        self.put(rows, weights, first * SLOT, *self.needles(keys, values))
        if inside:
            last = torch.maximum(taken[:, :needles], taken[:, needles:])
            self.put(rows, weights, last * SLOT, *self.questions(keys[..., None], values[..., None]))
        self.put(rows, weights, torch.full((count, 1), length - tail.shape[-1], device=self.device), tail, tail_weight)
        return rows, weights

    def answers(self, length, asked):
        """Places of the values that a text of `make` ends with, [asked, 1]."""
        return (length - 2 - self.needle_tokens * torch.arange(asked - 1, -1, -1, device=self.device))[:, None]


def loss_of(model, rows, weights):
    logits = model(rows[:, :-1])
    each = F.cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].flatten(), reduction="none")
    weight = weights[:, 1:].flatten()
    return (each * weight).sum() / weight.sum()


@torch.no_grad()
def accuracy(model, texts, length, needles, asked, count=32):
    rows, _ = texts.make(count, length, needles, asked, False)
    chosen = model(rows[:, :-1]).argmax(-1)
    places = texts.answers(length, asked)
    return (chosen[:, places - 1] == rows[:, places]).all(-1).float().mean().item()


def make_optimizers(model):
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    adam = torch.optim.AdamW(others, lr=OTHER_RATE, betas=(0.9, 0.95), weight_decay=0.0, fused=torch.cuda.is_available())
    return [(Muon(matrices, MATRIX_RATE, weight_decay=0.05), MATRIX_RATE), (adam, OTHER_RATE)]


def rate_at(done):
    if done < WARM:
        return max(done, 1e-3) / WARM
    return 1.0 if done < FLAT else 0.02 + 0.98 * (1 - done) / (1 - FLAT)


def train(model, texts, held, args):
    optimizers, begin, step, losses = make_optimizers(model), time.time(), 0, []
    budget = args.minutes * 60
    while (spent := time.time() - begin) < budget:
        done = spent / budget
        length = min(args.longest, next(n for share, n in STAGES if done < share))
        asked = ASKED if step % 2 else 1
        most = (length - 80) // SLOT // 2
        needles = max(asked, int(1 + most * torch.rand(1).item()))
        rows, weights = texts.make(max(1, args.tokens // length), length, min(most, needles), min(asked, most), True)
        loss = loss_of(model, rows, weights)
        for optimizer, peak in optimizers:
            optimizer.zero_grad(set_to_none=True)
            for group in optimizer.param_groups:
                group["lr"] = peak * rate_at(done)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, _ in optimizers:
            optimizer.step()
        losses.append(loss.detach())
        step += 1
        if step % args.report == 0:
            found = {n: [round(accuracy(model, held, n, *kind), 2) for kind in ((1, 1), (8, 1), (8, ASKED))]
                     for n in (512, args.longest) if n <= args.longest}
            print(f"step {step}, {time.time() - begin:.0f} s, length {length}: loss {torch.stack(losses[-args.report:]).mean():.3f}, "
                  f"found (one of 1, one of 8, four of 8): {found}", flush=True)


def write_safetensors(path, tensors):
    kinds = {torch.float16: "F16", torch.int32: "I32"}
    header, data = {}, b""
    for name, tensor in tensors.items():
        raw = tensor.contiguous().cpu().numpy().tobytes()
        header[name] = {"dtype": kinds[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def write_texts(path, rows, prompt, places):
    """Texts for snapkv_quality; `places`: what is asked for, [answers, tokens of one]."""
    whole = lambda *numbers: torch.tensor(numbers, dtype=torch.int32)
    write_safetensors(path, {"tokens": rows.int().flatten(), "length": whole(rows.shape[1]), "prompt": whole(prompt),
                             "answers": whole(len(places)), "places": places.int().flatten()})


def export(model, tokenizer, folder):
    shape = model.shape
    end = tokenizer.token_to_id(END)
    config = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": shape.dim, "num_hidden_layers": shape.layers,
              "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads, "head_dim": HEAD,
              "intermediate_size": shape.hidden, "vocab_size": model.vocab, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
              "max_position_embeddings": 2 * LENGTH, "hidden_act": "silu", "tie_word_embeddings": True, "attention_bias": False,
              "eos_token_id": end, "torch_dtype": "float16"}
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    write_safetensors(folder / "model.safetensors", {"model." + k: v.detach().half() for k, v in model.state_dict().items()})
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "bos_token": None, "add_bos_token": False}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--books", required=True, help="gzipped lines of {\"text\": ...}; one in twelve is held out")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--minutes", type=float, default=4)
    parser.add_argument("--texts", type=int, default=200, help="held-out texts of each kind")
    parser.add_argument("--vocab", type=int, default=4096)
    parser.add_argument("--tokens", type=int, default=65536, help="of a step")
    parser.add_argument("--longest", type=int, default=LENGTH)
    parser.add_argument("--report", type=int, default=250, help="steps between reports")
    parser.add_argument("--small", action="store_true", help="two layers of 128, to try this")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(args.seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    device = "cuda" if torch.cuda.is_available() else "cpu"
    begin = time.time()
    books = read_books(args.books)
    held_books = books[5::12]
    books = [book for i, book in enumerate(books) if i % 12 != 5]
    tokenizer = train_tokenizer([book[i:i + 20000] for book in books for i in range(0, len(book), 80000)], args.vocab)
    encode = lambda texts: torch.tensor([i for one in tokenizer.encode_batch(texts) for i in one.ids], dtype=torch.int16, device=device)
    tokens, held_tokens = encode(books), encode(held_books)
    model = Model(Shape(args.small), args.vocab).to(device)
    print(f"{len(tokens) / 1e6:.1f} M tokens, {len(held_tokens) / 1e6:.2f} M held out, {sum(p.numel() for p in model.parameters()) / 1e6:.2f} M "
          f"parameters, {time.time() - begin:.0f} s", flush=True)
    held = Texts(tokenizer, held_tokens, args.seed + 1000)
    train(model, Texts(tokenizer, tokens, args.seed), held, args)
    export(model, tokenizer, args.out)
    length = args.longest
    for name, needles, asked in (("passkey", 1, 1), ("needle", 8, 1), ("needles", 8, ASKED)):
        rows, _ = held.make(args.texts, length, needles, asked, False)
        places = held.answers(length, asked)
        # The prompt ends with the question: each value comes after what is left of it.
        write_texts(args.out / f"{name}.safetensors", rows, int(places[0, 0]) - len(held.state) - 1, places)
        print(name, tokenizer.decode(rows[0, -60:].tolist()).replace("\n", "\\n"), f"{accuracy(model, held, length, needles, asked):.3f}")
    rows, prompt = held.windows(args.texts, length), length - length // 16
    write_texts(args.out / "books.safetensors", rows, prompt, torch.arange(prompt, length)[None])


if __name__ == "__main__":
    main()
