#!/bin/bash
# Every stage in order on one GPU: tools/train/all.sh CHECKPOINT TOKENIZER CORPORA OUT [SAMPLE_SECONDS] [MINUTES]
# The data is prepared while the teacher still writes. Training resumes from OUT/run/checkpoint.pt when started again.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
checkpoint=$1 tokenizer=$2 corpora=$3 out=$4 seconds=${5:-200} minutes=${6:-16}
mkdir -p "$out"
if [ ! -f "$out/data/conversations_long.npy" ]; then
  rm -f "$out/stories.jsonl" "$out/stories.jsonl.done"
  python3 "$here/teacher.py" --checkpoint "$checkpoint" --tokenizer "$tokenizer" --seconds "$seconds" \
    --out "$out/stories.jsonl" > "$out/teacher.log" 2>&1 &
  teacher=$!
  until [ -s "$out/stories.jsonl" ]; do
    kill -0 $teacher 2>/dev/null || { cat "$out/teacher.log"; exit 1; }
    sleep 1
  done
  python3 "$here/prepare.py" --follow --stories "$out/stories.jsonl" --corpora "$corpora" --out "$out/data"
  wait $teacher
fi
python3 "$here/train.py" --data "$out/data" --out "$out/run" --minutes "$minutes" | tee -a "$out/train.log"
python3 "$here/export.py" --run "$out/run" --data "$out/data" --out "$out/reprise-tiny"
