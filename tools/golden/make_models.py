"""Makes the goldens that are the project's own: tiny random models with what Transformers computes.

usage: make_models.py [NAME ...]        (needs torch and transformers 5.23; writes tests/golden/NAME)

Each is a Hugging Face folder with BF16 weights and one golden*.safetensors per regime: tokens I32
[T], logits F32 [T, V] of one cold pass in fp32 with eager attention, greedy I32 [n], recomputed from
scratch for every token. Weights are drawn so that every part matters: norms, biases, decays and
the choice of experts are far from their defaults. Of quantised weights also rounded F32 [T, V]: the
logits where activations are rounded before they meet such weights, as the specification does.
"""
import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

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
    # Sinks, windows in every second layer, YaRN without truncate, experts with biases. A low limit
    # and strong sinks, so that both are seen.
    "gpt_oss": (
        dict(SMALL, model_type="gpt_oss", num_hidden_layers=3, max_position_embeddings=4096,
             layer_types=["full_attention", "sliding_attention", "sliding_attention"],
             head_dim=16, num_local_experts=5, num_experts_per_tok=3, sliding_window=24,
             swiglu_limit=1.5, rope_parameters=dict(
                 rope_type="yarn", rope_theta=10000.0, factor=8.0, beta_fast=8.0, beta_slow=0.5,
                 truncate=False, original_max_position_embeddings=32)),
        {"golden.safetensors": 83}),
    # As published: experts in MXFP4, with the numbers of gpt-oss where they are not sizes. All
    # experts take part: another choice, by the rounding of activations, would be another answer.
    "gpt_oss_mxfp4": (
        dict(SMALL, model_type="gpt_oss", num_hidden_layers=3, max_position_embeddings=4096,
             intermediate_size=64, num_local_experts=3, num_experts_per_tok=3, head_dim=16,
             sliding_window=24, rope_parameters=dict(
                 rope_type="yarn", rope_theta=150000.0, factor=32.0, beta_fast=32.0,
                 beta_slow=1.0, truncate=False, original_max_position_embeddings=32)),
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
    # Scores by softmax, the best as they are; queries that are not compressed.
    "deepseek_v2": (
        dict(SMALL, model_type="deepseek_v2", num_hidden_layers=3, num_key_value_heads=4,
             max_position_embeddings=512, q_lora_rank=None, kv_lora_rank=32, qk_rope_head_dim=8,
             qk_nope_head_dim=16, v_head_dim=12, n_routed_experts=8, n_shared_experts=2,
             num_experts_per_tok=3, moe_intermediate_size=24, routed_scaling_factor=1.6,
             first_k_dense_replace=1, n_group=1, topk_group=1, rope_parameters=dict(
                 rope_type="yarn", rope_theta=10000.0, factor=4.0, beta_fast=8.0, beta_slow=0.5,
                 mscale=0.7, mscale_all_dim=0.7, original_max_position_embeddings=128)),
        {"golden.safetensors": 83}),
    "glm4_moe_lite": (
        dict(SMALL, model_type="glm4_moe_lite", num_hidden_layers=2, num_key_value_heads=4,
             max_position_embeddings=4096, q_lora_rank=None, kv_lora_rank=32, qk_rope_head_dim=8,
             qk_nope_head_dim=8, v_head_dim=16, n_routed_experts=4, n_shared_experts=1,
             num_experts_per_tok=2, moe_intermediate_size=24, routed_scaling_factor=1.8),
        {"golden.safetensors": 83}),
    # YaRN with mscale, behind the context before it, so that queries grow.
    "ministral3": (
        dict(SMALL, model_type="ministral3", num_hidden_layers=3, head_dim=16,
             max_position_embeddings=4096, rope_parameters=dict(
                 rope_type="yarn", rope_theta=10000.0, factor=4.0, beta_fast=8.0, beta_slow=0.5,
                 mscale=1.5, mscale_all_dim=0.5, original_max_position_embeddings=32,
                 llama_4_scaling_beta=0.3)),
        {"golden.safetensors": 83}),
    # Theta stretched for the context that is served, and within the context that it was made for.
    "llama_dynamic": (
        dict(SMALL, model_type="llama", num_hidden_layers=2, max_position_embeddings=64,
             rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, factor=64.0)),
        {"golden.safetensors": 83, "golden_short.safetensors": 40}),
    # The small sizes: embeddings for each layer, layers that read the K/V of others.
    "gemma4": (
        dict(SMALL, model_type="gemma4_text", num_hidden_layers=6, max_position_embeddings=4096,
             tie_word_embeddings=True, head_dim=8, global_head_dim=16, num_kv_shared_layers=3,
             layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2,
             hidden_size_per_layer_input=12, vocab_size_per_layer_input=160, sliding_window=24,
             use_double_wide_mlp=True, final_logit_softcapping=4.0, rope_parameters=dict(
                 sliding_attention=dict(rope_type="default", rope_theta=100.0),
                 full_attention=dict(rope_type="proportional", rope_theta=1000.0,
                                     partial_rotary_factor=0.5))),
        {"golden.safetensors": 83}),
    # The large ones: keys that are values, other K/V heads where all is seen, experts.
    "gemma4_moe": (
        dict(SMALL, model_type="gemma4_text", num_hidden_layers=4, max_position_embeddings=4096,
             tie_word_embeddings=True, head_dim=8, global_head_dim=16, attention_k_eq_v=True,
             num_global_key_value_heads=1, hidden_size_per_layer_input=0,
             layer_types=["sliding_attention", "full_attention"] * 2, sliding_window=24,
             enable_moe_block=True, num_experts=6, top_k_experts=2, moe_intermediate_size=24,
             final_logit_softcapping=4.0, rope_parameters=dict(
                 sliding_attention=dict(rope_type="default", rope_theta=100.0),
                 full_attention=dict(rope_type="proportional", rope_theta=1000.0,
                                     partial_rotary_factor=0.25))),
        {"golden.safetensors": 83}),
    # Streams, embeddings for each layer (of fewer tokens than there are), layers that read the K/V
    # of others, gates that are cut.
    "gemma3n": (
        dict(SMALL, model_type="gemma3n_text", num_hidden_layers=6, max_position_embeddings=4096,
             tie_word_embeddings=True, head_dim=8, num_kv_shared_layers=3, sliding_window=24,
             layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2,
             hidden_size_per_layer_input=12, vocab_size_per_layer_input=150, laurel_rank=6,
             activation_sparsity_pattern=[0.9, 0.0, 0.5, 0.0, 0.7, 0.0],
             final_logit_softcapping=4.0, rope_parameters=dict(
                 sliding_attention=dict(rope_type="default", rope_theta=100.0),
                 full_attention=dict(rope_type="default", rope_theta=1000.0))),
        {"golden.safetensors": 83}),
    # Two blocks that are used in turn, with adapters everywhere.
    "zamba2": (
        dict(SMALL, model_type="zamba2", num_hidden_layers=5, max_position_embeddings=4096,
             tie_word_embeddings=True, num_key_value_heads=4, mamba_d_state=16, mamba_ngroups=2,
             n_mamba_heads=8, time_step_min=0.15, chunk_size=16, num_mem_blocks=2, adapter_rank=6,
             use_shared_attention_adapter=True, use_mem_rope=True, use_mamba_kernels=False,
             layers_block_type=["linear_attention", "hybrid", "linear_attention", "hybrid",
                                "hybrid"]),
        {"golden.safetensors": 83}),
    "bamba": (
        dict(SMALL, model_type="bamba", num_hidden_layers=4, max_position_embeddings=4096,
             attn_layer_indices=[1, 3], mamba_n_heads=8, mamba_d_head=8, mamba_n_groups=2,
             mamba_d_state=16),
        {"golden.safetensors": 83}),
    # As published, without positions; with the delta rule that may change signs.
    "olmo_hybrid": (
        dict(SMALL, model_type="olmo_hybrid", num_hidden_layers=4, max_position_embeddings=4096,
             layer_types=["linear_attention", "full_attention"] * 2, linear_num_key_heads=4,
             linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=12,
             rope_parameters=dict(rope_type="default", rope_theta=None)),
        {"golden.safetensors": 83}),
    # Lightning attention in blocks shorter than the text, and six factors.
    "minimax": (
        dict(SMALL, model_type="minimax", num_hidden_layers=4, max_position_embeddings=4096,
             layer_types=["linear_attention", "full_attention", "linear_attention",
                          "linear_attention"], head_dim=16, num_local_experts=4,
             num_experts_per_tok=2, block_size=32, full_attn_alpha_factor=1.3,
             full_attn_beta_factor=0.9, linear_attn_alpha_factor=1.2,
             linear_attn_beta_factor=1.1, mlp_alpha_factor=0.8, mlp_beta_factor=1.4,
             rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
        {"golden.safetensors": 83}),
}
# Buffers that are no weights.
TABLES = ("inv_freq", "embed_scale", "router_input_scale", "per_layer_projection_scale",
          "per_layer_input_scale", "slope_rate", "query_decay", "key_decay", "diagonal_decay")


def draw(model):
    turned = model.config.model_type == "gpt_oss"
    tied = model.config.tie_word_embeddings
    for name, values in list(model.named_parameters()) + list(model.named_buffers()):
        if name.endswith(TABLES):
            continue
        noise = torch.randn(values.shape)
        if name.endswith("A_log"):
            drawn = 0.8 + 0.35 * noise
        elif name.endswith("dt_bias"):
            drawn = -1.5 + 0.5 * noise
        elif name.endswith("e_score_correction_bias"):
            drawn = 0.3 * noise
        elif name.endswith(("layer_scalar", "router.scale", "per_expert_scale")):
            drawn = 0.8 + 0.2 * noise
        elif "_adapter_list." in name:  # small: scores of attention would amplify every rounding
            drawn = 0.5 / values.shape[-1] ** 0.5 * noise
        elif name.endswith("correct_output_scale"):
            drawn = 1 + 0.2 * noise
        elif name.endswith("sinks"):
            drawn = 1 + noise
        elif turned and name.endswith(("gate_up_proj", "down_proj")):  # [experts, in, out]
            drawn = 1.2 / values.shape[-2] ** 0.5 * noise
        elif name.endswith("_proj_bias"):
            drawn = 0.3 * noise
        elif name.endswith(".D"):
            drawn = 1 + 0.3 * noise
        elif "conv1d.weight" in name:
            drawn = 0.5 * noise
        elif "embed" in name:
            drawn = noise * (0.3 if tied else 1)
        elif tied and name in ("model.norm.weight", "model.final_layernorm.weight"):
            drawn = 2 * noise  # of both signs: a token does not predict itself
        elif values.dim() >= 2:
            drawn = 1.2 / values.shape[-1] ** 0.5 * noise
        elif "norm" in name:
            drawn = 1 + 0.2 * noise
        else:
            drawn = 0.2 * noise
        values.data.copy_(drawn.to(torch.bfloat16))


def draw_mxfp4(model):
    """Gives the experts random MXFP4 weights; returns them as published folders have them."""
    stored = {}
    for name, values in model.named_parameters():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            continue
        experts, cols, rows = values.shape
        blocks = torch.randint(0, 256, (experts, rows, cols // 32, 16), dtype=torch.uint8)
        scales = torch.randint(122, 126, (experts, rows, cols // 32), dtype=torch.uint8)
        values.data.copy_(convert_moe_packed_tensors(blocks, scales, dtype=torch.float32))
        stored[name] = {f"{name}_blocks": blocks, f"{name}_scales": scales}
    return stored


def rounded_to_q8(values):
    """What is left of activations that are multiplied by MXFP4: bytes with a scale each 32."""
    blocks = values.reshape(-1, 32)
    scales = blocks.abs().amax(dim=-1, keepdim=True) / 127
    return (torch.round(blocks / torch.where(scales > 0, scales, 1)) * scales).reshape(values.shape)


class RoundedExperts(torch.nn.Module):
    """The experts of gpt-oss with activations rounded before both products."""

    def __init__(self, experts):
        super().__init__()
        self.experts = experts

    def forward(self, states, chosen, weights):
        of, out = self.experts, torch.zeros_like(states)
        states = rounded_to_q8(states)
        for row in range(states.shape[0]):
            for expert, weight in zip(chosen[row], weights[row]):
                both = states[row] @ of.gate_up_proj[expert] + of.gate_up_proj_bias[expert]
                hidden = rounded_to_q8(of._apply_gate(both))
                out[row] += weight * (hidden @ of.down_proj[expert] + of.down_proj_bias[expert])
        return out


def save_mxfp4(model, folder, stored):
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    tensors = {}
    for name, values in model.state_dict().items():
        tensors.update(stored.get(name, {name: values.contiguous()}))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def save_olmo_hybrid(model, folder):
    """As published: a convolution each for queries, keys and values, and other names of norms.
    Transformers reads this, and writes something else."""
    config = model.config
    keys = config.linear_num_key_heads * config.linear_key_head_dim
    tensors = {}
    for name, values in model.state_dict().items():
        if name.endswith("conv1d.weight"):
            for part, rows in zip("qkv", values.split([keys, keys, values.shape[0] - 2 * keys])):
                tensors[name.replace("conv1d", f"{part}_conv1d")] = rows.contiguous()
            continue
        if config.layer_types[int(name.split(".")[2]) if ".layers." in name else 0] == "linear_attention":
            name = name.replace("input_layernorm", "attention_layer_norm")
            name = name.replace("post_attention_layernorm", "feedforward_layer_norm")
        tensors[name] = values.contiguous()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def stretch(model, context):
    """Gives a dynamic RoPE the angles of a context of that length, whatever the text's."""
    parameters = model.config.rope_parameters or {}
    if parameters.get("rope_type") != "dynamic" or "alpha" in parameters:
        return
    rotary = model.model.rotary_emb
    rotary.rope_type = "default"
    rotary.inv_freq, rotary.attention_scaling = ROPE_INIT_FUNCTIONS["dynamic"](
        model.config, seq_len=context)


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
        stored = draw_mxfp4(model) if name.endswith("mxfp4") else {}
        for file, count in goldens.items():
            stretch(model, count + GREEDY)
            tokens = torch.randint(3, config["vocab_size"], (count,)).tolist()
            logits = run(model, tokens)
            greedy = []
            for _ in range(GREEDY):
                greedy.append(int(run(model, tokens + greedy)[-1].argmax()))
            folder.mkdir(parents=True, exist_ok=True)
            made = {"tokens": torch.tensor(tokens, dtype=torch.int32),
                    "logits": logits.contiguous(),
                    "greedy": torch.tensor(greedy, dtype=torch.int32)}
            if stored:
                plain = [layer.mlp.experts for layer in model.model.layers]
                for layer in model.model.layers:
                    layer.mlp.experts = RoundedExperts(layer.mlp.experts)
                made["rounded"] = run(model, tokens).contiguous()
                for layer, experts in zip(model.model.layers, plain):
                    layer.mlp.experts = experts
            save_file(made, folder / file)
            print(f"{name}/{file}: spread of logits {float(logits.std()):.3f}, "
                  f"{len(set(greedy))} different tokens of {GREEDY}")
    tables = {n: b.clone() for n, b in model.named_buffers() if n.endswith(TABLES)}
    model.to(torch.bfloat16)
    for name, buffer in model.named_buffers():
        if name in tables:
            buffer.data = tables[name]
    model.save_pretrained(folder)
    if stored:
        save_mxfp4(model, folder, stored)
    if config["model_type"] == "olmo_hybrid":
        save_olmo_hybrid(model, folder)
    (folder / "generation_config.json").unlink(missing_ok=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for chosen in sys.argv[1:] or MODELS:
        make(chosen)
