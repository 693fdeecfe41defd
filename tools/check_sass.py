#!/usr/bin/env python3
"""Reads the machine code of the CUDA backend: what must be fast uses the units that make it so.

usage: check_sass.py CUOBJDUMP OBJECT...

Of the code for 90a: the kernels named below must contain their instruction (tensor cores, copy engine), must not keep
registers in memory, and some of them must have their dynamic shared memory begin with a line. Needs
no GPU.
"""

import re
import subprocess
import sys

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
    "TensorAttention": (["HMMA", "LDSM"], 72),
    "ManyQueries": (["HGMMA", "LDGSTS"], 56),
    "DeepAttention": (["HMMA", "LDGSTS"], 32),
    "OneRowKernel": (["IDP.4A", "LDGSTS"], 0),
    "TwoTypesKernel": (["IDP.4A", "LDGSTS"], 0),
    "SmallKernel": (["HMMA", "LDGSTS"], 0),
    "HalfPieces": (["HMMA", "LDSM", "LDGSTS"], 0),
    "PackedFewKernel": (["HMMA", "UBLKCP"], 0),
    # The same without the copy engine.
    "LaneRing": (["HMMA", "LDGSTS"], 0),
    # Those of 64 tokens: sums of a slice beside those before it.
    "PackedTilesKernel": (["HMMA", "LDSM", "LDGSTS"], 24),
    "PackedManyKernel": (["HGMMA", "UBLKCP", "UTMALDG"], 16),
    # Its tiles of 160 rows alone: sums of a slice beside those before it.
    "Li160ELi2E": (["HGMMA", "UBLKCP", "UTMALDG"], 72),
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
STREAMS = {"OneRowKernel", "TwoTypesKernel", "SmallRowKernel", "ChosenGatesKernel",
           "ChosenSumKernel", "FewRowsKernel", "SmallKernel", "HalfPieces", "PackedFewKernel",
           "LaneRing", "PackedTilesKernel", "PackedManyKernel", "PackedGatesKernel",
           "PackedSumKernel"}


def run(tool, flag, path):
    return subprocess.run([tool, "-arch", "sm_90a", flag, path], check=True, capture_output=True, text=True).stdout


def bytes_of_kernels(tool, path):
    """Of every kernel: registers in memory, static shared memory."""
    usage = run(tool, "--dump-resource-usage", path)
    return {name: (int(stack) + int(local), int(shared))
            for name, stack, shared, local in re.findall(
                r"Function (\S+):\s*\n\s*REG:\d+ STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", usage)}


def code_of_kernels(tool, path):
    parts = re.split(r"\n\s*Function : (\S+)", run(tool, "--dump-sass", path))
    return dict(zip(parts[1::2], parts[2::2]))


def main():
    tool, objects = sys.argv[1], [path for path in sys.argv[2:] if path.endswith(".cu.o")]
    wrong, seen = [], set()
    for path in objects:
        sizes = bytes_of_kernels(tool, path)
        hot = {name: key for name in sizes for key in HOT if key in name}
        if not hot:
            continue
        code = code_of_kernels(tool, path)
        for name, key in hot.items():
            seen.add(key)
            wanted, stack_max = HOT[key]
            missing = [word for word in wanted if word not in code[name]]
            if missing:
                wrong.append(f"{name} has no {', '.join(missing)}")
            stack, shared = sizes[name]
            if stack > stack_max:
                wrong.append(f"{name} keeps {stack} bytes of registers in memory")
            if key in STREAMS and shared % LINE != 0:
                wrong.append(f"{name} has {shared} bytes of shared memory in front of what is "
                             f"dynamic: say __align__({LINE}) of that")
    wrong += [f"there is no kernel {key}" for key in HOT if key not in seen]
    for line in wrong:
        print(line)
    print(f"{len(objects)} objects, {len(seen)} kinds of kernels looked at, {len(wrong)} wrong")
    return 1 if wrong or not objects else 0


if __name__ == "__main__":
    sys.exit(main())
