"""Every command line of the documents runs, or is named below with what runs it.

usage: book_test.py PROGRAM
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

import harness

sys.path.append(str(harness.ROOT / "tests/hub"))
import hub_server  # noqa: E402

PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
BOOK = ["README.md", *sorted(str(p.relative_to(harness.ROOT)) for p in (harness.ROOT / "docs").glob("*.md")), "deploy/README.md"]
# What lies in these pages are no commands for users.
NOT_COMMANDS = {"docs/cache.md", "docs/aarch64.md"}
# Beginnings of lines that need more than a test has: who runs them.
ELSEWHERE = {
    "make ": "every build", "sudo apt": "make packages-check", "tar xzf": "make packages-check", "reprise-0.1.0-": "make packages-check",
    "docker ": "deploy (tests/clients/deploy_test.py has its processes)", "kubectl ": "deploy", "cd deploy": "deploy",
    "export REPRISE_API_KEY": "deploy", "openssl rand -hex 32 >state.key": "deploy", "curl -s localhost:8000": "deploy",
    "pip install smg": "routing", "smg launch": "routing", "python -m dynamo": "events", "curl localhost:8090": "events",
    "reprise serve --device cuda": "make test-cuda", "reprise serve --store": "store", "reprise serve --disk PATH": "store", "redis-server": "store",
    "ANTHROPIC_BASE_URL": "make clients", "curl localhost:8080/api/pull": "hub_pull",
    "reprise serve --model Qwen3.5-9B-Q4_K_M.gguf --mmproj": "pictures",
}
TABLE = re.compile(r"reprise (\w+)( {2,}| \[MODEL\]| FOLDER)")  # an overview, not a command


def blocks(name):
    """The commands of a page, a list for each block."""
    text = (harness.ROOT / name).read_text()
    for language, body in re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        if language not in ("", "sh"):
            continue
        body = re.sub(r" *\\\n *", " ", body)
        commands = [re.sub(r"\s{2,}#.*", "", line).strip() for line in body.splitlines()]
        if commands and re.match(r"(reprise|curl|make|sudo|tar|docker|kubectl|cd|openssl|redis|pip|python|echo|[A-Z_]+=)", commands[0]):
            yield [command for command in commands if command]


class Book(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.home = pathlib.Path(cls.folder.name)
        (cls.home / "bin").mkdir()
        (cls.home / "bin/reprise").symlink_to(PROGRAM)
        promtool = cls.home / "bin/promtool"  # operations_test.py checks the metrics
        promtool.write_text("#!/bin/sh\ngrep -c '^# HELP' >/dev/null\n")
        promtool.chmod(0o755)
        for folder in ("models", "path/to"):
            (cls.home / folder).mkdir(parents=True)
        for name in ("model.gguf", "qwen3.gguf", "MODEL", "Qwen3-Embedding-0.6B.gguf", "models/qwen3-8b-q4_k_m.gguf",
                     "path/to/Qwen3.5-9B"):
            (cls.home / name).symlink_to(harness.TINY)
        (cls.home / "gemma-3-4b-it").symlink_to(harness.ROOT / "tests/vision/gemma3")
        (cls.home / "cat.png").symlink_to(harness.ROOT / "tests/vision/qwen3_5/picture_0.png")
        for name, content in (("A.json", "red"), ("B.json", "blue")):
            (cls.home / name).write_text('{"messages": [{"role": "user", "content": "A %s ball."}]}' % content)
        cls.hub = hub_server.HubServer(None)
        cls.tiny = harness.TINY.read_bytes()
        cls.hub.repos["ORG/REPO"] = hub_server.Repo({})

    @classmethod
    def tearDownClass(cls):
        cls.hub.close()
        cls.folder.cleanup()

    def setUp(self):
        self.server = None

    def environment(self):
        kept = {k: v for k, v in os.environ.items() if not k.startswith("REPRISE_")}
        return {**kept, "HOME": str(self.home), "HF_HOME": str(self.home / "hf"), "HF_ENDPOINT": self.hub.endpoint,
                "PATH": f"{self.home}/bin:{kept['PATH']}", "NO_COLOR": "1"}

    def start(self, command):
        """A server as its line says, on a free port."""
        self.stop()
        log = self.home / "log"
        command = command.replace("--port 8000", "") + " --port 0 --threads 1"
        if "--models-dir" not in command:
            command += " --cache-mib 256"
        with open(log, "w") as out:
            self.server = subprocess.Popen(["bash", "-c", "exec env " + command],
                                           stdout=out, stderr=subprocess.STDOUT, env=self.environment(), cwd=self.home)
        for _ in range(1200):
            found = re.search(r"https?://\S+?:(\d+)\n", log.read_text())
            if found:
                self.port = found.group(1)
                return
            self.assertIsNone(self.server.poll(), f"{command}\n{log.read_text()}")
            time.sleep(0.05)
        self.fail(f"{command} did not start")

    def stop(self):
        if self.server is not None:
            self.server.terminate()
            self.server.wait(timeout=60)
        self.server = None

    def run_line(self, line):
        if match := TABLE.match(line):
            line = f"reprise {match.group(1)} --help"
        line = line.replace("/var/lib/reprise/state", str(self.home / "state"))
        line = line.replace("state verify PATH", "state verify state").replace("state ls PATH", "state ls state")
        line = line.replace("state prune PATH", "state prune state")
        self.hub.repos["ORG/REPO"].files = {"model.gguf" if ":model.gguf" in line else "m-Q4_K_M.gguf": self.tiny}
        if "reprise serve" in line and "--help" not in line:
            return self.start(line.replace("--memory-mib 24000", "--memory-mib 2000"))
        if line.startswith("curl"):
            if self.server is None:
                self.start("reprise serve")
            line = line.replace("localhost:8080", f"localhost:{self.port}").replace("curl ", "curl --fail-with-body ", 1)
        elif self.server is not None and line.startswith("reprise state"):
            self.stop()
        done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", line], capture_output=True, text=True, timeout=300,
                              env=self.environment(), cwd=self.home, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")

    def test_every_line(self):
        used = set()
        count = 0
        for name in BOOK:
            if name in NOT_COMMANDS:
                continue
            for commands in blocks(name):
                try:
                    for line in commands:
                        elsewhere = [start for start in ELSEWHERE if line.startswith(start)]
                        used.update(elsewhere)
                        if not elsewhere and re.match(r"(reprise|curl|openssl|echo|[A-Z_]+=)", line):
                            count += 1
                            with self.subTest(page=name, line=line):
                                self.run_line(line)
                finally:
                    self.stop()
        self.assertEqual(set(ELSEWHERE) - used, set(), "no page has these any more")
        self.assertGreater(count, 40)


if __name__ == "__main__":
    unittest.main()
