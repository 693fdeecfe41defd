#!/bin/sh
# The law on this machine's GPU: random schedules on every golden, each logit compared with a cold run,
# bit by bit. usage: test_cuda.sh REPRISE   (SCHEDULES=1000 for the long form)
set -eu
reprise=${1:?usage: test_cuda.sh REPRISE}
failed=0
count=0
for model in tests/golden/*/; do
  if result=$("$reprise" audit --model "$model" --device cuda --schedules "${SCHEDULES:-100}" 2>&1); then
    echo "$model $(echo "$result" | tail -n 1)"
  else
    echo "$model"
    echo "$result"
    failed=$((failed + 1))
  fi
  count=$((count + 1))
done
echo "$((count - failed)) passed, $failed failed"
[ "$failed" = 0 ]
