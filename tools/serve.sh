#!/bin/sh
# Serves a model over HTTP and prints the address. usage: serve.sh [MODEL [DEVICE]]
# Without MODEL: the bundled model. DEVICE: auto, cpu or cuda[:N]; cuda takes the build of `make cuda`.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=release
case "${2:-auto}" in cuda*) build=cuda ;; esac
exec "$root/build/$build/reprise" serve ${1:+--model "$1"} --device "${2:-auto}"
