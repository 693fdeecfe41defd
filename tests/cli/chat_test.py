"""`reprise run` as a person has it: driven through a pseudo-terminal, key by key; and clean in a pipe.

usage: chat_test.py REPRISE SOURCE_ROOT

A small terminal (rows, cursor, the sequences that the program writes) shows what a person would see.
"""
import base64
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unicodedata
import unittest

REPRISE = sys.argv.pop(1) if len(sys.argv) > 1 else "reprise"
ROOT = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else ".")
TINY = ROOT / "models/reprise-tiny-q8_0.gguf"
SEES = ROOT / "tests/vision/qwen3_5"
PATIENCE = 60  # seconds; only a failure takes so long
UP, DOWN, RIGHT, LEFT = "\x1b[A", "\x1b[B", "\x1b[C", "\x1b[D"
HOME, END, DELETE, BACKSPACE = "\x1b[H", "\x1b[F", "\x1b[3~", "\x7f"


def columns_of(char):
    if unicodedata.combining(char) or char in "\u200d\ufe0f":
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


class Screen:
    """What is shown: as much of a terminal as the program asks for, with rows that scroll away kept."""

    SEQUENCE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])")

    def __init__(self, columns):
        self.columns, self.rows, self.row, self.column = columns, [[]], 0, 0
        self.pasting = False
        self.rest = ""

    def feed(self, text):
        text = self.rest + text
        self.rest = ""
        at = 0
        while at < len(text):
            if text[at] == "\x1b":
                found = self.SEQUENCE.match(text, at)
                if not found:
                    self.rest = text[at:]
                    assert len(self.rest) < 16, f"an unknown sequence: {self.rest!r}"
                    return
                self.obey(*found.groups())
                at = found.end()
                continue
            self.put(text[at])
            at += 1

    def obey(self, argument, letter):
        count = int(argument) if argument.isdigit() else 1
        if letter == "A":
            self.row = max(0, self.row - count)
        elif letter == "C":
            self.column = min(self.columns - 1, self.column + count)
        elif letter == "J" and argument == "":
            del self.rows[self.row + 1:]
            del self.rows[self.row][self.column:]
        elif letter == "J":
            self.rows, self.row, self.column = [[]], 0, 0
        elif (argument, letter) in [("?2004", "h"), ("?2004", "l")]:
            self.pasting = letter == "h"
        else:
            assert letter in "mHK", (argument, letter)

    def put(self, char):
        if char == "\r":
            self.column = 0
        elif char == "\n":
            self.row += 1
            if self.row == len(self.rows):
                self.rows.append([])
        elif char >= " ":
            if self.column + columns_of(char) > self.columns:
                self.put("\r")
                self.put("\n")
            row = self.rows[self.row]
            row.extend(" " * (self.column - len(row)))
            if columns_of(char) == 0:
                row[self.column - 1] += char
                return
            row[self.column:self.column + columns_of(char)] = [char] + [""] * (columns_of(char) - 1)
            self.column += columns_of(char)

    def text(self):
        return "\n".join("".join(row).rstrip() for row in self.rows)


def run_below_a_shell(path, arguments, environment):
    """Runs a program as a shell with job control does: in a group of its own, which may stop. Says what the terminal is then."""
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpgrp())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        os.execve(path, arguments, environment)
    while True:
        _, status = os.waitpid(child, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            os._exit(os.waitstatus_to_exitcode(status))
        cooked = termios.tcgetattr(0)[3] & (termios.ICANON | termios.ECHO) == termios.ICANON | termios.ECHO
        os.write(1, b"(stopped, %s)\r\n" % (b"cooked" if cooked else b"raw"))
        os.killpg(child, signal.SIGCONT)


class Terminal:
    def __init__(self, *options, columns=80, rows=24, state=None, environment=(), model=TINY, shell=False):
        self.state = state or tempfile.mkdtemp()
        self.sent = []
        environment = {**os.environ, "TERM": "xterm-256color", "XDG_STATE_HOME": self.state, **dict(environment)}
        environment.pop("NO_COLOR", None)
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            start = run_below_a_shell if shell else os.execve
            start(REPRISE, [REPRISE, "run", "-m", str(model), "--seed", "1", "--device", "cpu", *options], environment)
        self.screen, self.raw, self.ended, self.part = Screen(columns), b"", False, b""
        self.resize(columns, rows)
        self.wait_for("ends.\n> ")

    def resize(self, columns, rows=24):
        fcntl.ioctl(self.file, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen.columns = columns

    def write(self, text):
        data = text if isinstance(text, bytes) else text.encode()
        while data:
            self.read(0)
            if select.select([], [self.file], [], 1)[1]:
                data = data[os.write(self.file, data[:512]):]

    def read(self, seconds):
        if self.ended or not select.select([self.file], [], [], seconds)[0]:
            return
        try:
            new = os.read(self.file, 1 << 16)
        except OSError:
            new = b""
        self.ended = not new
        self.raw += new
        text = (self.part + new)
        whole = text.decode(errors="ignore") if new else ""
        keep = len(text) - len(whole.encode())
        self.part = text[len(text) - keep:] if keep else b""
        self.screen.feed(whole)

    def wait(self, ready, what):
        end = time.monotonic() + PATIENCE
        while not ready():
            assert not self.ended and time.monotonic() < end, f"no {what!r} in:\n{self.screen.text()}"
            self.read(1)

    def wait_for(self, text):
        self.wait(lambda: (self.screen.text() + " ").endswith(text) or text in self.screen.text(), text)

    def wait_for_prompt(self):
        """A prompt with nothing behind it, where keys are read."""
        self.wait(lambda: self.screen.pasting and self.line() == "", "a new prompt")

    def line(self):
        """What stands behind the last prompt; None while a reply comes."""
        rows = self.screen.text().split("\n")
        last = max((i for i, row in enumerate(rows) if row.startswith(">")), default=None)
        if last is None or not self.screen.pasting:
            return None
        return "\n".join(row[2:] for row in rows[last:])

    def type(self, keys, line):
        """Types, and waits until the line looks as it must."""
        self.write(keys)
        self.wait(lambda: self.line() == line, line)

    def send(self, text):
        """A message or a command, and all that comes until the next prompt."""
        self.sent.append(text.split(" ")[0])
        before = len(self.screen.rows)
        self.write(text)
        if text:
            self.wait(lambda: text.split("\n")[-1][-10:] in (self.line() or ""), text)
        self.raw = b""
        self.write("\r")
        self.wait(lambda: b"\x1b[?2004h" in self.raw and self.line() is not None, "the next prompt")
        self.wait(lambda: self.line() is not None, "the next prompt")
        return self.screen.text()

    def end(self):
        """The exit status, when it ends by itself."""
        self.wait_for_end()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def wait_for_end(self):
        end = time.monotonic() + PATIENCE
        while not self.ended:
            assert time.monotonic() < end, self.screen.text()
            self.read(1)

    def close(self):
        if not self.ended:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.file)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Editor(unittest.TestCase):
    def test_every_key(self):
        with Terminal() as t:
            t.type("helo wrld", "helo wrld")
            t.type(LEFT * 2 + "l" + RIGHT * 2 + "!", "helo wrlld!")
            t.type("\x01" + RIGHT * 3 + "l", "hello wrlld!")          # Ctrl-A
            t.type(END + BACKSPACE, "hello wrlld")
            t.type(HOME + DELETE + "J", "Jello wrlld")
            t.type("\x1b[1;5C" + " big", "Jello big wrlld")           # Ctrl-Right
            t.type("\x17", "Jello  wrlld")                            # Ctrl-W
            t.type("\x19", "Jello big wrlld")                         # Ctrl-Y
            t.type("\x0b", "Jello big")                               # Ctrl-K
            t.type("\x1bb\x1bd", "Jello")                             # Alt-B, Alt-D
            t.type("\x15\x05x", "x")                                  # Ctrl-U, Ctrl-E
            t.type("\x02\x04", "")                                    # Ctrl-B, Ctrl-D deletes
            t.type("a\x1b\rb", "a\nb")                                # Alt-Enter
            t.type(UP + "c" + DOWN + "d", "ac\nbd")
            t.type("\x1b[99;99Z\x1b[27~", "ac\nbd")                   # sequences that are not known
            t.write("\x0c")                                           # Ctrl-L
            t.wait(lambda: t.screen.text().startswith("> ac\n  bd"), "a clear screen")
            t.type("\x03", "")                                        # Ctrl-C: another line
            t.write("\x04")
            self.assertEqual(t.end(), 0)

    def test_every_sequence_of_every_key(self):
        """Terminals differ in what they send for a key: all of what the program takes for one, as its source lists it."""
        source = (ROOT / "src/cli/line/key_reader.cc").read_text()
        keys = [("\x1b" + bytes(text, "ascii").decode("unicode_escape"), kind)
                for text, kind in re.findall(r'\{"((?:[^"\\]|\\.)+)", Kind::k(\w+)\}', source)]
        for cases, kind in re.findall(r"((?:    case .+:\n)+)      return Kind::k(\w+);", source):
            for code in re.findall(r"case (.+):", cases):
                keys.append((chr(int(code)) if code.isdigit() else bytes(code.strip("'"), "ascii").decode("unicode_escape"), kind))
        self.assertGreater(len(keys), 45)
        # Behind the key an X is typed where the cursor is then: at first amid the second word of the second row.
        shows = {"Up": "aaaa bbXbb cccc\ndddd eeee ffff\ngggg hhhh iiii", "Down": "aaaa bbbb cccc\ndddd eeee ffff\ngggg hhXhh iiii"}
        for kind, row in {"Left": "dddd eXeee ffff", "Right": "dddd eeeXe ffff", "Home": "Xdddd eeee ffff", "End": "dddd eeee ffffX",
                          "WordLeft": "dddd Xeeee ffff", "WordRight": "dddd eeeeX ffff", "Backspace": "dddd eXee ffff",
                          "Delete": "dddd eeXe ffff", "EndOfInput": "dddd eeXe ffff", "CutWord": "dddd Xee ffff",
                          "CutNextWord": "dddd eeX ffff", "CutToStart": "Xee ffff", "CutToEnd": "dddd eeX", "Newline": "dddd ee\nXee ffff",
                          "Redraw": "dddd eeXee ffff"}.items():
            shows[kind] = f"aaaa bbbb cccc\n{row}\ngggg hhhh iiii"
        shows["Interrupt"] = "X"  # another line
        shows["Suspend"] = shows["Redraw"]
        seen = set()
        with Terminal(shell=True) as t:
            for key, kind in keys:
                if kind in ("Enter", "Yank"):  # Enter is in every test; what was cut must be known
                    continue
                seen.add(kind)
                t.write("aaaa bbbb cccc\ndddd eeee ffff\ngggg hhhh iiii" + UP + LEFT * 7)
                t.type(key + "X", shows[kind])
                t.type("\x03", "")
                if kind == "Suspend":
                    self.assertIn("(stopped, cooked)", t.screen.text())
            t.type("cut this\x17\x19\x19", "cut thisthis")
            t.type("\x03\t\x1b[Zx", "    x")                        # a tabulator; what is behind it is not known
        self.assertEqual(seen, set(shows))

    def test_utf8_and_wide_characters(self):
        with Terminal(columns=20) as t:
            t.type("h\u00e4 \u4e16\u754c", "h\u00e4 \u4e16\u754c")
            t.type(LEFT + BACKSPACE, "h\u00e4 \u754c")
            t.write("\xc3\xa4".encode("latin-1")[:1])                 # half of a character
            t.write("\xc3\xa4".encode("latin-1")[1:])
            t.type("", "h\u00e4 \u00e4\u754c")
            t.type(END + "e\u0301" + BACKSPACE, "h\u00e4 \u00e4\u754c")  # a letter with its accent
            t.type("\x15" + "\u4e16" * 12, "\u4e16" * 9 + "\n" + "\u4e16" * 3)

    def test_history_outlives_the_process(self):
        with tempfile.TemporaryDirectory() as state:
            with Terminal("-n", "1", state=state) as t:
                for message in ["one", "two"]:
                    t.send(message)
                t.type("draft" + UP, "two")
                t.type(UP, "one")
                t.type(UP + DOWN + DOWN, "draft")
                t.write("\x03")
                t.wait_for_prompt()
                t.write("\x04")
                self.assertEqual(t.end(), 0)
            file = pathlib.Path(state) / "reprise/history"
            self.assertEqual(file.stat().st_mode & 0o777, 0o600)
            self.assertEqual(file.read_text(), "one\ntwo\n")
            with Terminal(state=state) as t:
                t.type(UP + UP, "one")
            with Terminal("--no-history", "-n", "1", state=state) as t:
                t.send("three")
                t.type(UP, "three")
            self.assertEqual(file.read_text(), "one\ntwo\n")

    def test_a_paste_of_100_kb_is_one_message(self):
        with Terminal("-n", "1", "-c", "64") as t:
            paste = "".join(f"line {i} \u00e4\u4e16\r" for i in range(7000))
            self.assertGreater(len(paste.encode()), 100_000)
            t.write("\x1b[200~" + paste + "last\x1b[201~")
            # The screen shows the end of it, where the cursor is.
            t.wait(lambda: t.screen.text().endswith("line 6999 \u00e4\u4e16\n  last"), "the end of the paste")
            t.send("")
            found = re.search(r"the conversation has (\d+) tokens", t.screen.text().replace("\n", " "))
            self.assertTrue(found, t.screen.text()[-500:])
            self.assertGreater(int(found.group(1)), 20_000)  # all of it arrived
            t.type("small\x1b[200~ pa\nste\x1b[201~", "small pa\nste")

    def test_a_resize_moves_the_line(self):
        with Terminal(columns=40) as t:
            t.type("abcdefghij" * 3, "abcdefghij" * 3)
            t.resize(12)
            t.type("k", "abcdefghij\nabcdefghij\nabcdefghij\nk")
            t.resize(60)
            t.type("l", "abcdefghij" * 3 + "kl")
            t.type("\x15" + "\u4e16" * 14, "\u4e16" * 14)
            t.resize(13)
            t.type("\u754c", "\u4e16" * 5 + "\n" + "\u4e16" * 5 + "\n" + "\u4e16" * 4 + "\u754c")


class Commands(unittest.TestCase):
    def test_every_command(self):
        with tempfile.TemporaryDirectory() as folder, Terminal("-n", "30", columns=250) as t:
            shown = t.send("/help")
            commands = set(re.findall(r'\{"(/\w+)", "', (ROOT / "src/cli/chat/chat.cc").read_text()))
            self.assertGreater(len(commands), 12)
            for command in commands - {"/quit", "/exit", "/reset"}:  # other names
                self.assertIn(command, shown)
            self.assertIn("no reply yet", t.send("/stats"))
            self.assertIn("this model sees no pictures", t.send(f"/image {TINY}"))
            self.assertIn("(none)", t.send("/system"))
            t.send("/system You tell stories.")
            first = self.reply(t, "Tell me about a dog.")
            self.assertTrue(first)
            self.assertRegex(t.send("/stats"), r"\[prompt \d+ tokens, \d+ reused")
            self.assertIn("last turn: ", t.send("/cache"))
            file = pathlib.Path(folder) / "chat.json"
            t.send(f"/save {file}")
            saved = json.loads(file.read_text())["messages"]
            self.assertEqual([m["role"] for m in saved], ["system", "user", "assistant"])
            self.assertEqual(saved[1]["content"], "Tell me about a dog.")  # and no command
            self.assertEqual(saved[2]["content"], first)
            self.assertNotEqual({self.reply(t, "/regenerate") for _ in range(3)}, {first})
            t.write("/edit\r")
            t.wait(lambda: t.line() == "Tell me about a dog.", "the old message")
            t.type(BACKSPACE * 4 + "cat.", "Tell me about a cat.")
            self.reply(t, "")
            t.send(f"/save {file}")
            saved = json.loads(file.read_text())["messages"]
            self.assertEqual([m["content"] for m in saved[:2]], ["You tell stories.", "Tell me about a cat."])
            t.send("/clear")
            self.assertIn("there is no message", t.send("/regenerate"))
            self.assertIn("loaded", t.send(f"/load {file}"))
            t.send(f"/save {file}.2")
            self.assertEqual(json.loads(pathlib.Path(f"{file}.2").read_text())["messages"], saved)
            file.write_text('{"messages": [{"role": "tool", "content": "x"}]}')
            self.assertIn("message of 'tool'", t.send(f"/load {file}"))
            self.assertRegex(t.send("/set"), r"temperature +0\.5\n")  # as the file says
            t.send("/set temperature 0.25")
            self.assertRegex(t.send("/set"), r"temperature +0\.25\n")
            self.assertIn("is not a value of", t.send("/set top_k many"))
            self.assertIn("no setting 'heat'", t.send("/set heat 1"))
            t.send("/set max_tokens 2")
            self.assertIn("2 tokens at", self.after(t, "Hi") + t.send("/stats"))
            t.send("/system -")
            self.assertIn("(none)", self.after(t, "/system"))
            t.send("/reset")
            self.assertIn("there is no message", self.after(t, "/regenerate"))
            t.send("/edit A message.")
            self.assertIn("there is no message", t.screen.text())
            t.write("/bye\r")
            self.assertEqual(t.end(), 0)
        for end in ["/quit", "/exit"]:
            with Terminal("--no-history") as other:
                other.write(end + "\r")
                self.assertEqual(other.end(), 0)
        self.assertEqual(commands - set(t.sent) - {"/bye", "/quit", "/exit"}, set())

    def after(self, t, message):
        before = t.screen.text()
        return t.send(message)[len(before):]

    def reply(self, t, message):
        """The reply as the terminal shows it."""
        t.send(message)
        rows = t.screen.text().rstrip("> \n").split("\n")
        begin = max(i for i, row in enumerate(rows) if row.startswith("> "))
        return "\n".join(rows[begin + 1:]).strip()

    def test_pictures(self):
        """A picture goes with the next message, and stays with it: answered again, changed, saved and loaded."""
        picture = SEES / "picture_0.png"
        url = "data:image/png;base64," + base64.b64encode(picture.read_bytes()).decode()
        with tempfile.TemporaryDirectory() as folder, Terminal("-n", "4", columns=250, model=SEES) as t:
            file = pathlib.Path(folder) / "chat.json"

            def saved():
                t.send(f"/save {file}")
                return json.loads(file.read_text())["messages"]

            def shown(message):
                return [part["type"] for part in message["content"]] if isinstance(message["content"], list) else []

            self.assertIn("needs the name of a file", t.send("/image"))
            self.assertIn("No such file", t.send(f"/image {folder}/none.png"))
            self.assertIn(f"{file.parent}", t.send(f"/image {file.parent}"))
            self.assertRegex(self.after(t, f"/image {ROOT}/README.md"), "README.md: .*picture")
            self.assertRegex(self.after(t, f"/image {picture}"), r"picture_0.png: \d+ tokens, with the next message")
            t.send("What is this?")
            first = saved()
            self.assertEqual(first[0]["content"], [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "What is this?"}])
            t.send("And now?")
            self.assertIn("reused", t.send("/stats"))
            self.assertEqual([shown(m) for m in saved()[::2]], [["image_url", "text"], []])
            t.send("/clear")
            self.assertIn("loaded", t.send(f"/load {file}"))
            self.assertEqual([shown(m) for m in saved()[::2]], [["image_url", "text"], []])
            t.send("/clear")
            t.send(f"/image {picture}")
            t.send(f"/image {picture}")
            t.send("Two of them.")
            t.send("/regenerate")
            t.send("/edit Both of them.")
            self.assertEqual(saved()[0]["content"][2], {"type": "text", "text": "Both of them."})
            self.assertEqual(shown(saved()[0]), ["image_url", "image_url", "text"])
            t.send(f"/image {picture}")
            t.send("/clear")
            t.send("None of them.")
            self.assertEqual(shown(saved()[0]), [])
            file.write_text(json.dumps({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}))
            self.assertIn("no text with pictures", t.send(f"/load {file}"))

    def test_blocks_of_quotes_and_backslashes_are_one_message(self):
        with tempfile.TemporaryDirectory() as folder, Terminal("-n", "1") as t:
            file = pathlib.Path(folder) / "chat.json"
            t.write('"""one\r')
            t.wait(lambda: t.screen.text().endswith("\n."), "a second line")
            t.write("/bye\r")
            t.wait(lambda: t.screen.text().endswith(". /bye\n."), "a third line")
            t.raw = b""
            t.write('three"""\r')
            t.wait_for_prompt()
            t.write("a\\\r")
            t.wait(lambda: t.screen.text().endswith("a\\\n."), "a second line")
            t.write("b\r")
            t.wait_for_prompt()
            t.send(f"/save {file}")
            said = [m["content"] for m in json.loads(file.read_text())["messages"] if m["role"] == "user"]
            self.assertEqual(said, ["one\n/bye\nthree", "a\nb"])


class Interrupts(unittest.TestCase):
    def test_ctrl_c_stops_a_reply_and_twice_ends(self):
        # Noise, for more than a thousand tokens.
        with Terminal("--plain", "-t", "2", "--top-p", "1", "-c", "4096") as t:
            t.write("Once upon a time\r")
            t.wait(lambda: len((t.screen.text().split("Once upon a time\n") + [""])[1]) > 200, "a reply")
            t.raw = b""
            t.write("\x03")
            t.wait(lambda: b"\x1b[?2004h" in t.raw and t.line() == "", "a new prompt")
            self.assertLess(len(t.screen.text()), 4000)
            t.write("\x03")
            t.wait_for("(Ctrl-C again, or Ctrl-D, ends)")
            t.type("x", "x")  # not ended
            t.write("\x03\x03\x03")
            self.assertEqual(t.end(), 0)

    def test_a_signal_leaves_the_terminal_as_it_was(self):
        with Terminal() as t:
            t.type("x", "x")
            os.kill(t.pid, signal.SIGTERM)
            t.wait_for_end()
            self.assertFalse(t.screen.pasting)
            os.waitpid(t.pid, 0)


class Replies(unittest.TestCase):
    def test_replies_wrap_at_the_width(self):
        with Terminal("-n", "100", columns=30) as t:
            shown = t.send("Tell me a story about a dog.")
            rows = shown.split("\n")
            self.assertTrue(any(20 < len(row) <= 30 for row in rows), shown)
            whole = subprocess.run([REPRISE, "run", "-m", TINY, "--seed", "1", "-n", "100", "--device", "cpu", "-p",
                                    "Tell me a story about a dog."], capture_output=True, text=True, check=True).stdout
            words = " ".join(shown.split())
            self.assertIn(" ".join(whole.split()), words)  # no word is broken

    def test_thinking_is_dim(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, ROOT / "tools/make_scripted_model.py", folder], check=True)
            template = pathlib.Path(folder) / "chat_template.jinja"
            source = template.read_text() if template.exists() else None
            if source is None:
                config = pathlib.Path(folder) / "tokenizer_config.json"
                settings = json.loads(config.read_text())
                settings["chat_template"] = settings["chat_template"].replace("enable_thinking is defined and enable_thinking", "true")
                config.write_text(json.dumps(settings))
            else:
                template.write_text(source.replace("enable_thinking is defined and enable_thinking", "true"))
            with Terminal(model=folder) as t:
                t.write("Hi\r")
                t.wait_for("It makes four")
                t.wait_for_prompt()
                self.assertIn(b"\x1b[0;2mTwo plus two", t.raw)
                self.assertRegex(t.raw, rb"\x1b\[0mIt makes")
                self.assertNotIn("</think>", t.screen.text())

    def test_a_model_that_is_silent_about_sampling_is_sampled_as_in_the_server(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, ROOT / "tools/make_scripted_model.py", folder], check=True)
            shown = subprocess.run([REPRISE, "run", "-m", folder, "--device", "cpu"], input="/set\n", capture_output=True, text=True)
            self.assertRegex(shown.stdout, r"temperature +0\.7\n +top_p +0\.95\n")

    def test_a_pipe_gets_text_alone(self):
        run = subprocess.run([REPRISE, "run", "-m", TINY, "--seed", "1", "-n", "8", "--device", "cpu"], capture_output=True,
                             text=True, input="Hello\n/nothing-like-this\n")
        self.assertEqual(run.returncode, 1)
        self.assertIn("there is no command /nothing-like-this", run.stderr)
        run = subprocess.run([REPRISE, "run", "-m", TINY, "--seed", "1", "-n", "8", "--device", "cpu"], capture_output=True,
                             text=True, input='Hello\n"""two\nlines"""\n/usr/bin is what?\n/bye\nnot sent\n')
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertNotIn("\x1b", run.stdout + run.stderr)
        self.assertNotIn(">", run.stdout + run.stderr)
        self.assertEqual(run.stdout.count("\n"), 3, run.stdout)


if __name__ == "__main__":
    unittest.main()
