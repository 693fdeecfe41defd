#!/bin/sh
# Chats with a model in the terminal. usage: serve.sh [MODEL]
# Without MODEL: the bundled model where it is in the tree, else it says how to name one.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
model=${1:-}
if [ -z "$model" ]; then
  for candidate in "$root"/models/*.gguf; do
    [ -f "$candidate" ] && model=$candidate && break
  done
fi
if [ -z "$model" ]; then
  echo "no model: run 'make serve MODEL=file.gguf' (or a Hugging Face folder)" >&2
  echo "without one at hand, a random model shows that everything works (its text is noise):" >&2
  echo "  build/release/reprise synth --family qwen3_5 --like 0.8B --type q8_0 --out /tmp/random.gguf" >&2
  exit 1
fi
exec "$root/build/release/reprise" run --model "$model"
