"""Runs the tests of this folder, each in the environment of its client (tools/clients.sh more), and prints a line for each:
the client, its version, how it went. Names on the command line choose some of them.

usage: run.py REPRISE [NAME...]
"""
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
BUILD = HERE.parent.parent.parent / "build/clients-more"
NODE = BUILD / "node_modules"
# name: (environment, Python packages whose versions are shown, arguments)
CLIENTS = {
    "agents": ("agents", ["openai-agents"], []),
    "langchain_typed": ("langchain", ["langchain-openai", "langchain-anthropic"], []),
    "pydantic_ai_typed": ("pydantic", ["pydantic-ai-slim"], []),
    "instructor": ("instructor", ["instructor"], []),
    "langchain": ("langchain", ["langchain-openai", "langchain-anthropic", "langchain-ollama"], []),
    "litellm": ("litellm", ["litellm"], []),
    "litellm_proxy": ("litellm", ["litellm"], []),
    "pydantic_ai": ("pydantic", ["pydantic-ai-slim"], []),
    "llm": ("pydantic", ["llm"], []),
    "aider": ("aider", ["aider-chat"], []),
    "lm_eval": ("lm_eval", ["lm-eval"], []),
    "open_webui": ("open_webui", ["open-webui"], []),
    "codex": ("agents", [], [NODE / ".bin/codex"]),
    "claude": ("agents", [], [NODE / ".bin/claude"]),
    "opencode": ("agents", [], [next(NODE.glob("opencode-linux-*/bin/opencode"), NODE)]),
}


def version(python, packages, arguments):
    if arguments:
        return subprocess.run([arguments[0], "--version"], capture_output=True, text=True).stdout.strip()
    code = "import importlib.metadata as m, sys; print(', '.join(p + ' ' + m.version(p) for p in sys.argv[1:]))"
    return subprocess.run([python, "-c", code, *packages], capture_output=True, text=True).stdout.strip()


def main():
    program, names = sys.argv[1], sys.argv[2:] or list(CLIENTS)
    failed = 0
    for name in names:
        environment, packages, arguments = CLIENTS[name]
        python = BUILD / environment / "venv/bin/python"
        done = subprocess.run([python, "-W", "ignore", HERE / f"{name}_test.py", program, *map(str, arguments)],
                              capture_output=True, text=True)
        failed += done.returncode != 0
        print(f"{name}: {version(python, packages, arguments)}: {'ok' if done.returncode == 0 else 'FAILED'}", flush=True)
        if done.returncode != 0:
            print(done.stderr[-4000:])
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
