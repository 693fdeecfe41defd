#!/bin/sh
# Installs the clients that the tests drive the server with, by name, into build/clients: `clients.sh` those of `make test` (the
# vendors' own, selenium and axe-core for the page), `clients.sh more` those of `make clients`. Does nothing when they are there.
set -eu
cd "$(dirname "$0")/.."

# install_python FOLDER NAMES...: a virtual environment with these packages.
install_python() {
  folder=$1
  shift
  if [ "$(cat "$folder/python.done" 2>/dev/null)" != "$*" ]; then
    echo "installing for Python: $*"
    [ -d "$folder/venv" ] || python3 -m venv "$folder/venv"
    "$folder/venv/bin/pip" install --quiet --disable-pip-version-check "$@"
    echo "$*" >"$folder/python.done"
  fi
}

# install_node FOLDER NAMES...
install_node() {
  folder=$1
  shift
  if [ "$(cat "$folder/node.done" 2>/dev/null)" != "$*" ]; then
    echo "installing for JavaScript: $*"
    npm install --silent --no-fund --no-audit --prefix "$folder" "$@" >/dev/null
    echo "$*" >"$folder/node.done"
  fi
}

install_python build/clients openai anthropic ollama jsonschema selenium pyzmq msgpack huggingface_hub pyyaml opentelemetry-proto openapi-spec-validator
# A router; where there is none for this machine its test says so.
install_python build/clients/routers smg || echo 'smg cannot be had here'
# Dynamo's indexer.
install_python build/clients/dynamo ai-dynamo-runtime || echo 'ai-dynamo-runtime cannot be had here'
install_node build/clients openai ollama ai @ai-sdk/openai @ai-sdk/openai-compatible @ai-sdk/anthropic zod axe-core

[ "${1:-}" = more ] || exit 0
# Each where its dependencies contradict nobody else's.
more=build/clients-more
install_python $more/agents openai-agents
install_python $more/langchain langchain-openai langchain-anthropic langchain-ollama
install_python $more/litellm 'litellm[proxy]'
install_python $more/pydantic 'pydantic-ai-slim[openai,anthropic]' llm
install_python $more/instructor instructor anthropic
install_python $more/lm_eval 'lm-eval[api]'
install_python $more/aider aider-chat
install_python $more/open_webui open-webui  # some GB
install_node $more @openai/codex @anthropic-ai/claude-code "opencode-linux-$(uname -m | sed 's/aarch64/arm64/; s/x86_64/x64/')"
