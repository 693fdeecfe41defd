#!/usr/bin/env python3
"""Every family that llama.cpp knows: writes its file with `reprise synth`, then compares as compare.py does.

A family that is published only in sizes that do not fit here keeps the geometry of a layer and loses layers, experts or
words; what was changed stands in the table below and in the name inside the file."""
import argparse
import json
import pathlib
import sys

import compare

SMALL_VOCABULARY = {"vocab_size": 16384}
GRANITE_LAYERS = ["mamba"] * 5 + ["attention"] + ["mamba"] * 2
KIMI_LAYERS = {"num_heads": 32, "head_dim": 128, "short_conv_kernel_size": 4, "full_attn_layers": [4],
               "kda_layers": [1, 2, 3]}

# name: published model, what differs from it in the file whose logits are compared.
AGREEMENT = {
    "falcon_h1": ("Falcon-H1-0.5B", {"num_hidden_layers": 12}),
    "falcon_mamba": ("falcon-mamba-7b", {"num_hidden_layers": 4, **SMALL_VOCABULARY}),
    "gemma2": ("gemma-2-2b", {"num_hidden_layers": 6, **SMALL_VOCABULARY}),
    "gemma3": ("gemma-3-1b", {"num_hidden_layers": 12, **SMALL_VOCABULARY}),
    "granitemoehybrid": ("granite-4.0-h-micro", {"num_hidden_layers": 8, "layer_types": GRANITE_LAYERS,
                                                 **SMALL_VOCABULARY}),
    "granitemoehybrid_experts": ("granite-4.0-h-micro", {
        "num_hidden_layers": 8, "layer_types": GRANITE_LAYERS, "num_local_experts": 16, "num_experts_per_tok": 4,
        "intermediate_size": 512, "shared_intermediate_size": 1024, **SMALL_VOCABULARY}),
    "jamba": ("AI21-Jamba-Reasoning-3B", {"num_hidden_layers": 8, **SMALL_VOCABULARY}),
    "jamba_moe": ("Jamba-tiny", {}),  # a stand-in: nothing with experts is published this small
    "kimi_linear": ("Kimi-Linear-48B-A3B", {"num_hidden_layers": 4, "num_experts": 32,
                                            "linear_attn_config": KIMI_LAYERS, **SMALL_VOCABULARY}),
    "lfm2": ("LFM2-350M", {}),
    "llama": ("Llama-3.2-1B", {"num_hidden_layers": 6, **SMALL_VOCABULARY}),
    "mamba": ("mamba-130m", {}),
    "mamba2": ("mamba2-130m", {}),
    # The geometry of Mistral-7B v0.3; the same architecture in GGUF files.
    "mistral": ("Llama-3.1-8B", {"num_hidden_layers": 4, "rope_scaling": None, "rope_theta": 1e6,
                                 **SMALL_VOCABULARY}),
    "nemotron_h": ("Nemotron-H-4B", {"num_hidden_layers": 10, "hybrid_override_pattern": "M-M-M-M*-M",
                                     **SMALL_VOCABULARY}),
    "nemotron_h_moe": ("Nemotron-3-Nano-30B-A3B", {"num_hidden_layers": 8, "n_routed_experts": 16,
                                                   "hybrid_override_pattern": "MEMEM*EM",
                                                   **SMALL_VOCABULARY}),
    "phi3": ("Phi-3-mini-4k", {"num_hidden_layers": 4, "sliding_window": None, **SMALL_VOCABULARY}),
    "qwen2": ("Qwen2.5-0.5B", {**SMALL_VOCABULARY}),
    "qwen3": ("Qwen3-0.6B", {**SMALL_VOCABULARY}),
    "qwen3_5": ("Qwen3.5-0.8B", {**SMALL_VOCABULARY}),
    "qwen3_5_moe": ("Qwen3.5-35B-A3B", {"num_hidden_layers": 4, "num_experts": 64, **SMALL_VOCABULARY}),
    "qwen3_moe": ("Qwen3-30B-A3B", {"num_hidden_layers": 4, "num_experts": 32, **SMALL_VOCABULARY}),
    "qwen3_next": ("Qwen3-Next-80B-A3B", {"num_hidden_layers": 4, "num_experts": 64, **SMALL_VOCABULARY}),
    "rwkv7": ("RWKV7-0.1B", {}),
}
# The same for speed: with all experts and words.
SPEED = {
    "jamba": ("AI21-Jamba-Reasoning-3B", {}),
    "mamba2": ("mamba2-130m", {}),
    "nemotron_h": ("Nemotron-H-4B", {}),
    "qwen3_5_moe": ("Qwen3.5-35B-A3B", {"num_hidden_layers": 8}),
    "rwkv7": ("RWKV7-0.1B", {}),
}


def write_model(args, like, changes, dtype, path):
    unfinished = path.with_suffix(".part")
    command = [args.reprise, "synth", "--like", like, "--type", dtype, "--out", unfinished]
    for key, value in changes.items():
        command += ["--set", f"{key}={json.dumps(value)}"]
    compare.run(command)
    unfinished.rename(path)


def models(args, table, types):
    """The files, each written when it is asked for and removed behind its use."""
    for name in args.families or table:
        for dtype in types:
            path = args.folder / f"{name}-{dtype}.gguf"
            kept = args.keep or path.exists()
            if not path.exists():
                write_model(args, *table[name], dtype, path)
            yield path
            if not kept:
                path.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=list(compare.COMMANDS))
    parser.add_argument("families", nargs="*", help="default: all that are listed here")
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="for the files; those in it are used")
    parser.add_argument("--types", help="of weights, with commas; default f16 for agreement, q8_0,q4_0 for speed")
    parser.add_argument("--keep", action="store_true", help="keep the files that were written")
    compare.add_options(parser)
    args = parser.parse_intermixed_args()
    args.reprise = args.reprise.resolve()
    args.folder.mkdir(parents=True, exist_ok=True)
    table, types = (AGREEMENT, "f16") if args.what == "agreement" else (SPEED, "q8_0,q4_0")
    for name in args.families:
        if name not in table:
            sys.exit(f"no family '{name}' (known: {', '.join(table)})")
    args.models = models(args, table, (args.types or types).split(","))
    compare.COMMANDS[args.what](args)


if __name__ == "__main__":
    main()
