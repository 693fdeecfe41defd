#!/usr/bin/env python3
"""Reads the machine code of the CUDA backend: what must be fast uses the units that make it so.

usage: check_sass.py CUOBJDUMP OBJECT...

Of the code for 90a: the kernels named below must contain their instruction (tensor cores, copy engine), must not keep
registers in memory, and some of them must have their dynamic shared memory begin with a line. Needs
no GPU.
"""

import pathlib
import re
import struct
import subprocess
import sys
import tempfile

# Part of a kernel's name: (instructions it must have, bytes of stack it may have).
HOT = {
    "ManyKernel": (["HGMMA", "UTMALDG"], 0),
    # Those whose results leave through the copy engine, by their places in many/forms.h.
    "FormLayoutILm0E": (["HGMMA", "UTMALDG", "UTMASTG", "STS"], 0),
    "FormLayoutILm2E": (["HGMMA", "UTMALDG", "UTMASTG", "STS"], 0),
    "FormLayoutILm3E": (["HGMMA", "UTMALDG", "UTMASTG", "STS"], 0),
    "FewRowsKernel": (["HMMA", "LDGSTS"], 0),
    "ManyRowsKernel": (["HMMA", "LDSM"], 0),
    # Values of 256 channels in registers, and what the pages of a group have come to: a few bytes go
    # to the stack.
    "TensorAttention": (["HMMA", "LDSM"], 88),  # four tight forms look up where rows end; 72 without
    "ManyQueries": (["HGMMA", "LDGSTS"], 56),
    "DeepAttention": (["HMMA", "LDGSTS"], 32),
    "OneRowKernel": (["IDP.4A", "LDGSTS"], 0),
    "SmallKernel": (["HMMA", "LDGSTS"], 0),
    "HalfPieces": (["HMMA", "LDSM", "LDGSTS"], 0),
    "PackedFewKernel": (["HMMA", "UBLKCP"], 0),
    # The same without the copy engine.
    "LaneRing": (["HMMA", "LDGSTS"], 0),
    # Those of 64 tokens: sums of a slice beside those before it.
    "PackedTilesKernel": (["HMMA", "LDSM", "LDGSTS"], 24),
    "PackedManyKernel": (["HGMMA", "UBLKCP", "UTMALDG"], 16),
    # Its tiles of 160 rows alone: sums of a slice beside those before it.
    "Li160ELi2E": (["HGMMA", "UBLKCP", "UTMALDG"], 88),
    # Those of experts, which may be half as tall: what a tile that is not whole asks of each row.
    "Li128ELi2ELb1E": (["HGMMA", "UBLKCP", "UTMALDG"], 112),
    "PackedGatesKernel": (["HMMA", "UBLKCP"], 0),
    "PackedSumKernel": (["HMMA", "UBLKCP"], 0),
    "SmallRowKernel": (["IDP.4A", "LDGSTS"], 0),
    "ChosenGatesKernel": (["IDP.4A", "LDGSTS"], 0),
    "ChosenSumKernel": (["IDP.4A", "LDGSTS"], 0),
    "NormedFloatsKernel": (["LDGSTS", "LDS.128"], 0),
    "RouteAndPlanRow": (["REDUX"], 0),
    "OneRowAttention": (["HMMA", "LDSM", "LDGSTS", "REDUX"], 0),
    # Digits of sums beside the minima of types that have them, in the forms for many tokens.
    "FewProducts": (["IMMA"], 8),
    "ManyProducts": (["IMMA", "LDGSTS"], 32),
    "ScanKernel": (["SHFL", "LDGSTS"], 0),
    "DeltaTokenKernel": (["SHFL", "LDGSTS"], 0),
    "DeltaTokensKernel": (["SHFL", "UBLKCP", "LDS.128"], 0),
    # Halves of units beside sums and totals: a few bytes go to the stack.
    "WarpgroupProducts": (["IGMMA", "UTMALDG"], 48),
}

# Kernels that stream weights through shared memory: where a line of 128 bytes comes to lie in two
# of them, a seventh of the bandwidth is lost. What is static lies in front of what is dynamic.
LINE = 128
STREAMS = {"OneRowKernel", "SmallRowKernel", "ChosenGatesKernel", "ChosenSumKernel",
           "FewRowsKernel", "SmallKernel", "HalfPieces", "PackedFewKernel",
           "LaneRing", "PackedTilesKernel", "PackedManyKernel", "PackedGatesKernel",
           "PackedSumKernel"}


# Which instruction a word means: the lower nine bits of the first 64, and of the second 64 bits those under a mask. NVIDIA
# publishes no table; this one is what its disassembler says, and check_words asks that again.
WORDS = {
    "HGMMA": (0x1f0, 0, 0), "IGMMA": (0x1f1, 0, 0), "HMMA": (0x03c, 0, 0), "IMMA": (0x037, 0, 0),
    "IDP.4A": (0x026, 1 << 12, 0), "LDGSTS": (0x1ae, 0, 0), "LDSM": (0x03b, 0, 0),
    "LDS.128": (0x184, 7 << 9, 6 << 9), "STS": (0x188, 0, 0), "SHFL": (0x189, 0, 0), "REDUX": (0x1c4, 0, 0),
    "UBLKCP": (0x1ba, 0, 0), "UTMALDG": (0x1b4, 0, 0), "UTMASTG": (0x1b5, 0, 0),
}


def run(tool, *arguments, folder=None):
    return subprocess.run([tool, "-arch", "sm_90a", *arguments], check=True, capture_output=True, text=True, cwd=folder).stdout


def bytes_of_kernels(tool, path):
    """Of every kernel: registers in memory, static shared memory."""
    usage = run(tool, "--dump-resource-usage", path)
    return {name: (int(stack) + int(local), int(shared))
            for name, stack, shared, local in re.findall(
                r"Function (\S+):\s*\n\s*REG:\d+ STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", usage)}


def sections(cubin):
    """Of an ELF file with 64 bits: names and contents."""
    table, = struct.unpack_from("<Q", cubin, 40)
    size, count, names = struct.unpack_from("<HHH", cubin, 58)
    heads = [struct.unpack_from("<IIQQQQ", cubin, table + i * size) for i in range(count)]
    for head in heads:
        begin = heads[names][4] + head[0]
        yield cubin[begin:cubin.index(b"\0", begin)].decode(), cubin[head[4]:head[4] + head[5]]


def code_of_kernels(tool, path):
    """Of every kernel: its instructions as pairs of 64 bits, each pair once."""
    code = {}
    with tempfile.TemporaryDirectory() as folder:
        run(tool, "--extract-elf", "all", str(pathlib.Path(path).resolve()), folder=folder)
        for cubin in pathlib.Path(folder).iterdir():
            for name, text in sections(cubin.read_bytes()):
                if name.startswith(".text."):
                    code[name[len(".text."):]] = set(struct.iter_unpack("<QQ", text))
    return code


def has(code, word):
    base, mask, value = WORDS[word]
    return any(low & 0x1ff == base and high & mask == value for low, high in code)


def check_words(tool, examples):
    """What is wrong with WORDS, by the disassembler: of each word, one kernel that has it."""
    for word, (_, path, name) in examples.items():
        if word not in run(tool, "--dump-sass", "--function", name, path):
            yield f"{name} has no {word} where the table says so: the table of words is wrong"


def main():
    tool, objects = sys.argv[1], [path for path in sys.argv[2:] if path.endswith(".cu.o")]
    wrong, seen, examples = [], set(), {}
    for path in objects:
        sizes = bytes_of_kernels(tool, path)
        hot = {name: key for name in sizes for key in HOT if key in name}
        if not hot:
            continue
        code = code_of_kernels(tool, path)
        for name, key in hot.items():
            seen.add(key)
            wanted, stack_max = HOT[key]
            missing = [word for word in wanted if not has(code[name], word)]
            for word in set(wanted) - set(missing):
                examples[word] = min(examples.get(word, (sys.maxsize, "", "")), (len(code[name]), path, name))
            if missing:
                wrong.append(f"{name} has no {', '.join(missing)}")
            stack, shared = sizes[name]
            if stack > stack_max:
                wrong.append(f"{name} keeps {stack} bytes of registers in memory")
            if key in STREAMS and shared % LINE != 0:
                wrong.append(f"{name} has {shared} bytes of shared memory in front of what is "
                             f"dynamic: say __align__({LINE}) of that")
    wrong += check_words(tool, examples)
    wrong += [f"there is no kernel {key}" for key in HOT if key not in seen]
    for line in wrong:
        print(line)
    print(f"{len(objects)} objects, {len(seen)} kinds of kernels looked at, {len(wrong)} wrong")
    return 1 if wrong or not objects else 0


if __name__ == "__main__":
    sys.exit(main())
