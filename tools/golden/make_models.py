"""Makes the goldens that are the project's own: tiny random models with what Transformers computes.

usage: make_models.py [NAME ...]        (needs torch and transformers 5.23; writes tests/golden/NAME)

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

# What the smallest dense ones have in common.
SMALL = dict(hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2,
             vocab_size=160, pad_token_id=0, bos_token_id=1, eos_token_id=2,
             tie_word_embeddings=False)
WINDOWED = ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]

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
    # All four factors, and biases.
    "granite": (
        dict(SMALL, model_type="granite", num_hidden_layers=3, max_position_embeddings=4096,
             attention_bias=True, attention_multiplier=0.2, embedding_multiplier=3.0,
             logits_scaling=4.0, residual_multiplier=0.4),
        {"golden.safetensors": 83}),
    # Layers without positions, not where they are by default.
    "smollm3": (
        dict(SMALL, model_type="smollm3", num_hidden_layers=5, max_position_embeddings=4096,
             no_rope_layers=[1, 0, 1, 1, 0]),
        {"golden.safetensors": 83}),
    "olmo2": (
        dict(SMALL, model_type="olmo2", num_hidden_layers=3, max_position_embeddings=4096),
        {"golden.safetensors": 83}),
    # Windows shorter than the text, and two kinds of positions.
    "olmo3": (
        dict(SMALL, model_type="olmo3", num_hidden_layers=4, max_position_embeddings=4096,
             sliding_window=24, layer_types=WINDOWED,
             rope_parameters=dict(
                 sliding_attention=dict(rope_type="default", rope_theta=500000.0),
                 full_attention=dict(rope_type="yarn", rope_theta=500000.0, factor=8.0,
                                     attention_factor=1.2, beta_fast=8.0, beta_slow=0.5,
                                     original_max_position_embeddings=32))),
        {"golden.safetensors": 83}),
    # Groups of experts, norms of q and k, half of a head turned, and layers without experts.
    "glm4_moe": (
        dict(SMALL, model_type="glm4_moe", num_hidden_layers=3, max_position_embeddings=4096,
             head_dim=16, attention_bias=True, use_qk_norm=True, n_routed_experts=8,
             n_shared_experts=2, num_experts_per_tok=3, moe_intermediate_size=24, n_group=4,
             topk_group=2, norm_topk_prob=True, routed_scaling_factor=2.5,
             first_k_dense_replace=1, rope_parameters=dict(
                 rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)),
        {"golden.safetensors": 83}),
    "lfm2_moe": (
        dict(SMALL, model_type="lfm2_moe", num_hidden_layers=4, max_position_embeddings=4096,
             layer_types=["conv", "full_attention", "conv", "full_attention"], num_experts=6,
             num_experts_per_tok=2, moe_intermediate_size=24, num_dense_layers=1,
             routed_scaling_factor=1.5, conv_L_cache=3),
        {"golden.safetensors": 83}),
    # Norms behind RoPE, whose theta is stretched.
    "hunyuan_dense": (
        dict(SMALL, model_type="hunyuan_v1_dense", num_hidden_layers=3, head_dim=16,
             max_position_embeddings=4096, rope_parameters=dict(
                 rope_type="dynamic", rope_theta=100.0, factor=1.0, alpha=50.0)),
        {"golden.safetensors": 83}),
    # Latent attention with YaRN in its scores, groups of experts.
    "deepseek_v3": (
        dict(SMALL, model_type="deepseek_v3", num_hidden_layers=3, num_key_value_heads=4,
             max_position_embeddings=512, q_lora_rank=24, kv_lora_rank=32, qk_rope_head_dim=8,
             qk_nope_head_dim=16, v_head_dim=12, n_routed_experts=8, n_shared_experts=1,
             num_experts_per_tok=3, moe_intermediate_size=24, n_group=4, topk_group=2,
             routed_scaling_factor=2.5, first_k_dense_replace=1, rope_parameters=dict(
                 rope_type="yarn", rope_theta=10000.0, factor=4.0, beta_fast=8.0, beta_slow=0.5,
                 mscale=1.0, mscale_all_dim=0.7, original_max_position_embeddings=128)),
        {"golden.safetensors": 83}),
    "glm4_moe_lite": (
        dict(SMALL, model_type="glm4_moe_lite", num_hidden_layers=2, num_key_value_heads=4,
             max_position_embeddings=4096, q_lora_rank=None, kv_lora_rank=32, qk_rope_head_dim=8,
             qk_nope_head_dim=8, v_head_dim=16, n_routed_experts=4, n_shared_experts=1,
             num_experts_per_tok=2, moe_intermediate_size=24, routed_scaling_factor=1.8),
        {"golden.safetensors": 83}),
    # YaRN with mscale, within the context before it.
    "ministral3": (
        dict(SMALL, model_type="ministral3", num_hidden_layers=3, head_dim=16,
             max_position_embeddings=512, rope_parameters=dict(
                 rope_type="yarn", rope_theta=10000.0, factor=4.0, beta_fast=8.0, beta_slow=0.5,
                 mscale=1.5, mscale_all_dim=0.5, original_max_position_embeddings=128,
                 llama_4_scaling_beta=0.3)),
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
