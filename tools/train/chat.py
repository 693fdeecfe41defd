"""Types into one `reprise run` process and reads its replies."""
import os
import re
import subprocess
import tempfile
import time


class Chat:
    def __init__(self, reprise, max_tokens, *options):
        self.max_tokens = max_tokens
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([reprise, "run", "--stats", "-n", str(max_tokens), *options],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors)
        os.set_blocking(self.process.stdout.fileno(), False)
        self.answered = 0

    def type(self, text):
        self.process.stdin.write((text.replace("\n", "\\\n") + "\n").encode())
        self.process.stdin.flush()

    def said(self):
        """What stands on stderr after each reply."""
        self.errors.seek(0)
        return self.errors.read()

    def ask(self, text):
        """(reply, whether it ended by itself, statistics)."""
        self.type(text)
        out = b""
        while True:  # the statistics come after the reply
            out += self.process.stdout.read() or b""
            said = self.said()
            lines = [line for line in said.splitlines() if line.startswith("[prompt ")]
            if len(lines) > self.answered:
                break
            if self.process.poll() is not None:
                raise SystemExit(said)
            time.sleep(0.005)
        out += self.process.stdout.read() or b""
        self.answered += 1
        generated = int(re.search(r"; (\d+) tokens at", lines[-1]).group(1))
        return out.decode(), generated < self.max_tokens, lines[-1][8:-1]

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.errors.close()
