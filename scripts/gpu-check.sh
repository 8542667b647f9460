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
    --test cuda_engine --test cuda_graphs --test devices --message-format=json |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | while read -r test; do
    name=$(basename "$test")
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
row 'training like the processor, 1 and 3 ranks' "$folder/test-cuda_engine" --exact on_a_gpu
row 'CUDA graphs compute what commands do' "$folder/test-cuda_graphs" --exact training::on_a_gpu
row 'memory that is not there is an error' "$folder/test-devices" --exact more_memory_than_there_is

printf '\n%-10s %6s %10s %22s %22s %22s %7s\n' network batch precision 'PyTorch eager ms' \
  'PyTorch compiled ms' 'Pipewright ms' ratio
while read -r name model batch; do
  "$folder/runner" plan --model "$model" --stages 1 --schedule gpipe --mini-batch "$batch" \
    --micro-batches 1 --learning-rate 1e-4 --steps 30 -o "$work/plan.json" >"$work/log" 2>&1
  ours=none
  if "$folder/runner" run "$work/plan.json" --device cuda --out "$work/run" --overwrite --json \
    >/dev/null 2>"$work/log"; then
    ours=$("$python" scripts/pytorch/median.py "$work/run/rank-000.jsonl")
  else
    tail -n 1 "$work/log" >&2
  fi
  eager=$("$python" scripts/pytorch/step.py "$model" "$batch" cuda 30 2>>"$work/log" || true)
  compiled=$("$python" scripts/pytorch/step.py "$model" "$batch" cuda-compiled 30 2>>"$work/log" || true)
  "$python" scripts/pytorch/gpu_row.py "$name" "$batch" fp32 "$eager" "$compiled" "$ours"
done <<EOF
resnet50 resnet50 256
vgg16 vgg16 128
gpt2 transformer:layers=12,hidden=768,heads=12,sequence=1024,vocabulary=50257 16
EOF
