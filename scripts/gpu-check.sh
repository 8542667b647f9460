#!/usr/bin/env bash
# gpu-check.sh [FOLDER]: what a machine with a GPU does with Pipewright, as one table. Needs no network and
# no Rust: FOLDER holds what `gpu-check.sh --build FOLDER` put there on a machine that has it, without MPI
# (a few MB). Throughput is beside PyTorch of PYTHON (else python3), where it has one that sees the GPU.
#
#     scripts/gpu-check.sh --build gpu-check     where there is Rust
#     scripts/gpu-check.sh gpu-check             where there is a GPU
set -eu
. "$(dirname "$0")/lib.sh"

# The program, and the tests that use a GPU where there is one, for machines without Rust and MPI.
build() { # FOLDER
  mkdir -p "$1"
  cargo build --locked --release -p pipewright-runner --no-default-features
  cp "${CARGO_TARGET_DIR:-target}/release/runner" "$1/runner"
  cargo test --locked --release -p pipewright-runner --no-default-features --no-run \
    --test cuda --message-format=json |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | while read -r test; do
    name=$(basename "$test")
    [ "$name" != runner ] || continue
    cp "$test" "$1/test-${name%-*}"
  done
  strip "$1"/*
}

if [ "${1:-}" = --build ]; then
  build "${2:?a folder}"
  say "$2"
  exit
fi

folder=${1:-gpu-check}
python=${PYTHON:-python3}
[ -x "$folder/runner" ] || give_up "$folder/runner is missing; make it where there is Rust:" \
  "scripts/gpu-check.sh --build $folder"
# NVIDIA's libraries of PyTorch's packages, where the system has none.
wheels=$("$python" -c 'import nvidia, os; print(os.pathsep.join(
  os.path.join(at, d, "lib") for p in nvidia.__path__ for at, ds, _ in [next(os.walk(p))] for d in ds))' 2>/dev/null || true)
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$wheels

"$folder/runner" devices
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf '\n%-44s %s\n' check result
row() { # NAME COMMAND..
  local name=$1
  shift
  if "$@" >"$work/log" 2>&1; then printf '%-44s passed\n' "$name"; else
    printf '%-44s FAILED\n' "$name"
    tail -n 15 "$work/log" | sed 's/^/    /'
  fi
}
# Tests look for their data where they were built, or in the package that this names.
export CARGO_MANIFEST_DIR=$root/runner
# A name that no test has is a failure, too.
test_of() { "$folder/test-cuda" --exact "$1" | tee /dev/stderr | grep -q '^test result: ok. 1 passed'; }
row 'operations beside PyTorch, f32 1e-4, bf16 1e-2' test_of engine::golden::operations_on_a_gpu
row 'linear layers beside PyTorch, fp8 1e-1' test_of engine::eight::golden_on_a_gpu
row 'fp8 training like the processor, 5e-3' test_of engine::eight::on_a_gpu
row 'training runs of PyTorch done again, 1e-4' test_of engine::golden::runs_on_a_gpu
row 'training like the processor, 1 and 3 ranks' test_of engine::on_a_gpu
row '2 and 4 ranks on one GPU train as one' test_of engine::golden::ranks_share_a_gpu
row 'CUDA graphs compute what commands do' test_of graphs::training::on_a_gpu
row 'chains have the bits of single operations' test_of graphs::fusion::on_a_gpu
row 'memory that is not there is an error' test_of devices::more_memory_than_there_is

plan() { # MODEL BATCH PRECISION STEPS OPTION.. -> $work/plan.json
  local model=$1 batch=$2 precision=$3 steps=$4
  shift 4
  "$folder/runner" plan --model "$model" --stages 1 --schedule gpipe --mini-batch "$batch" \
    --micro-batches 1 --learning-rate 1e-4 --precision "$precision" --steps "$steps" "$@" \
    -o "$work/plan.json" >"$work/log" 2>&1
}
train() { # OPTION..
  "$folder/runner" run "$work/plan.json" --device cuda --out "$work/run" --json "$@" >"$work/json" 2>"$work/log"
}

# Killed while it trains, it goes on from its last checkpoint: nothing of it holds the GPU.
killed() {
  plan resnet18 32 f32 200
  train --overwrite --save-every 20 &
  local job=$! waited=0
  until [ "$(wc -l <"$work/run/rank-000.jsonl" 2>/dev/null || echo 0)" -ge 50 ]; do
    kill -0 "$job" && [ $((waited += 1)) -lt 1200 ] || { echo 'it does not train'; return 1; }
    sleep 0.1
  done
  kill -9 "$job"
  wait "$job" || true
  train --resume "$work/run" && grep -q '"steps": 200' "$work/json"
}
row 'kill -9, then on from the checkpoint' killed

printf '\nCodecs, GB/s of single precision, and their shares of a copy of the same values\n'
"$folder/runner" bench codecs --device cuda --sizes 16MiB..256MiB || true

printf '\nSums over two replicas on this GPU that a run hides behind its computing: '
if plan resnet50 128 f32 12 --replicas 2 && train --overwrite; then
  "$python" scripts/gpu/overlap.py "$work/run/trace.json"
else
  tail -n 1 "$work/log"
fi

readonly gpt2=transformer:layers=12,hidden=768,heads=12,sequence=1024,vocabulary=50257
printf '\n%-10s %12s %12s %8s\n' network 'predicted ms' 'measured ms' off
for model in resnet50 "$gpt2"; do
  # Measured operation by operation, and put together by the planner.
  if plan "$model" 16 bf16 30 &&
    "$folder/runner" profile "$work/plan.json" --device cuda -o "$work/cluster.json" 2>"$work/log" &&
    plan "$model" 16 bf16 30 --cluster "$work/cluster.json" && train --overwrite; then
    "$python" scripts/gpu/predicted.py "${model%%:*}" "$work/json" "$work/run/rank-000.jsonl"
  else
    tail -n 1 "$work/log"
  fi
done

# Median of a run's steps in ms, or `none`.
step_of() { # OPTION..
  if train --overwrite "$@"; then
    printf '%.2f' "$("$python" scripts/gpu/median.py "$work/run/rank-000.jsonl")"
  else
    tail -n 1 "$work/log" >&2
    printf none
  fi
}

printf '\n%-10s %6s %10s %12s %15s\n' network batch precision 'chains ms' 'one by one ms'
while read -r name model batch; do
  for precision in f32 bf16; do
    plan "$model" "$batch" "$precision" 30 || { tail -n 1 "$work/log"; continue; }
    printf '%-10s %6s %10s %12s %15s\n' "$name" "$batch" "$precision" \
      "$(step_of)" "$(step_of --cuda-fusion off)"
  done
done <<EOF
resnet50 resnet50 256
vgg16 vgg16 128
gpt2 $gpt2 16
EOF

printf '\n%-10s %6s %10s %22s %22s %22s %7s\n' network batch precision 'PyTorch eager ms' \
  'PyTorch compiled ms' 'Pipewright ms' ratio
while read -r name model batch; do
  # Linear layers alone are multiplied in fp8; PyTorch has no such training of its own.
  for precision in f32 tf32 bf16 $([ "$name" != gpt2 ] || echo fp8); do
    ours=none
    if plan "$model" "$batch" "$precision" 30 && train --overwrite; then
      ours=$("$python" scripts/gpu/median.py "$work/run/rank-000.jsonl")
      sed -n 's/.*"no_fp8": "\(.*\)".*/    products of fp8 are made in bf16: \1/p' "$work/json" >&2
    else
      tail -n 1 "$work/log" >&2
    fi
    theirs() {
      [ "$precision" != fp8 ] || return 0
      "$python" scripts/pytorch/step.py "$model" "$batch" "$1" 30 "$precision" 2>>"$work/log" || true
    }
    "$python" scripts/gpu/row.py "$name" "$batch" "$precision" "$(theirs cuda)" "$(theirs cuda-compiled)" "$ours"
  done
done <<EOF
resnet50 resnet50 256
vgg16 vgg16 128
gpt2 $gpt2 16
EOF
