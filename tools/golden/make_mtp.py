"""Adds a block that predicts further tokens (MTP) to goldens, and what it says.

usage: make_mtp.py [NAME ...]        (needs torch and transformers 5.17; changes tests/golden/NAME)

Transformers has no such block, so it is computed here from its parts: a decoder layer (with full
attention, with experts where there are some) and norms of the family, fc(norm(embedding of x_p) | norm(h_{p-1})) before it, and the
model's head behind it. h is what the final norm makes of the last layer, 0 before the first token.

Weights go into model.safetensors (BF16; mtp.*, or a further layer with a copy of the vocabulary, as
families publish it) and config.json (mtp_num_hidden_layers); the logits of the model do not change. mtp.safetensors: tokens I32 [T], logits F32 [T, V] for the token behind the
next one at each position, drafts I32 [n]: the likeliest token behind the last row, and so on, each
row with what the one before came to.
"""
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as latent
from transformers.models.glm4_moe import modeling_glm4_moe as glm
from transformers.models.qwen3_5 import modeling_qwen3_5 as dense
from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe as sparse
from transformers.models.qwen3_next import modeling_qwen3_next as joined

TARGET = pathlib.Path(__file__).resolve().parent.parent.parent / "tests/golden"
DRAFTS = 12
MODELS = {"qwen3_5": (dense.Qwen3_5ForCausalLM, dense.Qwen3_5DecoderLayer, dense.Qwen3_5RMSNorm),
          "qwen3_5_moe": (sparse.Qwen3_5MoeForCausalLM, sparse.Qwen3_5MoeDecoderLayer, sparse.Qwen3_5MoeRMSNorm),
          "qwen3_next": (joined.Qwen3NextForCausalLM, joined.Qwen3NextDecoderLayer, joined.Qwen3NextRMSNorm),
          "glm4_moe": (glm.Glm4MoeForCausalLM, glm.Glm4MoeDecoderLayer, glm.Glm4MoeRMSNorm),
          "deepseek_v3": (latent.DeepseekV3ForCausalLM, latent.DeepseekV3DecoderLayer, latent.DeepseekV3RMSNorm)}
# The block is a further layer, with names of its own for what the others do not have.
LAYERS = {"glm4_moe", "deepseek_v3"}
NAMES = {"fc": "eh_proj", "pre_fc_norm_embedding": "enorm", "pre_fc_norm_hidden": "hnorm", "norm": "shared_head.norm"}
# What the model has for every token, three numbers of a picture's or one.
TEXT_ONLY = {"qwen3_next"} | LAYERS


class Block(torch.nn.Module):
    """Named as in published checkpoints."""

    def __init__(self, model, layer, norm):
        super().__init__()
        config = model.config
        dim, eps = config.hidden_size, config.rms_norm_eps
        self.model = [model]  # no submodule
        self.pre_fc_norm_embedding, self.pre_fc_norm_hidden, self.norm = norm(dim, eps), norm(dim, eps), norm(dim, eps)
        self.fc = torch.nn.Linear(2 * dim, dim, bias=False)
        types = getattr(config, "layer_types", None)
        at = config.num_hidden_layers - 1 if config.model_type in LAYERS else types.index("full_attention")
        self.layers = torch.nn.ModuleList([layer(config, at)])

    def forward(self, tokens, before):
        """m of every row; before: [T, D]."""
        model = self.model[0].model
        embedded = self.pre_fc_norm_embedding(model.embed_tokens(tokens))
        y = self.fc(torch.cat([embedded, self.pre_fc_norm_hidden(before)], -1))[None]
        places = torch.arange(len(tokens))[None]
        text_only = model.config.model_type in TEXT_ONLY
        rope = model.rotary_emb(y, places if text_only else places[None].expand(3, 1, -1))
        mask = torch.full((len(tokens), len(tokens)), float("-inf")).triu(1)[None, None]
        z = self.layers[0](y, position_embeddings=rope, attention_mask=mask, position_ids=places)
        return self.norm(z[0] if isinstance(z, tuple) else z)[0]


@torch.no_grad()
def draw(block):
    """Every part far from its default."""
    generator = torch.Generator().manual_seed(42)
    bias = [(name, one) for name, one in block.named_buffers() if name.endswith("correction_bias")]
    for name, parameter in sorted([*block.named_parameters(), *bias]):
        scale = 0.3 if parameter.ndim == 1 else 1.5 / parameter.shape[-1] ** 0.5
        parameter.copy_((torch.randn(parameter.shape, generator=generator) * scale).bfloat16().float())


def as_published(key, value, name):
    """Experts one by one, and a further layer, where published checkpoints have it so."""
    if name in LAYERS:
        count = json.loads((TARGET / name / "config.json").read_text())["num_hidden_layers"]
        part, _, rest = key.removeprefix("mtp.").partition(".")
        rest = rest.removeprefix("0.") if part == "layers" else f"{NAMES[part]}.{rest}"
        key = f"model.layers.{count}.{rest}"
    experts = key.rpartition(".experts.")
    if not experts[1] or name not in {"qwen3_next"} | LAYERS:
        return {key: value}
    prefix, part = experts[0] + ".experts.", experts[2]
    if part == "down_proj":
        return {f"{prefix}{i}.down_proj.weight": one.clone() for i, one in enumerate(value)}
    both = [(i, *one.chunk(2)) for i, one in enumerate(value)]
    return {f"{prefix}{i}.{which}_proj.weight": part.clone()
            for i, gate, up in both for which, part in (("gate", gate), ("up", up))}


@torch.no_grad()
def make(name):
    folder = TARGET / name
    whole, layer, norm = MODELS[name]
    config = json.loads((folder / "config.json").read_text())
    block_names = ("mtp.", f"model.layers.{config['num_hidden_layers']}.")
    weights = {key: value for key, value in load_file(folder / "model.safetensors").items() if not key.startswith(block_names)}
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
        weights.update(as_published("mtp." + key, value.bfloat16().contiguous(), name))
    if name in LAYERS:
        weights[block_names[1] + "embed_tokens.weight"] = weights["model.embed_tokens.weight"].clone()
        weights[block_names[1] + "shared_head.head.weight"] = weights["lm_head.weight"].clone()
        config["num_nextn_predict_layers"] = 1
    elif name != "qwen3_next":  # which has the block and does not say so
        config["mtp_num_hidden_layers"] = 1
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    print(name, {key: tuple(value.shape) for key, value in weights.items() if key.startswith(block_names)}, drafts)


if __name__ == "__main__":
    for one in sys.argv[1:] or MODELS:
        make(one)
