#!/bin/sh
# Runs every fuzz target of a build folder for the given seconds on a copy of its corpus; stops at a finding.
# usage: fuzz.sh BUILD_DIR SECONDS [TARGET...]
set -eu
build=$1; seconds=$2; shift 2
root=$(cd "$(dirname "$0")/.." && pwd)
targets=${*:-$(find "$build" -type f -name '*_fuzz' -executable | sort)}
for target in $targets; do
  name=$(basename "$target")
  [ -x "$target" ] || target=$(find "$build" -type f -name "$name" -executable)
  work=$(mktemp -d)
  echo "$name: $seconds s"
  "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    "$work" "$root/tests/corpus/$name" 2>"$work.log" || { tail -40 "$work.log" >&2; exit 1; }
  grep -E 'number_of_executed_units|peak_rss_mb' "$work.log"
  rm -rf "$work" "$work.log"
done
