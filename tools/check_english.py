"""Phrases that make a text hard to read stay out of the documents for users.

    tools/check_english.py [ROOT]

Looks at the Markdown files for users: all but notes, decisions and the READMEs of folders of the source. Names the line
and what to write instead.
"""
import pathlib
import re
import subprocess
import sys

PHRASES = {
    r"\bwhoever\b": "name who it is: a request, a reader, a server",
    r"\btold\b": "say who gets what",
    r"\bso many that\b": "give the number",
    r"\bbeside nobody\b": "alone",
    r"\b(?<!there )is no (?!limit\b|longer\b|need\b|way\b)[a-z]+": "say what it is, or: there is no ...",
}


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    listed = subprocess.run(["git", "-C", root, "ls-files", "*.md"], capture_output=True, text=True, check=True).stdout.split("\n")
    wrong = []
    for name in filter(None, listed):
        for_users = "/" not in name or (name.startswith(("docs/", "deploy/")) and not name.startswith(("docs/notes/", "docs/adr/")))
        if not for_users or name in ("ARCHITECTURE.md", "CONTRIBUTING.md"):
            continue
        for number, line in enumerate((root / name).read_text().splitlines(), 1):
            for phrase, advice in PHRASES.items():
                if found := re.search(phrase, line, re.IGNORECASE):
                    wrong.append(f"{name}:{number}: '{found.group(0)}': {advice}")
    print("\n".join(wrong))
    sys.exit(len(wrong) > 0)


if __name__ == "__main__":
    main()
