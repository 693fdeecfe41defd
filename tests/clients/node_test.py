"""Runs a script of a JavaScript client against the server.

usage: node_test.py REPRISE SCRIPT
"""
import subprocess
import sys

import harness


def main():
    program, script = sys.argv[1:]
    server = harness.Server(program)
    result = subprocess.run(["node", script, harness.ROOT / "build/clients", server.url], timeout=120)
    assert server.stop() == 0
    assert result.returncode == 0, result.returncode


if __name__ == "__main__":
    main()
