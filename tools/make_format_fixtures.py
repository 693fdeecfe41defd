"""Writes small model files with other people's writers, to prove that we read what they write.

    python3 -m venv venv && venv/bin/pip install gguf==0.19.0 safetensors==0.8.0 numpy
    venv/bin/python tools/make_format_fixtures.py

  tests/data/tiny.gguf                   every metadata type, every tensor type we support
  tests/data/split-0000{1,2,3}-of-00003.gguf   a set of three parts
  tests/corpus/gguf_fuzz/types           the metadata of tiny.gguf and two tensors
  tests/data/nvfp4.gguf                  matrices of NVFP4 with and without scales, and what gguf-py decodes of them
  tests/data/tiny.safetensors            F32, F16, I32, I64, BOOL; empty and scalar

Byte j of tensor i (in the order added) of the GGUF files is (31 i + 7 j) mod 251.
"""
import pathlib

import numpy as np
from gguf import GGUFWriter
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize
from safetensors.numpy import save_file

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests/data"
TYPES = [T.F32, T.F16, T.BF16, T.Q8_0, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q2_K, T.Q3_K, T.Q4_K,
         T.Q5_K, T.Q6_K, T.IQ4_NL, T.IQ4_XS, T.IQ2_XXS, T.IQ1_S, T.IQ1_M, T.IQ2_XS, T.IQ2_S, T.IQ3_XXS,
         T.IQ3_S, T.TQ1_0, T.TQ2_0, T.MXFP4]


def pattern(index, rows, row_bytes):
    count = rows * row_bytes
    values = (31 * index + 7 * np.arange(count, dtype=np.int64)) % 251
    return values.astype(np.uint8).reshape(rows, row_bytes)


def add_values(writer):
    writer.add_uint8("t.u8", 200)
    writer.add_int8("t.i8", -100)
    writer.add_uint16("t.u16", 60000)
    writer.add_int16("t.i16", -30000)
    writer.add_uint32("t.u32", 4000000000)
    writer.add_int32("t.i32", -2000000000)
    writer.add_float32("t.f32", 0.5)
    writer.add_bool("t.bool", True)
    writer.add_string("t.string", "grüße")
    writer.add_uint64("t.u64", 2**63 + 1)
    writer.add_int64("t.i64", -2**60)
    writer.add_float64("t.f64", 1e300)
    writer.add_array("t.ints", [3, -1, 2])
    writer.add_array("t.floats", [0.25, -2.0])
    writer.add_array("t.bools", [True, False, True])
    writer.add_array("t.strings", ["a", "", "Ġthe", "\u6f22\u5b57"])
    writer.add_uint32("qwen3.block_count", 28)


def write_tiny():
    writer = GGUFWriter(DATA / "tiny.gguf", "qwen3")
    add_values(writer)
    for index, kind in enumerate(TYPES):
        elements, size = GGML_QUANT_SIZES[kind]
        data = pattern(index, 2, 256 // elements * size)
        writer.add_tensor(f"{kind.name.lower()}.weight", data, raw_shape=data.shape, raw_dtype=kind)
    close(writer)


def write_corpus():
    writer = GGUFWriter(DATA.parent / "corpus/gguf_fuzz/types", "qwen3")
    writer.add_custom_alignment(64)
    add_values(writer)
    for index, kind in enumerate([T.Q8_0, T.Q4_0]):
        data = pattern(index, 1, GGML_QUANT_SIZES[kind][1])
        writer.add_tensor(f"{index}", data, raw_shape=data.shape, raw_dtype=kind)
    close(writer)


def write_split():
    writer = GGUFWriter(DATA / "split.gguf", "llama", split_max_tensors=2)
    writer.add_string("general.name", "parts")
    for index in range(5):
        data = pattern(index, 3, 32 * 4)
        writer.add_tensor(f"blk.{index}.weight", data, raw_shape=data.shape, raw_dtype=T.F32)
    close(writer)


def write_nvfp4():
    """X.expected: what gguf-py decodes of X.weight, times X.scale, as BF16 has it."""
    writer = GGUFWriter(DATA / "nvfp4.gguf", "llama")
    rng = np.random.default_rng(43)
    for name, shape, scale in (("a", (6, 128), None), ("b", (2, 3, 64), [0.37, 1.9e-3]), ("c", (2, 64), [3.3])):
        blocks = rng.integers(0, 256, (*shape[:-1], shape[-1] // 64 * 36), dtype=np.uint8)
        blocks[..., :4][blocks[..., :4] == 0x80] = 0x7F
        values = dequantize(blocks, T.NVFP4)
        writer.add_tensor(f"{name}.weight", blocks, raw_dtype=T.NVFP4)
        if scale is not None:
            factors = np.array(scale, np.float32)
            values = values * factors.reshape(-1, *[1] * (len(shape) - 1))
            writer.add_tensor(f"{name}.scale", factors)
            writer.add_tensor(f"{name}.input_scale", factors)
        bits = values.astype(np.float32).view(np.uint32)
        halves = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
        writer.add_tensor(f"{name}.expected", halves.view(np.uint8), raw_dtype=T.BF16)
    close(writer)


def close(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_safetensors():
    save_file({
        "a.weight": np.arange(6, dtype=np.float32).reshape(2, 3) / 4,
        "b.half": np.array([1.0, -2.0, 0.5], dtype=np.float16),
        "tokens": np.array([1, 2, 300], dtype=np.int32),
        "tokens64": np.array([7, 8], dtype=np.int64),
        "mask": np.array([True, False, True]),
        "scalar": np.array(2.5, dtype=np.float32),
        "empty": np.zeros((0, 4), dtype=np.float32),
    }, DATA / "tiny.safetensors", metadata={"format": "pt", "note": "grüße"})


if __name__ == "__main__":
    write_tiny()
    write_corpus()
    write_split()
    write_nvfp4()
    write_safetensors()
