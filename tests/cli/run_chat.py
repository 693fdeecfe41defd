#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Proves that a conversation of ten turns through `reprise run` computes only what is new, and says so.

usage: run_chat.py REPRISE MODEL
"""
import re
import subprocess
import sys

MESSAGES = [
    "Hello", "Tell me a story about a cat.", "What did it eat?", "Who was its friend?", "Was it happy?",
    "Tell me another story.", "Who is in it?", "Where do they live?", "Why?", "Good night",
]
TURN = re.compile(r"^last turn: (\d+) of (\d+) prompt tokens reused, (\d+) computed, (\d+) were new$", re.M)
ALL = re.compile(r"^all (\d+) turns: (\d+) of (\d+) prompt tokens reused, (\d+) computed, (\d+) were new", re.M)


def chat(program, model, options=()):
    text = "".join(f"{message}\n/cache\n" for message in MESSAGES)
    done = subprocess.run(
        [program, "run", "--model", model, "--system", "You tell stories to children.", "--seed", "1", "-n", "40", *options],
        input=text, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def main():
    program, model = sys.argv[1:]
    out = chat(program, model)
    turns = [tuple(map(int, groups)) for groups in TURN.findall(out)]
    assert len(turns) == len(MESSAGES), out
    for number, (used, prompt, computed, new) in enumerate(turns, 1):
        assert used + computed == prompt, (number, out)
        assert computed == new, f"turn {number} computed {computed} tokens, {new} were new\n{out}"
        assert number == 1 or used > 0, (number, out)
    total = [tuple(map(int, groups)) for groups in ALL.findall(out)][-1]
    assert total == (len(turns), *(sum(turn[i] for turn in turns) for i in range(4))), (total, turns)
    assert re.search(r"^stored: \d+ tokens in \d+ runs, \d+ snapshots; .* of .*B$", out, re.M), out
    assert chat(program, model) == out, "the same seed, the same conversation"


main()
