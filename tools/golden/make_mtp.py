"""Adds a block that predicts further tokens (MTP) to goldens of Qwen3.5, and what it says.

usage: make_mtp.py [NAME ...]        (needs torch and transformers 5.17; changes tests/golden/NAME)

Transformers has no such block, so it is computed here from its parts: a decoder layer with full
attention and norms of the family, fc(norm(embedding of x_p) | norm(h_{p-1})) before it, and the
model's head behind it. h is what the final norm makes of the last layer, 0 before the first token.

Weights go into model.safetensors (mtp.*, BF16) and config.json (mtp_num_hidden_layers); the logits of
the model do not change. mtp.safetensors: tokens I32 [T], logits F32 [T, V] for the token behind the
next one at each position, drafts I32 [n]: the likeliest token behind the last row, and so on, each
row with what the one before came to.
"""
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers.models.qwen3_5 import modeling_qwen3_5 as dense
from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe as sparse

TARGET = pathlib.Path(__file__).resolve().parent.parent.parent / "tests/golden"
DRAFTS = 12
MODELS = {"qwen3_5": (dense.Qwen3_5ForCausalLM, dense.Qwen3_5DecoderLayer, dense.Qwen3_5RMSNorm),
          "qwen3_5_moe": (sparse.Qwen3_5MoeForCausalLM, sparse.Qwen3_5MoeDecoderLayer, sparse.Qwen3_5MoeRMSNorm)}


class Block(torch.nn.Module):
    """Named as in published checkpoints."""

    def __init__(self, model, layer, norm):
        super().__init__()
        config = model.config
        dim, eps = config.hidden_size, config.rms_norm_eps
        self.model = [model]  # no submodule
        self.pre_fc_norm_embedding, self.pre_fc_norm_hidden, self.norm = norm(dim, eps), norm(dim, eps), norm(dim, eps)
        self.fc = torch.nn.Linear(2 * dim, dim, bias=False)
        self.layers = torch.nn.ModuleList([layer(config, config.layer_types.index("full_attention"))])

    def forward(self, tokens, before):
        """m of every row; before: [T, D]."""
        model = self.model[0].model
        embedded = self.pre_fc_norm_embedding(model.embed_tokens(tokens))
        y = self.fc(torch.cat([embedded, self.pre_fc_norm_hidden(before)], -1))[None]
        places = torch.arange(len(tokens))[None]
        rope = model.rotary_emb(y, places[None].expand(3, 1, -1))
        mask = torch.full((len(tokens), len(tokens)), float("-inf")).triu(1)[None, None]
        z = self.layers[0](y, position_embeddings=rope, attention_mask=mask, position_ids=places)
        return self.norm(z[0] if isinstance(z, tuple) else z)[0]


@torch.no_grad()
def draw(block):
    """Every part far from its default."""
    generator = torch.Generator().manual_seed(42)
    for name, parameter in sorted(block.named_parameters()):
        scale = 0.3 if parameter.ndim == 1 else 1.5 / parameter.shape[-1] ** 0.5
        parameter.copy_((torch.randn(parameter.shape, generator=generator) * scale).bfloat16().float())


@torch.no_grad()
def make(name):
    folder = TARGET / name
    whole, layer, norm = MODELS[name]
    weights = {key: value for key, value in load_file(folder / "model.safetensors").items() if not key.startswith("mtp.")}
    model = whole.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    block = Block(model, layer, norm).eval()
    draw(block)
    tokens = load_file(folder / "golden.safetensors")["tokens"].long()
    hidden = model.model(input_ids=tokens[None], use_cache=False).last_hidden_state[0]
    before = torch.cat([torch.zeros_like(hidden[:1]), hidden[:-1]])
    logits = model.lm_head(block(tokens, before))
    # Behind the last token there is a guess already: it is the next row, with m in place of h.
    drafts = []
    for _ in range(DRAFTS):
        m = block(tokens, before)[-1:]
        drafts.append(int(model.lm_head(m)[0].argmax()))
        tokens, before = torch.cat([tokens, torch.tensor(drafts[-1:])]), torch.cat([before, m])
    count = len(tokens) - DRAFTS
    save_file({"tokens": tokens[:count].int(), "logits": logits.float().contiguous(),
               "drafts": torch.tensor(drafts, dtype=torch.int32)}, folder / "mtp.safetensors")
    for key, value in block.state_dict().items():
        weights["mtp." + key] = value.bfloat16().contiguous()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["mtp_num_hidden_layers"] = 1
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    print(name, {key: tuple(value.shape) for key, value in weights.items() if key.startswith("mtp.")}, drafts)


if __name__ == "__main__":
    for one in sys.argv[1:] or MODELS:
        make(one)
