"""Makes the goldens that are the project's own: tiny random models with what Transformers computes.

usage: make_models.py [NAME ...]        (needs torch and transformers 5.17; writes tests/golden/NAME)

Each is a Hugging Face folder with BF16 weights and one golden*.safetensors per regime: tokens I32
[T], logits F32 [T, V] of one cold pass in fp32 with eager attention, greedy I32 [n], recomputed from
scratch for every token. Weights are drawn so that every part matters: norms, biases, decays and
the choice of experts are far from their defaults.
"""
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file

TARGET = pathlib.Path(__file__).resolve().parent.parent.parent / "tests/golden"
GREEDY = 24

# Name -> (config, {golden file: tokens}).
MODELS = {
    # Two regimes: within 64 tokens, greedy continuation included, the short factors; beyond, the
    # long ones.
    "phi3_longrope": (
        dict(model_type="phi3", hidden_size=64, intermediate_size=96, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, vocab_size=320, pad_token_id=0,
             bos_token_id=1, eos_token_id=2, tie_word_embeddings=False,
             max_position_embeddings=2048, original_max_position_embeddings=64,
             rope_parameters=dict(rope_type="longrope", rope_theta=10000.0,
                                  partial_rotary_factor=0.75,
                                  short_factor=[1.0, 1.15, 1.3, 1.9, 2.4, 3.1],
                                  long_factor=[1.1, 2.2, 4.5, 9.0, 17.0, 30.0])),
        {"golden.safetensors": 83, "golden_short.safetensors": 40}),
    # Every kind of block; experts in groups, with a bias for the choice, scaled, and one shared.
    "nemotron_h_moe": (
        dict(model_type="nemotron_h", hidden_size=64, intermediate_size=96,
             layers_block_type=["linear_attention", "moe", "full_attention", "moe", "mlp", "moe"],
             num_attention_heads=4, num_key_value_heads=2, head_dim=16, mamba_num_heads=8,
             mamba_head_dim=16, ssm_state_size=16, n_groups=2, conv_kernel=4, chunk_size=16,
             use_mamba_kernels=False, n_routed_experts=8, num_experts_per_tok=3, n_group=4,
             topk_group=2, norm_topk_prob=True, routed_scaling_factor=2.5,
             moe_intermediate_size=48, n_shared_experts=1, moe_shared_expert_intermediate_size=80,
             vocab_size=320, max_position_embeddings=4096, tie_word_embeddings=False),
        {"golden.safetensors": 83}),
}


def draw(model):
    for name, values in list(model.named_parameters()) + list(model.named_buffers()):
        if name.endswith("inv_freq"):
            continue
        noise = torch.randn(values.shape)
        if name.endswith("A_log"):
            drawn = 0.8 + 0.35 * noise
        elif name.endswith("dt_bias"):
            drawn = -1.5 + 0.5 * noise
        elif name.endswith("e_score_correction_bias"):
            drawn = 0.3 * noise
        elif name.endswith(".D"):
            drawn = 1 + 0.3 * noise
        elif "conv1d.weight" in name:
            drawn = 0.5 * noise
        elif "embed" in name:
            drawn = noise
        elif values.dim() >= 2:
            drawn = 1.2 / values.shape[-1] ** 0.5 * noise
        elif "norm" in name:
            drawn = 1 + 0.2 * noise
        else:
            drawn = 0.2 * noise
        values.data.copy_(drawn.to(torch.bfloat16))


def run(model, tokens):
    return model(torch.tensor([tokens]), use_cache=False).logits[0]


def make(name):
    config, goldens = MODELS[name]
    torch.manual_seed(sum(name.encode()))
    folder = TARGET / name
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(**config), attn_implementation="eager")
    model = model.float().eval()
    with torch.no_grad():
        draw(model)
        for file, count in goldens.items():
            tokens = torch.randint(3, config["vocab_size"], (count,)).tolist()
            logits = run(model, tokens)
            greedy = []
            for _ in range(GREEDY):
                greedy.append(int(run(model, tokens + greedy)[-1].argmax()))
            folder.mkdir(parents=True, exist_ok=True)
            save_file({"tokens": torch.tensor(tokens, dtype=torch.int32),
                       "logits": logits.contiguous(),
                       "greedy": torch.tensor(greedy, dtype=torch.int32)}, folder / file)
            print(f"{name}/{file}: spread of logits {float(logits.std()):.3f}, "
                  f"{len(set(greedy))} different tokens of {GREEDY}")
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for chosen in sys.argv[1:] or MODELS:
        make(chosen)
