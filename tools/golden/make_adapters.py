"""Makes the goldens of adapters: tiny random LoRA adapters with what PEFT and Transformers compute.

usage: make_adapters.py [NAME ...]          (needs torch, transformers and peft 0.21; writes
                                             tests/adapters/NAME)

Each folder, FAMILY or FAMILY__WHAT, is a PEFT adapter of the model in tests/golden/FAMILY, as
save_pretrained writes it, and logits.safetensors: tokens I32 [T], logits F32 [T, V] of one cold pass
in fp32 with the adapter. The adapters differ in what they say: lists, a regular expression or
"all-linear" for their modules, parameters, rsLoRA, ranks and alphas by module, types of values,
tokens that invoke them.
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
    # All experts in one pair of tensors, and the router.
    "qwen3_moe__experts": (dict(r=2, lora_alpha=3, target_modules=["o_proj"], target_parameters=[
        "mlp.experts.gate_up_proj", "mlp.experts.down_proj", "mlp.gate.weight"],
        alpha_pattern={"mlp.experts.down_proj": 5}), torch.bfloat16),
    # Experts that lie turned, rows of gate and up in turn.
    "gpt_oss__experts": (dict(r=2, lora_alpha=2, target_modules=["q_proj"], target_parameters=[
        "mlp.experts.gate_up_proj", "mlp.experts.down_proj"]), torch.float32),
    # Both ends, with one table (qwen3) and with two.
    "llama__vocabulary": (dict(r=3, lora_alpha=6, target_modules=[
        "embed_tokens", "lm_head", "v_proj"]), torch.bfloat16),
    "qwen3_5__vocabulary": (dict(r=4, lora_alpha=4, target_modules=[
        "embed_tokens", "lm_head"]), torch.float32),
    "gemma3__embedding": (dict(r=3, lora_alpha=3, target_modules=["embed_tokens"]), torch.float32),
    # Counts from the tokens that invoke it.
    "qwen3__activated": (dict(r=4, lora_alpha=8, target_modules=["q_proj", "k_proj", "v_proj"],
                              alora_invocation_tokens=[7, 11, 7]), torch.bfloat16),
    "nemotron_h__activated": (dict(r=3, lora_alpha=6, target_modules=["in_proj", "q_proj", "o_proj"],
                                   alora_invocation_tokens=[9]), torch.float32),
}


def draw(model, dtype):
    """Random values, so that every product is about a third of that of the base."""
    for name, values in model.named_parameters():
        if ".lora_A." in name:
            drawn = torch.randn(values.shape) / values.shape[1] ** 0.5
        elif ".lora_embedding_A." in name:
            drawn = torch.randn(values.shape)
        elif ".lora_B." in name or ".lora_embedding_B." in name:
            drawn = 0.4 * torch.randn(values.shape) / values.shape[1] ** 0.5
        else:
            continue
        values.data.copy_(drawn.to(dtype))


def prompt(vocabulary, invocation):
    """Random tokens; what invokes an adapter stands among them twice, of which the last counts."""
    tokens = torch.randint(3, vocabulary, (TOKENS,)).tolist()
    for at in (5, 13) if invocation else ():
        tokens[at:at + len(invocation)] = invocation
    return tokens


def make(name):
    options, dtype = ADAPTERS[name]
    family = name.split("__")[0]
    torch.manual_seed(sum(name.encode()))
    folder = ROOT / "tests/adapters" / name
    base = transformers.AutoModelForCausalLM.from_pretrained(
        ROOT / "tests/golden" / family, dtype=torch.float32, attn_implementation="eager").eval()
    tokens = prompt(base.config.vocab_size, options.get("alora_invocation_tokens"))
    with torch.no_grad():
        plain = base(torch.tensor([tokens]), use_cache=False).logits[0]
        model = peft.get_peft_model(base, peft.LoraConfig(**options, task_type="CAUSAL_LM")).eval()
        draw(model, dtype)
        logits = model(torch.tensor([tokens]), use_cache=False).logits[0]
    model.peft_config["default"].base_model_name_or_path = family
    # PEFT would put a copy of the base's tables beside adapters of them: one golden has it.
    copies = {} if name == "llama__vocabulary" else dict(save_embedding_layers=False)
    model.save_pretrained(folder, **copies)
    (folder / "README.md").unlink(missing_ok=True)
    values = folder / "adapter_model.safetensors"
    save_file({name: tensor.to(dtype).contiguous() for name, tensor in load_file(values).items()},
              values, metadata={"format": "pt"})
    save_file({"tokens": torch.tensor(tokens, dtype=torch.int32), "logits": logits.contiguous()},
              folder / "logits.safetensors")
    changed = float((logits - plain).std() / plain.std())
    print(f"{name}: {len(load_file(values)) // 2} weights, logits changed by {changed:.2f} of "
          "their spread")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for chosen in sys.argv[1:] or ADAPTERS:
        make(chosen)
