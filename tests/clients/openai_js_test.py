"""Runs openai_test.mjs, and validates every answer and chunk that it saw against OpenAI's schema.

usage: openai_js_test.py REPRISE
"""
import pathlib
import subprocess
import sys

import harness
import openai_schema


def main():
    server = harness.Server(sys.argv[1])
    script = pathlib.Path(__file__).with_name("openai_test.mjs")
    result = subprocess.run(["node", script, harness.ROOT / "build/clients", server.url + "/v1"], timeout=120)
    validated = openai_schema.validate_all(server.recorder.answers())
    assert server.stop() == 0
    assert result.returncode == 0 and validated > 10, (result.returncode, validated)


if __name__ == "__main__":
    main()
