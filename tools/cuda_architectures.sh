#!/bin/sh
# The GPU architectures that a build is for, on standard output; why, on standard error.
# usage: cuda_architectures.sh ["80-real;90a-real" | all]   without: those of this machine's GPUs; all where there is none
set -eu
# Code for 8.6 runs on 8.9, that for 10.0 on 10.3, that for 12.0 on 12.1; the driver compiles 90-virtual for what comes later.
all="80-real;86-real;89-real;90a-real;100-real;120-real;90-virtual"
case "${1:-}" in
all)
  echo "$all"
  exit
  ;;
?*)
  echo "$1"
  exit
  ;;
esac
list=
for capability in $(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | sort -u); do
  case "$capability" in
  9.0) one=90a-real ;;
  *[!0-9.]* | "") continue ;;
  *) one=$(echo "$capability" | tr -d .)-real ;;
  esac
  list="$list${list:+;}$one"
done
if [ -n "$list" ]; then
  echo "building for this machine's GPUs, $list; for all: ARCHITECTURES=all" >&2
else
  list=$all
  echo "no GPU here: building for all, $list; for some: ARCHITECTURES=\"86-real;90a-real\"" >&2
fi
echo "$list"
