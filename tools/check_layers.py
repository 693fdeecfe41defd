"""Fails if a module includes a module that its row does not allow.

The table is the architecture: ARCHITECTURE.md prints it, this script enforces it.
"""
import pathlib
import re
import sys

ALLOWED = {  # module: modules it may include (itself is implied)
    "base": "",
    "picture": "base",
    "tensor": "base",
    "device": "base tensor",
    "state": "base tensor device",
    "kernels": "base tensor device",
    "weights": "base tensor device",
    "tier": "base state device",
    "cache": "base tensor state device tier",
    "text": "base",
    "grammar": "base text",
    "model": "base picture tensor state device kernels weights text",
    "sample": "base tensor kernels",
    "sched": "base state cache",
    "engine": "base tensor state device cache model sched sample",
    "events": "base state cache",
    "http": "base",
    "hub": "base",
    "api": "base picture text grammar sample engine http",
    "batches": "base http api",
    "web": "base engine http",
    "cli": "base picture tensor state device kernels weights tier cache text grammar model sample engine events http hub api batches web",
    "main": "base cli",
}
# Only these files of a module may be included from outside it.
PUBLIC = {
    "cache": {"state_cache.h", "stats.h", "announce/block_event.h", "tier/tier.h", "tier/rehearsal_tier.h", "tier/record_tier.h", "tier/joined_tier.h"},
    "engine": {"adapters/adapter_shelf.h", "engine.h", "request.h", "sight/placed_pictures.h", "stats.h"},
}
# What turns places in a device's memory into addresses: only for those who compute with them.
RAW = {"device/raw.h", "kernels/raw_rows.h"}
COMPUTES = {"device", "kernels"}
# Commands may look inside the heart to prove and measure it.
INSIDERS = {"cli"}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def module_of(path):
    """src/cache/tree/node.h -> cache; src/main.cc -> main."""
    return path.parts[0] if len(path.parts) > 1 else path.stem


def check_acyclic():
    done = set()

    def visit(module, stack):
        if module in stack:
            sys.exit("cycle in ALLOWED: " + " -> ".join(stack + [module]))
        if module not in done:
            for dep in ALLOWED[module].split():
                visit(dep, stack + [module])
            done.add(module)

    for module in ALLOWED:
        visit(module, [])


def check_include(rel, included):
    module, path = module_of(rel), pathlib.PurePath(included)
    dep = module_of(path)
    if dep == module:
        a, b = rel.parts, path.parts
        if a[:2] == b[:2] == ("model", "families") and a[2] != b[2]:
            return f"{rel}: family '{a[2]}' includes family '{b[2]}'"
        return None
    if dep not in ALLOWED:
        return None  # third party or generated
    if included in RAW and module not in COMPUTES and "_test" not in rel.name:
        return f"{rel}: {included} is for {' and '.join(sorted(COMPUTES))} only"
    if dep not in ALLOWED[module].split():
        return f"{rel}: {module} may not include {dep} ({included})"
    private = dep in PUBLIC and "/".join(path.parts[1:]) not in PUBLIC[dep]
    if private and module not in INSIDERS and "_test" not in rel.name:
        return f"{rel}: {included} is private to {dep}"
    return None


def main(src):
    check_acyclic()
    errors = []
    for file in sorted(src.rglob("*")):
        if file.suffix not in {".h", ".cc", ".cu", ".cuh"}:
            continue
        rel = file.relative_to(src)
        if module_of(rel) not in ALLOWED:
            errors.append(f"{rel}: unknown module '{module_of(rel)}'")
            continue
        for included in INCLUDE.findall(file.read_text()):
            error = check_include(rel, included)
            if error:
                errors.append(error)
    print("\n".join(errors) or "layers ok")
    return bool(errors)


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
