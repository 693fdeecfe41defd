"""The programs in the documents run as they stand there.

usage: docs_test.py REPRISE
"""
import re
import subprocess
import sys
import tempfile
import unittest

import harness

PROGRAM = sys.argv.pop(1)
CLIENTS = harness.ROOT / "build/clients"  # tools/clients.sh
ADDRESS = "127.0.0.1:8080"                # of `make serve`, in the document


class Programs(unittest.TestCase):
    def test_each_runs(self):
        programs = []
        for page in ("README.md", "docs/clients.md", "docs/batches.md"):
            programs += re.findall(r"^```(python|js)\n(.*?)^```", (harness.ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
        self.assertEqual([language for language, _ in programs], ["python", "python", "js", "python", "python", "python"])
        folder = tempfile.TemporaryDirectory()
        server = harness.Server(PROGRAM, "--threads", "1", "--files", folder.name, model=harness.TINY)
        script = CLIENTS / f"docs_test_{server.port}.mjs"  # beside node_modules, where imports are looked up
        try:
            for language, program in programs:
                self.assertIn(ADDRESS, program)
                program = program.replace(ADDRESS, f"127.0.0.1:{server.port}")
                script.write_text(program)
                command = {"python": [sys.executable, "-c", program], "js": ["node", str(script)]}[language]
                done = subprocess.run(command, capture_output=True, text=True, timeout=120)
                self.assertEqual((done.returncode, done.stderr), (0, ""), program)
                self.assertGreater(len(done.stdout), 100)
        finally:
            script.unlink(missing_ok=True)
            self.assertEqual(server.stop(), 0)
            folder.cleanup()


if __name__ == "__main__":
    unittest.main()
