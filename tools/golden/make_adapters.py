"""Makes the goldens of adapters: tiny random LoRA adapters with what PEFT and Transformers compute.

usage: make_adapters.py [FAMILY ...]        (needs torch, transformers and peft 0.21; writes
                                             tests/adapters/FAMILY)

Each folder is a PEFT adapter of the model in tests/golden/FAMILY, as save_pretrained writes it, and
logits.safetensors: tokens I32 [T], logits F32 [T, V] of one cold pass in fp32 with the adapter. The
adapters differ in what they say: lists, a regular expression or "all-linear" for their modules,
rsLoRA, ranks and alphas by module, types of values.
"""
import pathlib
import sys

import peft
import torch
import transformers
from safetensors.torch import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TOKENS = 32

# Family -> (what its configuration says, type of its values).
ADAPTERS = {
    "llama": (dict(r=4, lora_alpha=6, use_rslora=True,
                   target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "down_proj"]),
              torch.bfloat16),
    "qwen3": (dict(r=4, lora_alpha=8, target_modules="all-linear",
                   rank_pattern={"up_proj": 2, r"layers\.1\.self_attn\.q_proj": 6},
                   alpha_pattern={"down_proj": 3, "layers.0.mlp.gate_proj": 5}), torch.float32),
    "qwen3_5": (dict(r=4, lora_alpha=4, target_modules="all-linear"), torch.bfloat16),
    "nemotron_h": (dict(r=3, lora_alpha=4,
                        target_modules=r".*\.(in_proj|q_proj|o_proj|up_proj|down_proj)"),
                   torch.float16),
    "qwen3_moe": (dict(r=4, lora_alpha=4,
                       target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]), torch.float32),
    # Projections that the model's files join and its GGUF files do not.
    "qwen3_next": (dict(r=3, lora_alpha=3, target_modules=[
        "in_proj_qkvz", "in_proj_ba", "out_proj", "q_proj", "o_proj", "shared_expert_gate"]),
        torch.bfloat16),
    # Factors that GGUF files have in their weights.
    "falcon_h1": (dict(r=3, lora_alpha=3, target_modules=[
        "in_proj", "q_proj", "k_proj", "o_proj", "gate_proj", "down_proj"]), torch.bfloat16),
}


def draw(model, dtype):
    """Random values, so that every product is about a third of that of the base."""
    for name, values in model.named_parameters():
        if ".lora_A." in name:
            drawn = torch.randn(values.shape) / values.shape[1] ** 0.5
        elif ".lora_B." in name:
            drawn = 0.4 * torch.randn(values.shape) / values.shape[1] ** 0.5
        else:
            continue
        values.data.copy_(drawn.to(dtype))


def make(family):
    options, dtype = ADAPTERS[family]
    torch.manual_seed(sum(family.encode()))
    folder = ROOT / "tests/adapters" / family
    base = transformers.AutoModelForCausalLM.from_pretrained(
        ROOT / "tests/golden" / family, dtype=torch.float32, attn_implementation="eager").eval()
    tokens = torch.randint(3, base.config.vocab_size, (TOKENS,)).tolist()
    with torch.no_grad():
        plain = base(torch.tensor([tokens]), use_cache=False).logits[0]
        model = peft.get_peft_model(base, peft.LoraConfig(**options, task_type="CAUSAL_LM")).eval()
        draw(model, dtype)
        logits = model(torch.tensor([tokens]), use_cache=False).logits[0]
    model.peft_config["default"].base_model_name_or_path = family
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    values = folder / "adapter_model.safetensors"
    save_file({name: tensor.to(dtype).contiguous() for name, tensor in load_file(values).items()},
              values, metadata={"format": "pt"})
    save_file({"tokens": torch.tensor(tokens, dtype=torch.int32), "logits": logits.contiguous()},
              folder / "logits.safetensors")
    changed = float((logits - plain).std() / plain.std())
    print(f"{family}: {len(load_file(values)) // 2} weights, logits changed by {changed:.2f} of "
          "their spread")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for chosen in sys.argv[1:] or ADAPTERS:
        make(chosen)
