"""The block of the bundled model that predicts further tokens (MTP): trained on what the model itself says.

    python3 tools/train/mtp.py sample --model models/reprise-tiny-q8_0.gguf --minutes 10 --seed 1 --out said1.npz
    python3 tools/train/mtp.py train --model models/reprise-tiny-q8_0.gguf --said said*.npz --minutes 15 --out block.pt
    python3 tools/train/mtp.py write --model models/reprise-tiny-q8_0.gguf --block block.pt --out models/mtp-reprise-tiny-q8_0.gguf

`sample` lets the model tell stories in conversations of several turns and keeps tokens and h, what the final norm makes of
the last layer. `train` teaches the block to come from h_{p-1} and token p to h_p, and so to what the model says at p: the
model's own distribution is the target, so every position teaches, whatever was drawn there. Every third time the block gets
what it said itself instead of h, as it does where it guesses more than one token. `write` makes a file of it that lies beside
the model's. One CPU core does all of it.
"""
import argparse
import random
import time

import numpy as np
import torch
import torch.nn.functional as F
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig
from transformers.models.qwen3_5 import modeling_qwen3_5 as parts

import conversations
import openings
from gguf_file import F32, Q4_0, Q5_0, Q8_0, Gguf, quantise
from muon import Muon
from train import make_config

LAYER = {"input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
         "self_attn.k_norm": "attn_k_norm", "linear_attn.in_proj_qkv": "attn_qkv", "linear_attn.in_proj_z": "attn_gate",
         "linear_attn.in_proj_b": "ssm_beta", "linear_attn.in_proj_a": "ssm_alpha", "linear_attn.conv1d": "ssm_conv1d",
         "linear_attn.norm": "ssm_norm", "linear_attn.out_proj": "ssm_out"}
GLOBAL = {"fc": "nextn.eh_proj", "pre_fc_norm_embedding": "nextn.enorm", "pre_fc_norm_hidden": "nextn.hnorm",
          "norm": "nextn.shared_head_norm"}
WINDOW = 384  # tokens of a training row


def one_plus(name):
    """Norms that are stored as w with 1 + w meant; GGUF has 1 + w."""
    return "norm" in name and "linear_attn" not in name


def load_model(gguf):
    """The model of the file, dequantised."""
    model = Qwen3_5ForCausalLM(Qwen3_5TextConfig(**make_config(gguf.tensors["token_embd.weight"][0][0]).to_dict()))
    weights = {}
    for name, parameter in model.state_dict().items():
        if name in ("model.embed_tokens.weight", "lm_head.weight"):
            value = gguf.values("token_embd.weight")
        elif name == "model.norm.weight":
            value = gguf.values("output_norm.weight")
        else:
            _, _, layer, rest = name.split(".", 3)
            if rest.endswith("A_log"):
                value = np.log(-gguf.values(f"blk.{layer}.ssm_a"))
            elif rest.endswith("dt_bias"):
                value = gguf.values(f"blk.{layer}.ssm_dt.bias")
            else:
                value = gguf.values(f"blk.{layer}.{LAYER[rest.removesuffix('.weight')]}.weight")
        if one_plus(name):
            value = value - 1
        weights[name] = torch.from_numpy(np.array(value)).reshape(parameter.shape)
    model.load_state_dict(weights)
    return model.eval().requires_grad_(False)


def load_tokenizer(gguf):
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

    from prepare import PATTERN
    tokens = [token.decode() for token in gguf.keys["tokenizer.ggml.tokens"][1][1]]
    types = gguf.keys["tokenizer.ggml.token_type"][1][1]
    merges = [tuple(merge.decode().split(" ")) for merge in gguf.keys["tokenizer.ggml.merges"][1][1]]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False)
                                  for token, kind in zip(tokens, types) if kind != 1])
    return tokenizer


def one_step(query, key, value, g, beta, initial_state, **_):
    """The gated delta rule for one token, three times as fast as Transformers' own."""
    q, k = (x[:, 0].float() * torch.rsqrt(x[:, 0].float().square().sum(-1, keepdim=True) + 1e-6) for x in (query, key))
    batch, heads, width = q.shape
    state = initial_state.mul_(g[:, 0].float().exp()[..., None, None]).view(batch * heads, width, -1)
    row = k.reshape(batch * heads, 1, width)
    change = (value[:, 0].float().reshape(batch * heads, 1, -1) - row @ state) * beta[:, 0].float().reshape(batch * heads, 1, 1)
    state.baddbmm_(row.transpose(1, 2), change)
    out = (q * width**-0.5).reshape(batch * heads, 1, width) @ state
    return out.view(batch, 1, heads, -1).to(query.dtype), state.view(batch, heads, width, -1)


class Talk:
    """What one person says, turn by turn; the 40 prompts that the model is judged by are not among it."""

    def __init__(self, rng, tokenizer):
        self.rng, self.tokenizer, self.turns = rng, tokenizer, 0
        self.waiting = self._turn()

    def _ask(self):
        rng, about = self.rng, openings.opening(self.rng)["about"]
        if self.turns and rng.random() < 0.5:
            return rng.choice(conversations.ANOTHER + conversations.CONTINUE + [now.format(about) for now in conversations.NOW_ABOUT])
        if rng.random() < 0.1:
            return rng.choice(rng.choice(conversations.SMALL_TALK)[0])
        if rng.random() < 0.15:
            return rng.choice(rng.choice(list(conversations.ASK_MOOD.values())) + conversations.ASK_STORY)
        return rng.choice(conversations.ASK_ABOUT).format(about)

    def _turn(self):
        text = ("\n" if self.turns else "") + f"<|im_start|>user\n{self._ask()}<|im_end|>\n<|im_start|>assistant\n"
        self.turns += 1
        return self.tokenizer.encode(text).ids

    def next(self, said, end):
        """The token to run next: of a turn that is not over, or what the model has said."""
        if self.waiting:
            return self.waiting.pop(0)
        if said == end:
            self.waiting = self._turn()
        return said


@torch.no_grad()
def sample(args):
    gguf = Gguf(args.model)
    model, tokenizer = load_model(gguf), load_tokenizer(gguf)
    rng = random.Random(args.seed)
    torch.manual_seed(args.seed)
    parts.torch_recurrent_gated_delta_rule = one_step
    end, budget = tokenizer.token_to_id("<|im_end|>"), time.time() + args.minutes * 60
    all_tokens, all_hidden = [], []
    while time.time() < budget:
        talks = [Talk(rng, tokenizer) for _ in range(args.batch)]
        heat = torch.tensor([rng.choice([0.01, 0.5, 0.5, 0.8]) for _ in talks])[:, None]
        cache, said, tokens, hidden = None, [None] * args.batch, [], []
        while len(tokens) < args.length and time.time() < budget:
            tokens.append(torch.tensor([talk.next(one, end) for talk, one in zip(talks, said)]))
            out = model.model(input_ids=tokens[-1][:, None], past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            hidden.append(out.last_hidden_state[:, 0].half())
            order = torch.softmax(model.lm_head(out.last_hidden_state[:, 0]) / heat, -1).topk(64)
            kept = order.values * (order.values.cumsum(-1) - order.values < 0.9)
            said = order.indices.gather(-1, torch.multinomial(kept, 1))[:, 0].tolist()
            if len(tokens) % 50 == 0:
                print(f"{len(tokens) * args.batch} tokens, {args.minutes * 60 - budget + time.time():.0f} s", flush=True)
        print(tokenizer.decode([int(row[0]) for row in tokens[:120]], skip_special_tokens=False), flush=True)
        if len(tokens) > WINDOW:
            all_tokens.append(torch.stack(tokens, 1).numpy().astype(np.int16))
            all_hidden.append(torch.stack(hidden, 1).numpy())
            np.savez(args.out, **{f"tokens{i}": one for i, one in enumerate(all_tokens)},
                     **{f"hidden{i}": one for i, one in enumerate(all_hidden)})


class Block(torch.nn.Module):
    """Named as in published checkpoints."""

    def __init__(self, model):
        super().__init__()
        config = model.config
        dim, eps = config.hidden_size, config.rms_norm_eps
        self.outer = [model]  # no submodule
        self.pre_fc_norm_embedding = parts.Qwen3_5RMSNorm(dim, eps)
        self.pre_fc_norm_hidden, self.norm = parts.Qwen3_5RMSNorm(dim, eps), parts.Qwen3_5RMSNorm(dim, eps)
        self.fc = torch.nn.Linear(2 * dim, dim, bias=False)
        self.layers = torch.nn.ModuleList([parts.Qwen3_5DecoderLayer(config, config.layer_types.index("full_attention"))])

    def forward(self, tokens, before):
        """What stands for h: [B, T, D], of tokens [B, T] and what came before each."""
        model = self.outer[0].model
        y = self.fc(torch.cat([self.pre_fc_norm_embedding(model.embed_tokens(tokens)), self.pre_fc_norm_hidden(before)], -1))
        places = torch.arange(tokens.shape[1])[None]
        rope = model.rotary_emb(y, places[None].expand(3, 1, -1))
        z = self.layers[0](y, position_embeddings=rope, attention_mask=None, position_ids=places)
        return self.norm(z[0] if isinstance(z, tuple) else z)


def later(x):
    """Each row where the next one is; 0 before the first."""
    return torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1)


def start(block):
    """Begins as the last layer of the model that attends, on the embedding and h in equal parts."""
    model = block.outer[0]
    block.layers[0].load_state_dict(model.model.layers[-1].state_dict())
    with torch.no_grad():
        half = torch.eye(block.fc.out_features)
        block.fc.weight.copy_(torch.cat([0.3 * half, half], 1) + 0.01 * torch.randn_like(block.fc.weight))


class Said:
    """What the model said, with its likeliest token behind each. The last eighth of every sample is held out."""

    def __init__(self, paths, model, seed):
        self.random = np.random.default_rng(seed)
        data = [np.load(path) for path in paths]
        self.samples = [(one[f"tokens{i}"].astype(np.int64), one[f"hidden{i}"]) for one in data for i in range(len(one.files) // 2)]
        with torch.no_grad():
            self.likeliest = [np.concatenate([model.lm_head(torch.from_numpy(row.astype(np.float32))).argmax(-1).numpy()[None]
                                              for row in hidden]) for _, hidden in self.samples]
        self.count = sum(tokens.size for tokens, _ in self.samples)

    def rows(self, count, held=False):
        picked = []
        for _ in range(count):
            index = self.random.integers(len(self.samples))
            tokens, hidden = self.samples[index]
            split = max(1, len(tokens) // 8)
            row = len(tokens) - 1 - self.random.integers(split) if held else self.random.integers(len(tokens) - split)
            at = self.random.integers(tokens.shape[1] - WINDOW + 1)
            picked.append([x[row, at:at + WINDOW] for x in (tokens, hidden, self.likeliest[index])])
        tokens, hidden, likeliest = (torch.from_numpy(np.stack(column)) for column in zip(*picked))
        return tokens, hidden.float(), likeliest


def share(block, tokens, hidden, likeliest):
    """Of the positions, how many have the model's likeliest token for the first, the first two and the first three guesses."""
    counts = []
    with torch.no_grad():
        right, before = torch.ones(tokens.shape, dtype=torch.bool), later(hidden)
        for turn in range(3):
            before = block(tokens, before)
            right = right & (block.outer[0].lm_head(before).argmax(-1) == likeliest)
            counts.append(right[:, 8:].float().mean().item())
            before, right = later(before), torch.cat([right[:, :1], right[:, :-1]], 1)
    return counts


def train(args):
    torch.manual_seed(args.seed)
    model = load_model(Gguf(args.model))
    said = Said(args.said, model, args.seed)
    # The head's rows of tokens that are ever the likeliest: a third of the time that all of them take.
    used = torch.from_numpy(np.unique(np.concatenate([one.ravel() for one in said.likeliest])))
    number = torch.full((model.config.vocab_size,), -1)
    number[used] = torch.arange(len(used))
    head = model.lm_head.weight[used]
    print(f"{said.count / 1e6:.2f} M tokens, {len(used)} words", flush=True)
    block = Block(model)
    if args.block:
        block.load_state_dict(torch.load(args.block))
    else:
        start(block)
    held = said.rows(12, held=True)
    matrices = [p for p in block.parameters() if p.ndim == 2]
    optimizers = [(Muon(matrices, args.rate, weight_decay=0.02, dtype=torch.float32), args.rate),
                  (torch.optim.AdamW([p for p in block.parameters() if p.ndim == 1], lr=args.rate, betas=(0.9, 0.95), weight_decay=0), args.rate)]
    begin, step, budget = time.time(), 0, args.minutes * 60
    while (spent := time.time() - begin) < budget:
        done = spent / budget
        for optimizer, peak in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = peak * min(1, (step + 1) / 20) * min(1, 0.02 + (1 - done) / 0.6)
        tokens, hidden, likeliest = said.rows(args.batch)
        before, loss = later(hidden), 0
        for turn, weight in enumerate((1.0, 0.7) if step % 3 == 2 else (1.0,)):
            m = block(tokens, before)
            wrong = F.cross_entropy((m @ head.T)[:, 1 + turn:].flatten(0, 1), number[likeliest[:, 1 + turn:]].flatten())
            loss = loss + weight * (wrong + F.smooth_l1_loss(m, hidden))
            before = later(m)
        for optimizer, _ in optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(block.parameters(), 1.0)
        for optimizer, _ in optimizers:
            optimizer.step()
        step += 1
        if step % 25 == 0:
            print(f"step {step}, {spent:.0f} s, loss {loss.item():.3f}", flush=True)
        if step % 100 == 0:
            print(f"right {[f'{one:.3f}' for one in share(block, *held)]}", flush=True)
            torch.save(block.state_dict(), args.out)
    print(f"step {step}, right {share(block, *held)}", flush=True)
    torch.save(block.state_dict(), args.out)


def types_of(name, shape):
    """Small enough to ship: the feed-forward part in four bits, fc and attention in five or eight."""
    if len(shape) == 1:
        return F32
    return Q4_0 if "mlp" in name else Q8_0 if any(one in name for one in ("k_proj", "v_proj", "fc")) else Q5_0


def write(args):
    """A file with the block alone, to lie beside that of the model under its name with "mtp-" before it."""
    gguf = Gguf(args.model)
    weights = torch.load(args.block)
    layers = gguf.keys["qwen35.block_count"][1]
    gguf.keys = {name: value for name, value in gguf.keys.items() if not name.startswith(("tokenizer.", "general.sampling."))}
    gguf.keys["qwen35.block_count"] = (4, layers + 1)
    gguf.keys["qwen35.nextn_predict_layers"] = (4, 1)
    gguf.tensors = {}
    for name, value in weights.items():
        plain = name.removesuffix(".weight")
        known = GLOBAL.get(plain) or LAYER[plain.removeprefix("layers.0.")]
        value = value.float().numpy() + (1 if one_plus(name) else 0)
        kind = types_of(name, value.shape)
        gguf.tensors[f"blk.{layers}.{known}.weight"] = (value.shape, kind, quantise(value, kind))
    gguf.write(args.out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("stage", choices=["sample", "train", "write"])
    parser.add_argument("--model", required=True)
    parser.add_argument("--said", nargs="*", help="what `sample` has written")
    parser.add_argument("--block", help="what `train` has written: to write, or to begin with")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--batch", type=int, default=8, help="conversations at a time, or rows of a training step")
    parser.add_argument("--length", type=int, default=1200, help="tokens of a conversation")
    parser.add_argument("--rate", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    {"sample": sample, "train": train, "write": write}[args.stage](args)


if __name__ == "__main__":
    main()
