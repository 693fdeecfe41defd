"""Writes what the codec tests compare with, and the tables that no formula gives.

    python3 -m venv venv && venv/bin/pip install gguf==0.19.0 numpy
    venv/bin/python tools/make_quant_fixtures.py

makes, with llama.cpp's own Python package as the authority:

  tests/data/quants.bin        records, little-endian:
                                 u32 ggml type, u32 kind, u32 elements, blocks, f32 values
                               kind 0: blocks are random bits, values what they decode to
                               kind 1: values are given, blocks what they quantise to
  tests/data/grids.bin         records of kind 0 of the types of grids and the ternary ones, and
                               of kind 1 of the latter
  src/tensor/grids.gen.cc      the points of the grids of IQ1, IQ2 and IQ3. They are constants of
                               the file format, chosen once by its author among those of a
                               lattice; no rule derives them.
"""
import pathlib
import struct

import numpy as np
from gguf import quants
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as T

ROOT = pathlib.Path(__file__).resolve().parent.parent
ELEMENTS = 768
# Byte offsets of f16 fields in a block: random bits there must be finite.
HALVES = {T.Q8_0: [0], T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q2_K: [80, 82],
          T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.IQ4_NL: [0],
          T.IQ4_XS: [0], T.IQ2_XXS: [0], T.MXFP4: []}
ROUNDING = [T.F16, T.BF16, T.Q8_0, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.MXFP4]  # defined bit for bit


def random_blocks(rng, kind):
    elements, size = GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (ELEMENTS // elements, size), dtype=np.uint8)
    for offset in HALVES.get(kind, []):
        scale = (rng.standard_normal(len(blocks)) * 0.02).astype(np.float16)
        scale[0] = np.float16(6e-8)  # the smallest subnormal
        blocks[:, offset:offset + 2] = scale.view(np.uint8).reshape(-1, 2)
    if kind in (T.F16, T.BF16):
        halves = blocks.reshape(-1).view(np.uint16)
        exponent = 0x7C00 if kind == T.F16 else 0x7F80
        halves[(halves & exponent) == exponent] &= 0x83FF if kind == T.F16 else 0x807F
    return blocks.reshape(-1)


def weights_like(rng):
    values = (rng.standard_normal(ELEMENTS) * 0.05).astype(np.float32)
    values[0:32] = 0.0                                   # an empty block
    values[32:64] = 0.25                                 # a constant one
    values[64:96] = np.abs(values[64:96])                # one sign only
    values[96] = -3.0                                    # an outlier
    values[128:160] *= np.float32(1e-6)                  # subnormal scales
    values[160:192] = np.arange(-16, 16, dtype=np.float32) * 0.5  # ties
    return values


def record(kind, way, blocks, values):
    head = struct.pack("<III", int(kind), way, values.size)
    return head + blocks.tobytes() + values.astype("<f4").tobytes()


def write_fixture():
    rng = np.random.default_rng(20240817)
    out = b""
    for kind in [T.F16, T.BF16, *HALVES]:
        blocks = random_blocks(rng, kind)
        out += record(kind, 0, blocks, quants.dequantize(blocks, kind).reshape(-1))
    for kind in ROUNDING:
        values = weights_like(rng)
        out += record(kind, 1, quants.quantize(values, kind).view(np.uint8), values)
    write_bytes("tests/data/quants.bin", out)


def write_bytes(name, out):
    path = ROOT / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(out)
    print(path, len(out))


# Scales in one f16, or in the top nibbles of the last four words (IQ1_M).
GRIDS = {T.IQ1_S: 0, T.IQ1_M: None, T.IQ2_XXS: 0, T.IQ2_XS: 0, T.IQ2_S: 0, T.IQ3_XXS: 0, T.IQ3_S: 0,
         T.TQ1_0: 52, T.TQ2_0: 64}


def grid_blocks(rng, kind):
    _, size = GGML_QUANT_SIZES[kind]
    count = 5
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    scale = (rng.standard_normal(count) * 0.02).astype(np.float16)
    scale[:2] = np.float16([6e-8, -0.0])
    if kind != T.IQ1_M:
        blocks[:, GRIDS[kind]:GRIDS[kind] + 2] = scale.view(np.uint8).reshape(-1, 2)
        return blocks.reshape(-1)
    words = blocks[:, 48:].copy().view(np.uint16)
    bits = scale.view(np.uint16)
    for i in range(4):
        words[:, i] = (words[:, i] & 0x0FFF) | (bits >> 4 * i & 15) << 12
    blocks[:, 48:] = words.view(np.uint8)
    return blocks.reshape(-1)


def write_grid_fixture():
    rng = np.random.default_rng(20261119)
    out = b""
    for kind in GRIDS:
        blocks = grid_blocks(rng, kind)
        out += record(kind, 0, blocks, quants.dequantize(blocks, kind).reshape(-1))
    for kind in (T.TQ1_0, T.TQ2_0):
        values = weights_like(rng)
        out += record(kind, 1, quants.quantize(values, kind).view(np.uint8), values)
    write_bytes("tests/data/grids.bin", out)


def points(kind):
    """A point as 16 bits: eight codes of two bits, or four of four."""
    data = bytes.fromhex(kind.grid_hex.decode())
    return struct.unpack(f"<{len(data) // 2}H", data)


def write_grids():
    out = ("// SPDX-License-Identifier: Apache-2.0\n"
           "// Generated by tools/make_quant_fixtures.py, which says where the numbers come from.\n"
           '#include "tensor/blocks.h"\n\nnamespace reprise {\n')
    two = (0x08, 0x19, 0x2b)
    for name, kind, levels in [
            ("kIQ2Grid", quants.IQ2_XXS, two), ("kIQ2XSGrid", quants.IQ2_XS, two),
            ("kIQ2SGrid", quants.IQ2_S, two),
            ("kIQ3XXSGrid", quants.IQ3_XXS, (4, 12, 20, 28, 36, 44, 52, 62)),
            ("kIQ3SGrid", quants.IQ3_S, tuple(range(1, 16, 2))),
            ("kIQ1Grid", quants.IQ1_S, (-1, 0, 1))]:
        grid = points(kind)
        assert kind.grid_map == levels and len(grid) == kind.grid_shape[0]
        if len(levels) == 3:
            assert all(p >> 2 * i & 3 != 3 for p in grid for i in range(8))
        rows = [", ".join(f"0x{p:04x}" for p in grid[i:i + 12]) for i in range(0, len(grid), 12)]
        out += f"\nconst uint16_t {name}[{len(grid)}] = {{\n    " + ",\n    ".join(rows) + ",\n};\n"
    (ROOT / "src/tensor/grids.gen.cc").write_text(out + "\n}  // namespace reprise\n")


if __name__ == "__main__":
    write_fixture()
    write_grid_fixture()
    write_grids()
