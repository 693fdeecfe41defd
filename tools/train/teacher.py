"""Stage 1: samples simple stories from stories15M (MIT weights, llama2.c format) on one GPU.

    python3 tools/train/teacher.py --checkpoint stories15M.bin --tokenizer tokenizer.json --seconds 200 --out stories.jsonl

Only stories that the teacher ended itself within its context of 256 tokens are kept, one JSON object per line: `text`, and
for stories that go on from given first words what openings.py says of them. Every other story is drawn at temperature
1 (the distribution itself); those in between are begun with openings and drawn at 0.7 or 0.85 without unlikely tokens
(cleaner sentences). Seeded; a run of a given length on a given machine is repeatable up to how many batches fit into the time.
"""
import argparse
import json
import random
import struct
import time

import numpy as np
import torch
import torch.nn.functional as F

import openings

CONTEXT = 256
# Story after story: whether it has an opening, its temperature, and which share of the likeliest token a token must have.
WAYS = [(False, 1.0, 0.0), (True, 0.7, 0.04), (False, 1.0, 0.0), (True, 0.85, 0.04)]
BOS, EOS = 1, 2


class Teacher:
    """The llama2.c architecture with a K/V cache for a large batch."""

    def __init__(self, path, device):
        raw = np.fromfile(path, dtype=np.uint8)
        header = struct.unpack("7i", raw[:28].tobytes())
        self.dim, self.hidden, self.layers, self.heads, self.kv_heads, vocab, self.length = header
        self.vocab = abs(vocab)
        weights = torch.from_numpy(raw[28:].view(np.float32).copy())
        self.at = 0

        def take(*shape):
            count = int(np.prod(shape))
            piece = weights[self.at:self.at + count].view(*shape).to(device, torch.bfloat16)
            self.at += count
            return piece

        n, d, h = self.layers, self.dim, self.hidden
        self.embedding = take(self.vocab, d)
        self.attention_norm = take(n, d)
        self.wq, self.wk, self.wv, self.wo = (take(n, d, d) for _ in range(4))
        self.mlp_norm = take(n, d)
        self.w1, self.w2, self.w3 = take(n, h, d), take(n, d, h), take(n, h, d)
        self.norm = take(d)
        size = d // self.heads
        angle = torch.outer(torch.arange(self.length).float(), 10000.0 ** (-torch.arange(0, size, 2).float() / size))
        self.cos, self.sin = angle.cos().to(device), angle.sin().to(device)

    def rotate(self, x, position):
        b = x.shape[0]
        pairs = x.float().view(b, self.heads, -1, 2)
        cos, sin = self.cos[position], self.sin[position]
        a, c = pairs[..., 0], pairs[..., 1]
        return torch.stack((a * cos - c * sin, a * sin + c * cos), -1).view(b, self.heads, -1).to(x.dtype)

    def step(self, tokens, position, cache):
        x = self.embedding[tokens]
        b = tokens.shape[0]
        for i in range(self.layers):
            h = F.rms_norm(x.float(), (self.dim,), self.attention_norm[i].float(), 1e-5).to(x.dtype)
            q = self.rotate(h @ self.wq[i].T, position)
            keys, values = cache[i]
            keys[:, :, position] = self.rotate(h @ self.wk[i].T, position)
            values[:, :, position] = (h @ self.wv[i].T).view(b, self.heads, -1)
            out = F.scaled_dot_product_attention(q.unsqueeze(2), keys[:, :, :position + 1], values[:, :, :position + 1])
            x = x + out.reshape(b, -1) @ self.wo[i].T
            h = F.rms_norm(x.float(), (self.dim,), self.mlp_norm[i].float(), 1e-5).to(x.dtype)
            x = x + (F.silu(h @ self.w1[i].T) * (h @ self.w3[i].T)) @ self.w2[i].T
        x = F.rms_norm(x.float(), (self.dim,), self.norm.float(), 1e-5).to(x.dtype)
        return (x @ self.embedding.T).float()

    @torch.no_grad()
    def sample(self, given, temperature, least, generator, device):
        """(stories that ended, which rows they are). `given`: tokens of the first words, 0 where the teacher chooses."""
        batch, longest = given.shape
        shape = (batch, self.heads, CONTEXT, self.dim // self.heads)
        cache = [(torch.empty(shape, device=device, dtype=torch.bfloat16),
                  torch.empty(shape, device=device, dtype=torch.bfloat16)) for _ in range(self.layers)]
        tokens = torch.full((batch,), BOS, device=device)
        out = torch.full((batch, CONTEXT), BOS, device=device, dtype=torch.int32)
        ended = torch.zeros(batch, dtype=torch.bool, device=device)
        for position in range(CONTEXT - 1):
            chances = (self.step(tokens, position, cache) / temperature).softmax(-1)
            chances.masked_fill_(chances < least * chances.amax(-1, keepdim=True), 0)
            tokens = draw(chances, generator)
            if position < longest:
                tokens = torch.where(given[:, position] > 0, given[:, position], tokens)
            out[:, position + 1] = tokens.int()
            ended |= (tokens == BOS) | (tokens == EOS)
        ended = ended.cpu().numpy()
        return out.cpu().numpy()[ended], ended


def draw(chances, generator):
    """One token a row; the chances need not add up to 1."""
    if chances.is_cuda:  # an exponential race: no sum over the vocabulary
        return (chances / torch.empty_like(chances).exponential_(generator=generator)).argmax(-1)
    sums = chances.cumsum(-1)  # on a CPU random numbers are what is dear: one a row
    wanted = torch.rand((len(sums), 1), generator=generator) * sums[:, -1:]
    return torch.searchsorted(sums, wanted, right=True)[:, 0].clamp_(max=sums.shape[-1] - 1)


def first_words(tokenizer, begun, device):
    """Their tokens, padded with 0."""
    rows = [tokenizer.encode(words, add_special_tokens=False).ids if words else [] for words in begun]
    given = torch.zeros((len(rows), max(map(len, rows))), dtype=torch.long)
    for row, ids in zip(given, rows):
        row[:len(ids)] = torch.tensor(ids)
    return given.to(device)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--tokenizer", required=True, help="tokenizer.json of Llama 2, 32,000 tokens")
    parser.add_argument("--seconds", type=float, default=200)
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--plain", action="store_true", help="no openings: every story at temperature 1")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()

    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(args.tokenizer)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    teacher = Teacher(args.checkpoint, device)
    generator, rng = torch.Generator(device).manual_seed(args.seed), random.Random(args.seed)
    ways = [WAYS[0 if args.plain else i % len(WAYS)] for i in range(args.batch)]
    temperature, least = (torch.tensor(column, device=device)[:, None] for column in list(zip(*ways))[1:])
    begin, count = time.time(), 0
    with open(args.out, "w", encoding="utf-8") as out:
        while time.time() - begin < args.seconds:
            known = [openings.opening(rng) if opened else {} for opened, _, _ in ways]
            given = first_words(tokenizer, [story.get("words", "") for story in known], device)
            rows, ended = teacher.sample(given, temperature, least, generator, device)
            ids = []
            for row in rows:
                row = row[1:]
                end = int(np.argmax((row == BOS) | (row == EOS)))
                ids.append(row[:end].tolist())
            for at, text in zip(np.flatnonzero(ended), tokenizer.decode_batch(ids)):
                text = text.strip()
                if len(text) > 200 and text[-1] in '.!?"':
                    out.write(json.dumps({**known[at], "text": text}, ensure_ascii=False) + "\n")
                    count += 1
            out.flush()
            print(f"{count} stories, {time.time() - begin:.0f} s", flush=True)
    open(args.out + ".done", "w").close()  # prepare.py --follow waits for it


if __name__ == "__main__":
    main()
