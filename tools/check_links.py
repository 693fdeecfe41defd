"""Every link and every path that a document names must exist.

    tools/check_links.py [ROOT]

Looks at all Markdown files of the tree: links to files and to headings, pictures, and paths in code quotes that begin
with a folder of the tree (`docs/server.md`, `src/cache/tree`). Links to other hosts are not followed.
"""
import pathlib
import re
import subprocess
import sys

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
QUOTED = re.compile(r"`((?:docs|src|tests|tools|packaging|cmake|deploy)/[A-Za-z0-9_./-]*[A-Za-z0-9_/])`")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def anchors(text):
    """Names that a renderer gives to the headings of a document."""
    heads = re.findall(r"^#+ +(.+?) *$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def wrong_links(root, name, text):
    path = root / name
    for target in LINK.findall(FENCE.sub("", text)):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        to = (path.parent / file).resolve() if file else path
        if not to.exists():
            yield f"{name}: no file behind the link {target}"
        elif anchor and to.suffix == ".md" and anchor not in anchors(to.read_text()):
            yield f"{name}: no heading behind the link {target}"
    for target in QUOTED.findall(text):
        places = [root / target, path.parent / target]
        if not any(place.exists() or list(place.parent.glob(place.name + ".*")) for place in places):
            yield f"{name}: no file named {target}"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    names = subprocess.run(["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
                           capture_output=True, check=True, text=True).stdout.split("\n")
    files = {name: (root / name).read_text() for name in names if name and (root / name).is_file()}
    wrong = [line for name, text in sorted(files.items()) for line in wrong_links(root, name, text)]
    print("\n".join(wrong), end="\n" if wrong else "")
    if not files:
        sys.exit("no Markdown files found")
    print(f"{len(files)} documents, {len(wrong)} wrong links")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
