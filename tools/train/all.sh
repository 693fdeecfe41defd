#!/bin/bash
# Every stage in order on one GPU: tools/train/all.sh CHECKPOINT TOKENIZER CORPORA OUT
# The second round goes on from the weights of the first with new stories and half the rate; what is kept lies between the
# two. The third adds blank lines between paragraphs. The data is prepared while the teacher still writes. Training resumes from its checkpoint when started again.
# The fourth is so short that two CPU cores will do (the shipped weights were made so): two processes learn from other data; what is
# kept lies between them.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
checkpoint=$1 tokenizer=$2 corpora=$3 out=$4
mkdir -p "$out"

# data ROUND SAMPLE_SECONDS [OPTIONS OF PREPARE]
data() {
  local round=$1 seconds=$2 w="$out/round$1"
  shift 2
  [ -f "$w/data/conversations_long.npy" ] && return
  mkdir -p "$w"
  rm -f "$w/stories.jsonl" "$w/stories.jsonl.done"
  python3 "$here/teacher.py" --checkpoint "$checkpoint" --tokenizer "$tokenizer" --seconds "$seconds" --seed "$round" \
    --out "$w/stories.jsonl" > "$w/teacher.log" 2>&1 &
  local teacher=$!
  until [ -s "$w/stories.jsonl" ]; do
    kill -0 $teacher 2>/dev/null || { cat "$w/teacher.log"; exit 1; }
    sleep 1
  done
  python3 "$here/prepare.py" --follow --seed "$round" --stories "$w/stories.jsonl" --corpora "$corpora" --out "$w/data" "$@"
  wait $teacher
}

# learn ROUND MINUTES [OPTIONS OF TRAIN]
learn() {
  local minutes=$2 w="$out/round$1"
  shift 2
  python3 "$here/train.py" --data "$w/data" --out "$w/run" --minutes "$minutes" "$@" | tee -a "$w/train.log"
  python3 "$here/export.py" --run "$w/run" --data "$w/data" --out "$w/hf"
}

data 1 200
learn 1 16
data 2 95 --again "$out/round1/data"
learn 2 7 --start "$out/round1/hf" --rate 0.5
python3 "$here/average.py" --first "$out/round1/hf" --second "$out/round2/hf" --share 0.8 --out "$out/two_rounds"
data 3 90 --again "$out/round2/data" --blank-lines 0.5
learn 3 9 --start "$out/two_rounds" --rate 0.35
python3 "$here/average.py" --first "$out/two_rounds" --second "$out/round3/hf" --share 0.3 --out "$out/three_rounds"

# About 320 steps of 4,096 tokens each: without a GPU half an hour on one thread.
minutes=0.5 seconds=10
if ! python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
  export OMP_NUM_THREADS=1
  minutes=35 seconds=360
fi
# twin SEED RATE STORIES
twin() {
  local w="$out/round4_$1"
  mkdir -p "$w"
  python3 "$here/prepare.py" --workers 1 --seed "$1" --stories "$3" --corpora "$corpora" --again "$out/round3/data" --blank-lines 0.5 \
    --garbled 0.1 --out "$w/data"
  python3 "$here/train.py" --data "$w/data" --out "$w/run" --start "$out/three_rounds" --rate "$2" --stories 0.6 --long 0.1 \
    --tokens-per-step 4096 --minutes $minutes --seed "$1" | tee -a "$w/train.log"
  python3 "$here/export.py" --run "$w/run" --data "$w/data" --out "$w/hf"
}
python3 "$here/teacher.py" --checkpoint "$checkpoint" --tokenizer "$tokenizer" --plain --batch 192 --seconds $seconds --seed 4 \
  --out "$out/stories4.jsonl"
head -n 8000 "$out/round3/stories.jsonl" > "$out/stories3.jsonl"
cat "$out/stories3.jsonl" "$out/stories4.jsonl" > "$out/stories34.jsonl"
twin 4 0.08 "$out/stories3.jsonl" &
twin 5 0.1 "$out/stories34.jsonl"
wait $!
python3 "$here/average.py" --first "$out/round4_4/hf" --second "$out/round4_5/hf" --share 0.5 --out "$out/round4"
python3 "$here/average.py" --first "$out/three_rounds" --second "$out/round4" --share 0.7 --out "$out/reprise-tiny"
