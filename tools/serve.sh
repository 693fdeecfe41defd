#!/bin/sh
# Serves a model over HTTP and prints the address. usage: serve.sh [MODEL]
# Without MODEL: the bundled model.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
exec "$root/build/release/reprise" serve ${1:+--model "$1"}
