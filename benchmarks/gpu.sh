#!/usr/bin/env bash
# The live comparison on a CUDA machine, packed into one archive to send back; docs/gpu.md says what to expect.
#
#   benchmarks/gpu.sh MODEL DRAFT [EAGLE3_HEAD]
#
# MODEL is a folder; DRAFT and EAGLE3_HEAD are folders or hub names. In the environment:
#   OUT=gpu-out      folder of everything; a second run goes on where the first one was interrupted
#   REQUESTS=200 SLOTS=16 LOAD=0.9 ROUNDS=2 TOKENS=512
#   DUMMY=2.5        no weights at hand: --load-format dummy, and so many tokens accepted a step (SGLANG_SIMULATE_ACC_LEN)
#   DRY=1            print the commands instead of running them
set -euo pipefail

if [ $# -lt 2 ]; then
  echo "usage: benchmarks/gpu.sh MODEL DRAFT [EAGLE3_HEAD]" >&2
  exit 2
fi
MODEL=$1 DRAFT=$2 EAGLE3=${3:-}
OUT=${OUT:-gpu-out} REQUESTS=${REQUESTS:-200} SLOTS=${SLOTS:-16} LOAD=${LOAD:-0.9} ROUNDS=${ROUNDS:-2}
TOKENS=${TOKENS:-512} PORT=${PORT:-30000}
mkdir -p "$OUT"

run() {
  if [ -n "${DRY:-}" ]; then printf '%q ' "$@"; echo; else "$@"; fi
}

# Arguments as one word for --server-args, which reads them as a shell does.
words() {
  if [ $# -gt 0 ]; then printf '%q ' "$@"; fi
}

COMMON=()
if [ -n "${DUMMY:-}" ]; then
  COMMON+=(--load-format dummy)
  export SGLANG_SIMULATE_ACC_LEN=$DUMMY
fi
NGRAM=(--speculative-algorithm NGRAM --speculative-num-draft-tokens 8)

# Predictors of this model's own answers; without weights there is nothing to learn, and the built-in trace must do.
BUNDLE=()
if [ -z "${DUMMY:-}" ]; then
  BUNDLE=(--bundle "$OUT/bundle")
  if [ ! -d "$OUT/bundle" ]; then
    run laps-sd data prompts --n 400 --seed 7 --out "$OUT/prompts.jsonl"
    if [ -z "${DRY:-}" ]; then
      python -m sglang.launch_server --model-path "$MODEL" --port "$PORT" --host 127.0.0.1 "${NGRAM[@]}" \
        > "$OUT/record.log" 2>&1 &
      SERVER=$!
      trap 'kill "$SERVER" 2> /dev/null || true' EXIT
      until curl --silent --fail "http://127.0.0.1:$PORT/health_generate" > /dev/null; do
        kill -0 "$SERVER" || { tail -5 "$OUT/record.log" >&2; exit 1; }
        sleep 2
      done
    fi
    run laps-sd collect --url "http://127.0.0.1:$PORT" --prompts "$OUT/prompts.jsonl" --out "$OUT/trace.parquet" \
      --max-new-tokens "$TOKENS" --concurrency 64
    if [ -z "${DRY:-}" ]; then kill "$SERVER"; wait "$SERVER" 2> /dev/null || true; trap - EXIT; fi
    run laps-sd train --data "$OUT/trace.parquet" --out "$OUT/bundle"
  fi
fi

# compare NAME SGLANG_ARGUMENTS…: one comparison, its figures and its page.
compare() {
  local name=$1
  shift
  run laps-sd bench --gpu --model "$MODEL" --draft none --server-args "$(words "${COMMON[@]}" "$@")" \
    "${BUNDLE[@]}" --policies fcfs,hrrn,sjf-predicted,laps-sd --requests "$REQUESTS" --slots "$SLOTS" \
    --max-new-tokens "$TOKENS" --load "$LOAD" --clock rounds --warm-up "$SLOTS" --rounds "$ROUNDS" --resume \
    --out "$OUT/$name" --json "$OUT/$name.json" --report "$OUT/$name.html" || echo "$name: status $?" >> "$OUT/failed.txt"
}

STANDALONE=(--speculative-algorithm STANDALONE --speculative-draft-model-path "$DRAFT" --speculative-num-steps 3
  --speculative-eagle-topk 1 --speculative-num-draft-tokens 4)
for overlap in on off; do
  EXTRA=()
  if [ "$overlap" = off ]; then EXTRA=(--disable-overlap-schedule); fi
  compare "plain-overlap-$overlap" "${EXTRA[@]}"
  compare "ngram-overlap-$overlap" "${NGRAM[@]}" "${EXTRA[@]}"
  compare "standalone-overlap-$overlap" "${STANDALONE[@]}" "${EXTRA[@]}"
  if [ -n "$EAGLE3" ]; then
    compare "eagle3-overlap-$overlap" --speculative-algorithm EAGLE3 --speculative-draft-model-path "$EAGLE3" \
      --speculative-num-steps 5 --speculative-eagle-topk 4 --speculative-num-draft-tokens 16 "${EXTRA[@]}"
  fi
done
# What the plugin costs where it orders as SGLang does: a closed loop keeps the slots full.
run laps-sd bench --gpu --model "$MODEL" --draft none --server-args "$(words "${COMMON[@]}" "${NGRAM[@]}")" \
  --policies fcfs,plugin:fcfs --requests "$REQUESTS" --slots "$SLOTS" --max-new-tokens "$TOKENS" --arrivals closed \
  --clients $((4 * SLOTS)) --rounds $((2 * ROUNDS)) --resume --out "$OUT/overhead" --json "$OUT/overhead.json" \
  --report "$OUT/overhead.html" || echo "overhead: status $?" >> "$OUT/failed.txt"

if [ -z "${DRY:-}" ]; then
  nvidia-smi > "$OUT/nvidia-smi.txt" 2>&1 || true
  python -m pip freeze > "$OUT/packages.txt" 2>&1 || true
  laps-sd doctor --json "$OUT/doctor.json" > /dev/null 2>&1 || true
  tar --exclude bundle -czf "$OUT.tar.gz" "$OUT"
  echo "Send back: $OUT.tar.gz"
fi
