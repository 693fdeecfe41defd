"""Writes a llama2.c checkpoint (stories15M.bin) as a Hugging Face folder, to measure the teacher beside the student.

    python3 tools/train/llama2c_to_hf.py --checkpoint stories15M.bin --tokenizer tokenizer.json --out stories15M/
"""
import argparse
import json
import os
import shutil
import struct

import numpy as np
from safetensors.numpy import save_file


def halves(weight, heads):
    """llama2.c rotates neighbours, Transformers rotates halves: the rows of a head change places."""
    out, columns = weight.shape
    return weight.reshape(heads, out // heads // 2, 2, columns).transpose(0, 2, 1, 3).reshape(out, columns)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    raw = open(args.checkpoint, "rb").read()
    dim, hidden, layers, heads, kv_heads, vocab, length = struct.unpack("7i", raw[:28])
    weights, at = np.frombuffer(raw, np.float32, offset=28), 0

    def take(*shape):
        nonlocal at
        count = int(np.prod(shape))
        at += count
        return weights[at - count:at].reshape(shape)

    kv = dim // heads * kv_heads
    tensors = {"model.embed_tokens.weight": take(abs(vocab), dim)}
    for name, shape in (("input_layernorm", (dim,)), ("self_attn.q_proj", (dim, dim)), ("self_attn.k_proj", (kv, dim)),
                        ("self_attn.v_proj", (kv, dim)), ("self_attn.o_proj", (dim, dim)), ("post_attention_layernorm", (dim,)),
                        ("mlp.gate_proj", (hidden, dim)), ("mlp.down_proj", (dim, hidden)), ("mlp.up_proj", (hidden, dim))):
        for i, weight in enumerate(take(layers, *shape)):
            if name.endswith(("q_proj", "k_proj")):
                weight = halves(weight, heads if name.endswith("q_proj") else kv_heads)
            tensors[f"model.layers.{i}.{name}.weight"] = np.ascontiguousarray(weight)
    tensors["model.norm.weight"] = take(dim)
    at += length * (dim // heads)  # tables of the rotation
    if vocab < 0:
        tensors["lm_head.weight"] = take(-vocab, dim)
    save_file(tensors, os.path.join(args.out, "model.safetensors"), metadata={"format": "pt"})
    with open(os.path.join(args.out, "config.json"), "w", encoding="utf-8") as f:
        json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": abs(vocab), "hidden_size": dim,
                   "intermediate_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
                   "num_key_value_heads": kv_heads, "max_position_embeddings": length, "rms_norm_eps": 1e-5,
                   "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": vocab > 0, "bos_token_id": 1,
                   "eos_token_id": 2, "dtype": "float32"}, f, indent=1)
    shutil.copy(args.tokenizer, os.path.join(args.out, "tokenizer.json"))


if __name__ == "__main__":
    main()
