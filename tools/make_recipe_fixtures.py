"""Writes small quantised folders with the weights that they stand for, made by each format's own code.

    python3 -m venv venv && venv/bin/pip install torch numpy safetensors compressed-tensors==0.20.0
    venv/bin/pip download --no-deps --no-binary :all: autoawq==0.2.9 && tar xzf autoawq-0.2.9.tar.gz
    venv/bin/python tools/make_recipe_fixtures.py autoawq-0.2.9/awq/utils/packing_utils.py

makes tests/data/recipes/NAME/{config.json,model.safetensors}. A tensor X.weight, quantised, has its
values beside it as X.expected, in the type that the format's code makes. compressed-tensors and AWQ are
computed by their packages. The kernels of GPTQ cannot be installed without a GPU, and FP8 in blocks is
one line of DeepSeek's inference code (weight_dequant): these two are written out here.
"""
import importlib.util
import json
import pathlib
import sys

import torch
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.quantization.lifecycle.forward import dequantize
from safetensors.torch import save_file

ROOT = pathlib.Path(__file__).resolve().parent.parent / "tests/data/recipes"
torch.manual_seed(43)


def words(*shape):
    return torch.randint(-2**31, 2**31, shape, dtype=torch.int64).to(torch.int32)


def fp8(*shape):
    """Every finite value."""
    bits = torch.randint(0, 256, shape, dtype=torch.uint8)
    bits[(bits & 127) == 127] = 1
    return bits.view(torch.float8_e4m3fn)


def scales(*shape, dtype):
    return (torch.rand(shape) * 0.02 + 1e-4).to(dtype)


def write(name, quantization, tensors):
    folder = ROOT / name
    folder.mkdir(parents=True, exist_ok=True)
    config = {"model_type": "llama", "quantization_config": quantization}
    (folder / "config.json").write_text(json.dumps(config) + "\n")
    copies = {key: value.clone(memory_format=torch.contiguous_format)
              for key, value in tensors.items()}
    save_file(copies, folder / "model.safetensors", metadata={"format": "pt"})
    print(folder)


def fp8_blocks():
    tensors = {}
    for name, dtype in (("a", torch.float32), ("b", torch.bfloat16)):
        weight, scale = fp8(40, 56), scales(3, 4, dtype=dtype)
        spread = scale.repeat_interleave(16, 0)[:40].repeat_interleave(16, 1)[:, :56]
        tensors |= {f"{name}.weight": weight, f"{name}.weight_scale_inv": scale,
                    f"{name}.expected": weight.to(dtype) * spread}
    whole, scale = fp8(5, 24), scales(1, dtype=torch.float32)
    tensors |= {"c.weight": whole, "c.weight_scale": scale, "c.expected": whole.to(scale.dtype) * scale}
    write("fp8", {"quant_method": "fp8", "weight_block_size": [16, 16]}, tensors)


def compressed():
    tensors = {}

    def add(name, scale, expected, **parts):
        tensors.update({f"{name}.{key}": value for key, value in parts.items()})
        tensors[f"{name}.weight_scale"] = scale
        tensors[f"{name}.expected"] = expected

    eight = QuantizationArgs(num_bits=8, type="float", strategy="channel", symmetric=True)
    weight, scale = fp8(6, 48), scales(6, 1, dtype=torch.bfloat16)
    add("channel", scale, dequantize(weight, scale, args=eight), weight=weight)
    whole = QuantizationArgs(num_bits=8, type="float", strategy="tensor", symmetric=True)
    weight, scale = fp8(6, 48), scales(1, dtype=torch.float32)
    add("tensor", scale, dequantize(weight, scale, args=whole), weight=weight)
    int8 = QuantizationArgs(num_bits=8, type="int", strategy="channel", symmetric=True)
    weight = torch.randint(-128, 128, (6, 48), dtype=torch.int8)
    scale = scales(6, 1, dtype=torch.bfloat16)
    add("int8", scale, dequantize(weight, scale, args=int8), weight=weight)
    for bits in (4, 8):
        for dtype in (torch.bfloat16, torch.float16):
            name = f"packed{bits}{'b' if dtype == torch.bfloat16 else 'h'}"
            args = QuantizationArgs(num_bits=bits, type="int", strategy="group", group_size=32,
                                    symmetric=True)
            shape = torch.tensor([16, 96])
            packed = words(16, 96 * bits // 32)
            scale = scales(16, 3, dtype=dtype)
            values = unpack_from_int32(packed, bits, torch.Size([16, 96]))
            add(name, scale, dequantize(values, scale, args=args), weight_packed=packed,
                weight_shape=shape)
            zeros = words(16 * bits // 32, 3)
            minus = unpack_from_int32(zeros, bits, torch.Size([16, 3]), packed_dim=0)
            args.symmetric = False
            add(name + "z", scale, dequantize(values, scale, minus, args=args), weight_packed=packed,
                weight_shape=shape, weight_zero_point=zeros)
            order = torch.arange(96, dtype=torch.int32)[torch.randperm(96)] // 32
            # Act-order as versions before 0.13 had it: columns sorted by group, and back.
            by_group = torch.argsort(order, stable=True)
            sorted_values = dequantize(values[:, by_group], scale, minus, args=args)
            expected = torch.empty_like(sorted_values)
            expected[:, by_group] = sorted_values
            add(name + "o", scale, expected, weight_packed=packed, weight_shape=shape,
                weight_zero_point=zeros, weight_g_idx=order)
    fours = torch.randint(0, 256, (4, 32), dtype=torch.uint8)
    scale = fp8(4, 4).to(torch.float32).abs().to(torch.float8_e4m3fn)
    args = QuantizationArgs(num_bits=4, type="float", strategy="tensor_group", group_size=16,
                            symmetric=True)
    whole = torch.tensor([37.5])
    values = unpack_fp4_from_uint8(fours, 4, 64, dtype=torch.bfloat16)
    expected = dequantize(values, scale.to(torch.float32), args=args, dtype=torch.bfloat16,
                          global_scale=whole)
    add("nvfp4", scale, expected, weight_packed=fours, weight_global_scale=whole)
    write("compressed-tensors", {"quant_method": "compressed-tensors", "format": "mixed-precision"},
          tensors)


def awq(path):
    spec = importlib.util.spec_from_file_location("packing_utils", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    packed, zeros, scale = words(64, 3), words(2, 3), scales(2, 24, dtype=torch.float16)
    values = module.dequantize_gemm(packed, zeros, scale, 4, 32)
    write("awq", {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm",
                  "zero_point": True},
          {"a.qweight": packed, "a.qzeros": zeros, "a.scales": scale, "a.expected": values.T})


def gptq(name, bits, version):
    per_word, mask = 32 // bits, 2**bits - 1
    rows, cols, groups = 16, 64, 4
    packed, zeros = words(cols // per_word, rows), words(groups, rows // per_word)
    scale = scales(groups, rows, dtype=torch.float16)
    order = torch.arange(cols, dtype=torch.int32)[torch.randperm(cols)] // (cols // groups)
    shifts = torch.arange(0, 32, bits, dtype=torch.int32)
    values = (packed[:, None, :] >> shifts[None, :, None] & mask).reshape(cols, rows)
    minus = (zeros[:, :, None] >> shifts[None, None, :] & mask).reshape(groups, rows)
    if version == "gptq":
        minus = minus + 1 & mask
    groups_of = order.long()
    expected = scale[groups_of] * (values - minus[groups_of]).to(scale.dtype)
    write(name, {"quant_method": "gptq", "bits": bits, "group_size": 16, "desc_act": True,
                 "checkpoint_format": version},
          {"a.qweight": packed, "a.qzeros": zeros, "a.scales": scale, "a.g_idx": order,
           "a.expected": expected.T})


if __name__ == "__main__":
    fp8_blocks()
    compressed()
    awq(sys.argv[1])
    gptq("gptq", 4, "gptq")
    gptq("gptq8", 8, "gptq_v2")
    gptq("gptq2", 2, "gptq")
