#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Proves that the manual pages pass mandoc's lint and that bash, zsh and fish complete what --help shows.

usage: pages_test.py REPRISE

Both are made by the program itself (`help --man FOLDER`, `help --completion SHELL`): a command that is added needs no change here.
"""
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
SHELLS = ["bash", "zsh", "fish"]


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)


def command_lines(command=()):
    """All commands as --help lists them: (), ("serve",), ("bench", "decode"), ..."""
    text = run(PROGRAM, *command, "--help").stdout
    found = [(tuple(command), text)]
    listed = re.search(r"^Commands:\n((?:  .*\n)+)", text, re.M)
    for name in re.findall(r"^  (\S+)", listed.group(1), re.M) if listed else []:
        found += command_lines((*command, name))
    return found


def option_names(help_text):
    rows = re.findall(r"^  (?:\S+ or )?(-\S+)", help_text, re.M)
    return [name for row in rows for name in row.split(",")]


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name)
        (cls.path / "bin").mkdir()
        (cls.path / "bin/reprise").symlink_to(PROGRAM)
        cls.env = {**os.environ, "PATH": f"{cls.path}/bin:{os.environ['PATH']}", "HOME": cls.folder.name, "TERM": "dumb",
                   "XDG_CONFIG_HOME": cls.folder.name, "XDG_DATA_HOME": cls.folder.name}
        cls.commands = command_lines()
        cls.scripts = {}
        for shell in SHELLS:
            made = run(PROGRAM, "help", "--completion", shell)
            assert made.returncode == 0, made.stderr
            cls.scripts[shell] = cls.path / f"reprise.{shell}"
            cls.scripts[shell].write_text(made.stdout)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_manual_pages(self):
        pages = self.path / "man"
        pages.mkdir()
        made = run(PROGRAM, "help", "--man", str(pages))
        self.assertEqual((made.returncode, made.stdout, made.stderr), (0, "", ""))
        self.assertEqual({page.name for page in pages.iterdir()}, {"-".join(["reprise", *command]) + ".1" for command, _ in self.commands})
        linted = run("mandoc", "-T", "lint", *sorted(page.name for page in pages.iterdir()), cwd=pages)
        self.assertEqual(linted.stdout + linted.stderr, "")
        for command, help_text in self.commands:
            page = run("mandoc", "-T", "ascii", pages / ("-".join(["reprise", *command]) + ".1")).stdout
            shown = re.sub(".\b", "", page)  # bold is a letter, a backspace and the letter
            for name in option_names(help_text):
                self.assertRegex(shown, rf"(?m)^     .*(?<!\S){re.escape(name)}(?=[ ,\n])", command)

    def test_a_folder_that_does_not_exist_is_named(self):
        refused = run(PROGRAM, "help", "--man", str(self.path / "none"))
        self.assertEqual(refused.returncode, 1)
        self.assertRegex(refused.stderr, r"^reprise: cannot write .*/none/reprise\.1: does the folder exist\?\n$")
        self.assertIn("bash, zsh, fish", run(PROGRAM, "help", "--completion", "tcsh").stderr)

    def bash(self, line):
        script = ('source "$1"; COMP_LINE=$2; COMP_WORDS=($2); [[ $2 == *" " ]] && COMP_WORDS+=(""); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); '
                  'compopt() { echo "(files)"; }; '
                  '_reprise reprise "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"; printf "%s\\n" "${COMPREPLY[@]}"')
        done = run("bash", "--norc", "-c", script, "bash", self.scripts["bash"], line, env=self.env)
        self.assertEqual(done.stderr, "", line)
        return set(done.stdout.split())

    def fish(self, line):
        done = run("fish", "--no-config", "-c", f"source {self.scripts['fish']}; complete -C {line!r}", env=self.env)
        self.assertEqual(done.stderr, "", line)
        return {found.split("\t")[0] for found in done.stdout.splitlines()}

    def expect(self, complete):
        """What bash and fish say, for every command and every option that --help shows."""
        for command, help_text in self.commands:
            line = " ".join(["reprise", *command, ""])
            self.assertLessEqual({below[-1] for below, _ in self.commands if below and below[:-1] == command}, complete(line), line)
            # fish offers short options as soon as there is a dash, long ones after two.
            names = option_names(help_text)
            offered = complete(line + "-") | complete(line + "--")
            self.assertEqual([name for name in names if name not in offered], [], line)
        self.assertEqual(complete("reprise serve --kv "), {"f16", "bf16", "f32", "q8_0"})
        self.assertEqual(complete("reprise serve --port "), set())
        self.assertIn("serve", complete("reprise help s"))
        self.assertEqual(complete("reprise se"), {"serve"})

    def test_bash(self):
        self.expect(self.bash)
        self.assertEqual(self.bash("reprise serve --kv = q"), {"q8_0"})
        self.assertIn("(files)", self.bash("reprise run "))
        self.assertIn("(files)", self.bash("reprise serve --config "))

    def test_fish(self):
        self.expect(self.fish)

    def zsh(self, lines):
        """What an interactive zsh shows for each line after the tabulator, and on screen."""
        (self.path / "functions").mkdir(exist_ok=True)
        shutil.copy(self.scripts["zsh"], self.path / "functions/_reprise")
        (self.path / ".zshrc").write_text(
            f"fpath=({self.path}/functions $fpath); autoload -Uz compinit; compinit -D -u\n"
            "try() { zle complete-word; zle -R; print -rn -- \"<<$BUFFER>>\"; BUFFER=; }; zle -N try; bindkey '\\t' try\n"
            "PS1='> '; unsetopt beep; setopt auto_list no_list_ambiguous no_auto_menu; LISTMAX=1000; zstyle ':completion:*' list-colors ''\n")
        pid, screen = pty.fork()
        if pid == 0:
            os.environ.update(self.env, ZDOTDIR=self.folder.name, COLUMNS="200", LINES="200")
            os.chdir(self.path / "bin")
            os.execvp("zsh", ["zsh", "-i"])

        def read_until(text, seconds=60):
            end, seen = time.monotonic() + seconds, ""
            while text not in seen:
                if not select.select([screen], [], [], max(0, end - time.monotonic()))[0]:
                    raise AssertionError(f"zsh never shows {text!r}: {seen!r}")
                seen += os.read(screen, 1 << 16).decode(errors="replace")
            return seen

        shown = []
        os.write(screen, b"echo rea''dy\n")
        read_until("ready\r")
        for line in lines:
            os.write(screen, line.encode() + b"\t")
            shown.append(read_until(">>"))
        os.write(screen, b"exit\n")
        os.close(screen)
        os.waitpid(pid, 0)
        return shown

    def test_zsh(self):
        self.assertEqual(run("zsh", "-n", self.scripts["zsh"]).stderr, "")
        lines = [" ".join(["reprise", *command, "--"]) for command, _ in self.commands]
        shown = self.zsh([*lines, "reprise ", "reprise bench ", "reprise serve --kv ", "reprise serve --kv=q"])
        for (command, help_text), screen in zip(self.commands, shown):
            # One option alone is put in at once.
            missing = [name for name in option_names(help_text) if name.startswith("--") and name not in screen]
            self.assertEqual(missing, [], (command, screen))
        for command, _ in self.commands:
            if len(command) == 1:
                self.assertIn(command[0], shown[-4])
            elif command and command[0] == "bench":
                self.assertIn(command[1], shown[-3])
        for kind in ["bf16", "f32", "q8_0"]:
            self.assertIn(kind, shown[-2])
        self.assertIn("--kv=q8_0", shown[-1])


if __name__ == "__main__":
    unittest.main(verbosity=2)
