"""Style as a test: sizes, names, SPDX lines, leftovers. Limits are those of CONTRIBUTING.md.

A limit asks "which noun is hiding in here?". Exceptions are listed by name, with a reason, in
tools/tidy_exceptions.txt; generated files (*.gen.*) are exempt.
"""
import pathlib
import re
import subprocess
import sys

FILE_LINES = {".cc": 800, ".h": 300, ".py": 600}
TEST_LINES = 1000
KERNEL_LINES = 1200
FUNCTION_LINES = 100
FOLDER_FILES = 20
LINE_COLUMNS = 100
BANNED_NAMES = re.compile(r"(manager|helper|utils?|common|misc)(_|\.|$)")
BANNED_TEXT = {
    r"\bstd::cout\b": "the library does not print; use base/log.h or the cli's Terminal",
    r"\bstd::endl\b": "use '\\n'",
    r"\bassert\(": "use CHECK or DCHECK from base/check.h",
    r"\bkTaps\b|\bint taps\b|\.taps - 1\b|\[taps\b": "a tap is where a state is left inside a step; a convolution has a reach",
    r"#include <regex>": "std::regex is slow and ASCII only; use PCRE2 behind text/",
    r"\bTO" + r"DO\b|\bFIX" + r"ME\b|\bXX" + r"X\b": "no leftovers: do it, or open an issue and name it without the word",
}
# One word for each idea of the heart (src/{cache,engine,sched}); tests may say more.
HEART_WORDS = {
    r"\bspeculativ\w*": "work for idle time is idle",
    r"\bhas_recurrent\b": "ask the component, or the kind of entries (cache/index/kind/entry_kind.h)",
    r"\bPlannedCut\b": "a snapshot that is planned is a PlannedSnapshot",
    r"\bgone on with\b": "continued",
}
HEART_EXCEPT = {"src/cache/component/recurrent.h"}  # where the question belongs
SOURCE = {".cc", ".h", ".cu", ".cuh"}


def tracked(root, errors):
    out = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                         capture_output=True, check=True).stdout
    names = [name.decode(errors="replace") for name in out.split(b"\0") if name]
    odd = [name for name in names if not re.fullmatch(r"[!-~]+", name)]
    errors.extend(f"{name!a}: what a program left behind, by its name; remove it" for name in odd)
    return [pathlib.Path(name) for name in names if name not in odd and (root / name).is_file()]


def line_limit(rel):
    if "_test." in rel.name or rel.parts[0] == "tests":
        return TEST_LINES
    if rel.parts[:2] == ("src", "kernels") and rel.parts[2] in {"cpu", "cuda"} and rel.suffix != ".h":
        return KERNEL_LINES
    return FILE_LINES.get(rel.suffix)


def function_lengths(text):
    """Yields (line, length) of blocks that begin in column 0 and end with '}' in column 0."""
    start = None
    for number, line in enumerate(text.splitlines(), 1):
        if start is None and line and not line[0].isspace() and line.rstrip().endswith("{"):
            if not re.match(r"(namespace|extern|struct|class|enum|union|template|const|constexpr|static const)\b", line):
                start = number
        elif start is not None and line.startswith("}"):
            yield start, number - start + 1
            start = None


def check_source(rel, text, errors):
    lines = text.splitlines()
    if rel.suffix in SOURCE and (not lines or "SPDX-License-Identifier: Apache-2.0" not in lines[0]):
        errors.append(f"{rel}:1: first line must be // SPDX-License-Identifier: Apache-2.0")
    if rel.suffix == ".h" and "#pragma once" not in text:
        errors.append(f"{rel}: header without #pragma once")
    for number, line in enumerate(lines, 1):
        if len(line) > LINE_COLUMNS and rel.suffix in SOURCE:
            errors.append(f"{rel}:{number}: {len(line)} columns (limit {LINE_COLUMNS})")
        if line != line.rstrip():
            errors.append(f"{rel}:{number}: trailing space")
    if rel.suffix in SOURCE and rel.parts[0] == "src":
        for pattern, advice in BANNED_TEXT.items():
            for match in re.finditer(pattern, text):
                errors.append(f"{rel}:{text.count(chr(10), 0, match.start()) + 1}: {match.group(0)}: {advice}")
        if rel.parts[1] in {"cache", "engine", "sched"} and "_test" not in rel.name and str(rel) not in HEART_EXCEPT:
            for pattern, advice in HEART_WORDS.items():
                for match in re.finditer(pattern, text):
                    errors.append(f"{rel}:{text.count(chr(10), 0, match.start()) + 1}: {match.group(0)}: {advice}")
        if "_test." not in rel.name:
            for number, length in function_lengths(text):
                if length > FUNCTION_LINES:
                    errors.append(f"{rel}:{number}: function of {length} lines (limit {FUNCTION_LINES})")


def main(root):
    exceptions = set()
    listed = root / "tools/tidy_exceptions.txt"
    if listed.exists():
        exceptions = {line.split()[0] for line in listed.read_text().splitlines() if line and line[0] != "#"}
    errors, folders = [], {}
    for rel in tracked(root, errors):
        if rel.suffix not in SOURCE | {".py"} or ".gen." in rel.name:
            continue
        text = (root / rel).read_text()
        if rel.parts[0] == "src" and rel.suffix in SOURCE:
            if "_test." not in rel.name:
                folders[rel.parent] = folders.get(rel.parent, 0) + 1
            if BANNED_NAMES.search(rel.name):
                errors.append(f"{rel}: name says nothing; find the noun")
        limit = line_limit(rel)
        if limit and text.count("\n") > limit and str(rel) not in exceptions:
            errors.append(f"{rel}: {text.count(chr(10))} lines (limit {limit}); which noun is hiding in here?")
        check_source(rel, text, errors)
    for folder, count in folders.items():
        if count > FOLDER_FILES and str(folder) not in exceptions:
            errors.append(f"{folder}: {count} files (limit {FOLDER_FILES})")
    print("\n".join(errors) or "tidy ok")
    return bool(errors)


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))
