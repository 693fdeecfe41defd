"""Stage 3: trains the bundled model, a qwen3_5 hybrid of 17 M parameters, on one GPU; a short round on a CPU, too.

    python3 tools/train/train.py --data data/ --out run/ --minutes 16

Two phases: windows of 512 tokens over documents and conversations, then windows of 4,096 over long conversations, with
one learning-rate schedule by elapsed share of the budget. Saves run/checkpoint.pt every minute and resumes from it; goes
back to it with a smaller rate should the loss stop being a number.
"""
import argparse
import math
import os
import time

import numpy as np
import torch
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

import gated_delta
from muon import Muon

# Share of tokens by source in the first phase.
MIX = {"documents_stories": 0.34, "conversations_chat": 0.52, "documents_books": 0.06, "documents_storybooks": 0.01,
       "documents_taskmaster": 0.01, "documents_commonvoice": 0.01, "conversations_long": 0.05}
LONG_MIX = {"conversations_long": 0.5, "conversations_chat": 0.25, "documents_stories": 0.25}
LONG_SHARE = 0.2  # of the budget, unless --long says otherwise
MATRIX_RATE, OTHER_RATE, FINAL_SHARE = 4e-3, 2.5e-3, 0.01
WARM, FLAT = 0.015, 0.4


def make_config(vocab):
    return Qwen3_5TextConfig(
        vocab_size=vocab, hidden_size=384, intermediate_size=1024, num_hidden_layers=8, num_attention_heads=6,
        num_key_value_heads=2, head_dim=64, max_position_embeddings=4096, rms_norm_eps=1e-6, tie_word_embeddings=True,
        linear_num_key_heads=6, linear_num_value_heads=6, linear_key_head_dim=64, linear_value_head_dim=64,
        linear_conv_kernel_dim=4, full_attention_interval=4, partial_rotary_factor=0.25,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0, "partial_rotary_factor": 0.25,
                         "mrope_section": [3, 3, 2], "mrope_interleaved": True},
        bos_token_id=None, eos_token_id=None, pad_token_id=None, attention_bias=False)


@torch.no_grad()
def initialize(model):
    """Memories that last: a step of 0.001 to 0.1 per token rather than one that forgets at once; small residual outputs."""
    for name, parameter in model.named_parameters():
        if name.endswith("A_log"):
            parameter.copy_(torch.empty_like(parameter).uniform_(1, 16).log())
        elif name.endswith("dt_bias"):
            step = torch.empty_like(parameter).uniform_(math.log(0.001), math.log(0.1)).exp()
            parameter.copy_(step + torch.log(-torch.expm1(-step)))
        elif name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight")):
            parameter.mul_(0.25)


class Windows:
    """Random windows of the shards, on the GPU; half of them begin where a document begins."""

    def __init__(self, folder, mix, end, device, seed):
        self.shards, self.starts, weights = [], [], []
        for name, share in mix.items():
            path = os.path.join(folder, name + ".npy")
            if os.path.exists(path):
                tokens = np.load(path)
                if len(tokens) > 5000:
                    # A document begins after <|endoftext|>, which a text without turns keeps as its first token.
                    starts = np.flatnonzero(tokens == end) + (1 if name.startswith("conversations") else 0)
                    self.starts.append(starts[starts < len(tokens) - 4200])
                    self.shards.append(torch.from_numpy(tokens.astype(np.int16)).to(device))
                    weights.append(share)
                    print(f"{name}: {len(tokens) / 1e6:.1f} M tokens, {len(starts)} documents", flush=True)
        self.weights = np.array(weights) / sum(weights)
        self.random = np.random.default_rng(seed)

    def batch(self, count, length):
        rows = []
        for index in self.random.choice(len(self.shards), count, p=self.weights):
            shard, starts = self.shards[index], self.starts[index]
            if self.random.random() < 0.5 and len(starts):
                at = int(starts[self.random.integers(len(starts))])
            else:
                at = int(self.random.integers(max(1, len(shard) - length - 1)))
            rows.append(shard[at:at + length + 1])
        return torch.stack([row for row in rows if len(row) == length + 1]).long()


def with_stories(mix, share):
    """The mixture with that share of plain stories, the others in their proportions."""
    rest = sum(mix.values()) - mix["documents_stories"]
    return {name: share if name == "documents_stories" else value * (1 - share) / rest for name, value in mix.items()}


def rate_at(done):
    """Share of the peak rate: warm up, stay, then straight down."""
    if done < WARM:
        return max(done, 1e-4) / WARM
    return 1.0 if done < FLAT else FINAL_SHARE + (1 - FINAL_SHARE) * max(0.0, 1 - done) / (1 - FLAT)


def make_optimizers(model):
    matrices, decayed, others = [], [], []
    for name, p in model.named_parameters():
        if p.ndim == 2 and "embed" not in name and "lm_head" not in name and min(p.shape) >= 64:
            matrices.append(p)
        else:
            (decayed if p.ndim == 2 and "embed" not in name else others).append(p)
    adam = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                             lr=OTHER_RATE, betas=(0.9, 0.95), fused=torch.cuda.is_available())
    optimizers = [(Muon(matrices, MATRIX_RATE), MATRIX_RATE), (adam, OTHER_RATE)]
    return optimizers


def loss_of(model, batch, ignored):
    """Mean cross entropy; whether a reply starts with a thought is for the template to say, not for the model."""
    with torch.autocast(batch.device.type, torch.bfloat16):
        hidden = model.model(input_ids=batch[:, :-1], use_cache=False).last_hidden_state
        logits = model.lm_head(hidden)
    targets = batch[:, 1:].reshape(-1)
    targets = targets.masked_fill(targets == ignored, -100)
    return torch.nn.functional.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets)


def choose_path(model, batch, ignored, synchronize):
    """Uses the faster functions where they agree with Transformers' own and are faster."""
    seconds, losses = {}, {}
    for name, put in (("reference", gated_delta.remove), ("fast", gated_delta.install)):
        put()
        for turn in range(4):
            if turn == 1:
                synchronize()
                begin = time.time()
            model.zero_grad(set_to_none=True)
            loss = loss_of(model, batch, ignored)
            loss.backward()
        synchronize()
        seconds[name], losses[name] = (time.time() - begin) / 3, loss.item()
    model.zero_grad(set_to_none=True)
    agree = abs(losses["fast"] - losses["reference"]) < 0.01
    if not agree or seconds["fast"] > seconds["reference"]:
        gated_delta.remove()
    print(f"seconds per step {seconds}, loss {losses}, {'agree' if agree else 'DIFFER'}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--minutes", type=float, default=16)
    parser.add_argument("--start", help="Hugging Face folder whose weights to begin with; its vocabulary must be that of the data")
    parser.add_argument("--rate", type=float, default=1.0, help="share of the usual rates")
    parser.add_argument("--stories", type=float, default=MIX["documents_stories"], help="share of plain stories in the first phase")
    parser.add_argument("--long", type=float, default=LONG_SHARE, help="share of the budget for the second phase")
    parser.add_argument("--tokens-per-step", type=int, default=65536)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    torch.manual_seed(args.seed)
    torch.backends.cuda.matmul.allow_tf32 = True

    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(os.path.join(args.data, "tokenizer.json"))
    end, thought = tokenizer.token_to_id("<|endoftext|>"), tokenizer.token_to_id("<think>")
    config = make_config(tokenizer.get_vocab_size())
    model = Qwen3_5ForCausalLM(config)
    initialize(model)
    if args.start:
        model.load_state_dict(Qwen3_5ForCausalLM.from_pretrained(args.start, dtype=torch.float32).state_dict())
    model.to(device)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters", flush=True)
    optimizers = make_optimizers(model)
    checkpoint = os.path.join(args.out, "checkpoint.pt")
    spent, step, tokens, scale = 0.0, 0, 0, args.rate

    def load():
        saved = torch.load(checkpoint, map_location=device)
        model.load_state_dict(saved["model"])
        for (optimizer, _), state in zip(optimizers, saved["optimizers"]):
            optimizer.load_state_dict(state)
        return saved

    def save():
        torch.save({"model": model.state_dict(), "optimizers": [o.state_dict() for o, _ in optimizers], "spent": spent,
                    "step": step, "tokens": tokens, "config": config.to_dict()}, checkpoint + ".partial")
        os.replace(checkpoint + ".partial", checkpoint)

    if os.path.exists(checkpoint):
        saved = load()
        spent, step, tokens = saved["spent"], saved["step"], saved["tokens"]
        print(f"resumed at step {step}, {spent:.0f} s", flush=True)
    short = Windows(args.data, with_stories(MIX, args.stories), end, device, args.seed + step)
    long = Windows(args.data, LONG_MIX, end, device, args.seed + step + 1)
    choose_path(model, short.batch(args.tokens_per_step // 512 if device == "cuda" else 2, 512), thought, synchronize)

    budget, report = args.minutes * 60, 100 if device == "cuda" else 10  # steps
    begin, saved_at, base, losses = time.time(), time.time(), spent, []
    while spent < budget:
        done = spent / budget
        for optimizer, peak in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = peak * rate_at(done) * scale
        in_long = done > 1 - args.long
        length = 4096 if in_long else 512
        batch = (long if in_long else short).batch(max(1, args.tokens_per_step // length), length)
        loss = loss_of(model, batch, thought)
        for optimizer, _ in optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, _ in optimizers:
            optimizer.step()
        losses.append(loss.detach())
        step += 1
        tokens += batch.shape[0] * length
        spent = base + time.time() - begin
        if step % report == 0:
            mean = torch.stack(losses[-report:]).mean().item()
            print(f"step {step}, {tokens / 1e6:.1f} M tokens, {spent:.0f} s, loss {mean:.4f}", flush=True)
            if not math.isfinite(mean):
                scale *= 0.6
                print(f"not a number: back to the checkpoint, rate x {scale:.2f}", flush=True)
                load()
                losses.clear()
            elif time.time() - saved_at > 60 or step == report:
                save()
                saved_at = time.time()
    save()
    print("done", flush=True)


if __name__ == "__main__":
    main()
