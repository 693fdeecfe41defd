"""What Transformers makes of config.json when one thing in it is different.

usage: make_variants.py [FAMILY ...]    (needs torch and transformers 5.23; writes tests/golden)

For every golden and every parameter of its config.json that is not about training or text: the
parameter removed, and set to other values. The weights stay. variants.json lists them by golden:
  {"set": {members}, "drop": [members], "expect": "same" | "differs" | "fails"}
"same": the logits are those of the golden; "fails": Transformers refuses, or wants other tensors.
variants.safetensors has, by golden, the first logits of the last position of those that differ.
The test demands that we refuse each by name, or compute the same.
"""
import copy
import json
import pathlib
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

TARGET = pathlib.Path(__file__).resolve().parent.parent.parent / "tests/golden"
TOKENS = 40      # of the golden's
LOGITS = 48      # of the last of them

# About training, generation, text, files, or how (not what) Transformers computes.
HARMLESS = {
    "architectures", "model_type", "transformers_version", "dtype", "torch_dtype", "use_cache",
    "initializer_range", "rescale_prenorm_residual", "rescale_layer", "num_logits_to_keep",
    "output_router_logits", "router_aux_loss_coef", "router_jitter_noise", "chunk_size",
    "mamba_chunk_size", "use_mamba_kernels", "use_mambapy", "use_falcon_mambapy",
    "mamba_ssm_cache_dtype", "mamba_ssm_dtype", "w_init_variance_scale", "final_w_init_variance_scale",
    "time_step_min", "time_step_max", "time_step_floor", "time_step_init_scheme", "time_step_scale",
    "mamba_dt_min", "mamba_dt_max", "mamba_dt_init_floor", "mtp_layers_block_type", "seq_length",
    "num_nextn_predict_layers", "vocab_size", "z_loss_coefficient", "block_size",
    "linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max",
    "linear_dt_init_floor",
}
ACTIVATIONS = ["gelu", "relu", "silu", "relu2", "gelu_pytorch_tanh"]

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
REGIMES = [
    {"rope_type": "unknown_word", "factor": 4.0}, {"rope_type": "dynamic", "factor": 4.0},
    {"rope_type": "linear", "factor": 4.0}, YARN, {**YARN, "attention_factor": 1.3},
    {**YARN, "beta_fast": 4.0, "beta_slow": 0.5}, {**YARN, "truncate": False},
    {**YARN, "mscale": 0.7, "mscale_all_dim": 1.1}, {**YARN, "mscale": 0.7},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 32},
    {"type": "linear", "factor": 4.0}, {"rope_type": "linear"}, {"rope_type": "llama3", "factor": 8.0},
]
# Members that some families know: set where the golden does not have them.
FOREIGN = {
    "attention_bias": [True], "mlp_bias": [True], "sliding_window": [16], "partial_rotary_factor": [0.5],
    "hidden_act": ["gelu"], "head_dim": [8], "attn_logit_softcapping": [5.0],
    "final_logit_softcapping": [5.0], "query_pre_attn_scalar": [8], "rope_theta": [500.0],
    "quantization_config": [{"quant_method": "bitsandbytes"}], "clip_qkv": [0.5],
}


def is_harmless(key):
    return key in HARMLESS or key.endswith("_token_id") or "dropout" in key or key.endswith("_pdrop")


def others(key, value):
    """Other values of a parameter."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, 2 * value] if value else [1]
    if isinstance(value, float):
        return [value * 1.5 if value > 0.01 else 0.05] if value else [0.5]
    if isinstance(value, str):
        return ["unknown_word"] + (ACTIVATIONS if "act" in key else [])
    if isinstance(value, list) and value:
        if key == "layer_types" and len(set(value)) > 1:
            other = next(i for i, v in enumerate(value) if v != value[0])
            swapped = list(value)
            swapped[0], swapped[other] = value[other], value[0]
            return [["unknown_word"] + value[1:], value[:-1], swapped]
        first = others(key, value[0])
        return [[other] + value[1:] for other in first[:2]] + [value[:-1]]
    if value is None:
        if key.startswith("use_"):
            return [True]
        return [2.0, 16.0] if key.endswith("softcapping") else [2, 16] if key != "full_attn_idxs" else []
    return []


def variants(config):
    for key, value in config.items():
        if is_harmless(key):
            continue
        yield {}, [key]
        if key == "rope_parameters" and isinstance(value, dict):
            nested = all(isinstance(v, dict) for v in value.values())
            for part in value if nested else [None]:
                yield from rope_variants(key, value, part)
            continue
        for other in others(key, value):
            yield {key: other}, []
    for key, values in FOREIGN.items():
        if config.get(key) is None:
            for other in values:
                yield {key: other}, []
    if "rope_parameters" in config and "rope_type" in config["rope_parameters"]:
        theta = config["rope_parameters"]["rope_theta"]
        for regime in REGIMES[2:5]:   # as written before Transformers 5
            yield {"rope_theta": theta, "rope_scaling": regime}, ["rope_parameters"]


def rope_variants(key, whole, part):
    inner = whole[part] if part else whole

    def put(changed):
        return {key: {**whole, part: changed} if part else changed}, []

    for name, value in inner.items():
        yield put({k: v for k, v in inner.items() if k != name})
        for other in others(name, value):
            yield put({**inner, name: other})
    for regime in REGIMES:
        yield put({**{k: v for k, v in inner.items() if k not in ("rope_type", "factor")}, **regime})


class Reference:
    def __init__(self, folder):
        self.folder = folder
        self.config = json.loads((folder / "config.json").read_text())
        short = folder / "golden_short.safetensors"  # of a regime for as few tokens
        golden = load_file(short if short.exists() else folder / "golden.safetensors")
        self.tokens = golden["tokens"][:TOKENS].long()
        self.base = golden["logits"][len(self.tokens) - 1]
        self.spread = float(golden["logits"].std())

    def logits(self, config):
        """Of the last position, or None where Transformers refuses or misses tensors."""
        with tempfile.TemporaryDirectory() as place:
            place = pathlib.Path(place)
            (place / "config.json").write_text(json.dumps(config))
            (place / "model.safetensors").symlink_to(self.folder / "model.safetensors")
            try:
                model, report = transformers.AutoModelForCausalLM.from_pretrained(
                    place, dtype=torch.float32, attn_implementation="eager",
                    output_loading_info=True)
                if report["missing_keys"] or report["mismatched_keys"]:
                    return None
                with torch.no_grad():
                    row = model(self.tokens[None], use_cache=False).logits[0, -1].float()
                return row if bool(row.isfinite().all()) else None
            except Exception:  # whatever it says, it is a refusal
                return None


def examine(reference):
    base = reference.logits(reference.config)
    assert base is not None and float((base - reference.base).abs().max()) < 1e-3 * reference.spread
    seen, listed, rows = set(), [], []
    for members, dropped in variants(reference.config):
        config = {k: v for k, v in reference.config.items() if k not in dropped}
        config.update(copy.deepcopy(members))
        text = json.dumps([members, dropped], sort_keys=True)
        if config == reference.config or text in seen:
            continue
        seen.add(text)
        row = reference.logits(config)
        entry = {"set": members, "drop": dropped, "expect": "fails"}
        if row is not None:
            same = float((row - base).abs().max()) < 1e-4 * reference.spread
            entry["expect"] = "same" if same else "differs"
            if not same:
                rows.append(row[:LOGITS])
        listed.append(entry)
    return listed, torch.stack(rows) if rows else torch.zeros(0, LOGITS)


def main(families):
    torch.set_num_threads(1)
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    transformers.logging.disable_progress_bar()
    names, table = TARGET / "variants.json", TARGET / "variants.safetensors"
    listed = json.loads(names.read_text()) if names.exists() else {}
    rows = load_file(table) if table.exists() else {}
    known = [f.name for f in sorted(TARGET.iterdir()) if (f / "config.json").exists()]
    for family in families or known:
        config = json.loads((TARGET / family / "config.json").read_text())
        if config["model_type"] not in transformers.CONFIG_MAPPING:
            print(f"{family}: not in Transformers")
            continue
        if "quantization_config" in config:
            print(f"{family}: quantised, which Transformers computes otherwise")
            continue
        listed[family], rows[family] = examine(Reference(TARGET / family))
        counts = [sum(e["expect"] == kind for e in listed[family])
                  for kind in ("same", "differs", "fails")]
        print(f"{family}: {counts[0]} same, {counts[1]} differ, {counts[2]} fail", flush=True)
        lines = [f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(e) for e in listed[name]) + "\n]"
                 for name in sorted(listed)]
        names.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        save_file(rows, table)


if __name__ == "__main__":
    main(sys.argv[1:])
