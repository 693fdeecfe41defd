"""Counts what the inner loops of aarch64 kernels cost: loop_cost.py <object or library> [pattern].

For every innermost loop that multiplies (smmla, sdot, fmla), prints its instructions by the kind of
unit they need, and bounds in cycles for a core with four vector pipes of which two multiply matrices
(Neoverse V1). No substitute for a measurement; it shows spills, shuffles and folds.
"""
import collections
import re
import subprocess
import sys

MULTIPLY = {"smmla", "sdot", "smlal", "smull", "smull2", "smlal2", "fmla", "fmls"}
LOAD = re.compile(r"^(ld|prfm)")
STORE = re.compile(r"^st")
PIPE02 = re.compile(r"^(smmla|mla|mul|mls|smull|smlal|scvtf|fcvt|sadalp|fdiv|fsqrt)")


def disassemble(path):
    out = subprocess.run(["aarch64-linux-gnu-objdump", "-dC", "--no-show-raw-insn", path],
                         capture_output=True, text=True, check=True).stdout
    name, body = None, []
    for line in out.splitlines():
        head = re.match(r"^([0-9a-f]+) <(.*)>:$", line)
        if head:
            if body:
                yield name, body
            name, body = head.group(2), []
            continue
        insn = re.match(r"^\s+([0-9a-f]+):\s+(\S+)\s*(.*)$", line)
        if insn:
            body.append((int(insn.group(1), 16), insn.group(2), insn.group(3)))
    if body:
        yield name, body


def loops(body):
    """Innermost [target, branch] ranges of backward branches."""
    index = {address: i for i, (address, _, _) in enumerate(body)}
    found = []
    for i, (_, op, args) in enumerate(body):
        if re.match(r"^(b\.|cbnz|cbz|tbnz|tbz|b$)", op):
            target = re.search(r"\b([0-9a-f]+) <", args)
            j = index.get(int(target.group(1), 16)) if target else None
            if j is not None and j <= i:
                found.append((j, i))
    return [a for a in found if not any(a != b and a[0] <= b[0] and b[1] <= a[1] for b in found)]


def kind(op, args):
    if LOAD.match(op):
        return "load"
    if STORE.match(op):
        return "store"
    if re.search(r"\b[vqdsh]\d+", args):
        return "vector"
    return "scalar"


def main(path, pattern):
    for name, body in disassemble(path):
        if not re.search(pattern, name):
            continue
        for begin, end in loops(body):
            ops = body[begin:end + 1]
            mix = collections.Counter(op for _, op, _ in ops)
            products = sum(mix[m] for m in MULTIPLY)
            if products == 0:
                continue
            kinds = collections.Counter(kind(op, args) for _, op, args in ops)
            spills = sum(1 for _, op, args in ops if op in ("str", "stp", "stur") and "sp" in args)
            pipe02 = sum(n for op, n in mix.items() if PIPE02.match(op))
            cycles = max(kinds["vector"] / 4, pipe02 / 2, kinds["load"] / 3, len(ops) / 8)
            print(f"{name}\n  {len(ops)} instructions: {dict(kinds)}, stores to the stack {spills}")
            print(f"  {dict(mix.most_common(14))}")
            print(f"  at least {cycles:.1f} cycles; smmla bound {mix['smmla'] / 2:.1f}, sdot bound {mix['sdot'] / 4:.1f}")


main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "")
