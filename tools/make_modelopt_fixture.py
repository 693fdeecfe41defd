"""Writes small folders as ModelOpt exports them, with the weights that they stand for.

    python3 tools/make_modelopt_fixture.py        (needs numpy)

makes tests/data/recipes/{modelopt,modelopt_file}/. X.expected are the values of X.weight as
NVFP4QTensor.dequantize of modelopt 0.47 computes them, which needs a GPU's stack to be imported and
is written out here: e2m1_values[level] * (scale * scale_2) in f32, then the model's type, BF16; and for
FP8 weight * scale in f32.
"""
import json
import pathlib
import struct

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent / "tests/data/recipes"
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
CONFIG = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "producer": {"name": "modelopt"}}


def e4m3(bits):
    bits = bits.astype(np.int32)
    exponent, mantissa = bits >> 3 & 15, (bits & 7).astype(np.float32)
    value = np.where(exponent == 0, np.ldexp(mantissa, -9), np.ldexp(8 + mantissa, exponent - 10))
    return np.where(bits >= 128, -value, value).astype(np.float32)


def bf16(values):
    """To nearest, ties to even."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def save(path, tensors):
    entries, data = {}, b""
    for name, (kind, values) in sorted(tensors.items()):
        raw = values.tobytes()
        entries[name] = {"dtype": kind, "shape": list(values.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)


def tensors(rng):
    levels = rng.integers(0, 256, (6, 32), dtype=np.uint8)
    scale = rng.integers(0, 127, (6, 4), dtype=np.uint8)
    whole = np.float32(0.00371)
    values = np.empty((6, 64), np.float32)
    values[:, 0::2], values[:, 1::2] = E2M1[levels & 15], E2M1[levels >> 4]
    made = values.reshape(6, 4, 16) * (e4m3(scale) * whole)[:, :, None]
    eights = rng.integers(0, 256, (5, 24), dtype=np.uint8)
    eights[(eights & 127) == 127] = 1
    one = np.float32(0.0123)
    return {"a.weight": ("U8", levels), "a.weight_scale": ("F8_E4M3", scale),
            "a.weight_scale_2": ("F32", np.array(whole)), "a.input_scale": ("F32", np.array(np.float32(0.5))),
            "a.expected": ("BF16", bf16(made.reshape(6, 64))),
            "b.weight": ("F8_E4M3", eights), "b.weight_scale": ("F32", np.array(one)),
            "b.expected": ("F32", e4m3(eights) * one)}


def main():
    for name in ("modelopt", "modelopt_file"):
        folder = ROOT / name
        folder.mkdir(parents=True, exist_ok=True)
        config = {"model_type": "llama"}
        if name == "modelopt":
            config["quantization_config"] = CONFIG
        else:
            own = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "MIXED_PRECISION"}}
            (folder / "hf_quant_config.json").write_text(json.dumps(own) + "\n")
        (folder / "config.json").write_text(json.dumps(config) + "\n")
        save(folder / "model.safetensors", tensors(np.random.default_rng(43)))


if __name__ == "__main__":
    main()
