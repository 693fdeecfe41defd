"""Fails if an ISA object file defines a weak or unique symbol.

A weak definition compiled with -mavx512f (or +sve) may be the copy that the linker keeps for the
whole program, which then dies with SIGILL on an older CPU. Run it on the Debug build: optimised
objects can hide the symbol by inlining it.
"""
import subprocess
import sys

bad = []
for obj in sys.argv[1:]:
    out = subprocess.run(["nm", "-C", "--defined-only", obj], capture_output=True, text=True, check=True).stdout
    for line in out.splitlines():
        parts = line.split(None, 2)
        if len(parts) == 3 and parts[1] in "WwVvu":
            bad.append(f"{obj}: {parts[2]}")
print("\n".join(bad) or f"{len(sys.argv) - 1} objects ok")
sys.exit(bool(bad) or len(sys.argv) == 1)
