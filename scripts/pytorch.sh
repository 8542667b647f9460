#!/usr/bin/env bash
# pytorch.sh [WORD]: step times of PyTorch's CPU build and of the runner side by side: the same networks,
# mini-batches, optimizer and threads, in turns; eager, compiled, and pipelines of two ranks with a thread each
# beside torch.distributed.pipelining. With a word only the rows that contain it, as `fc32` or `ranks`. What the
# runner takes is predicted from profiles of this machine, one in each round. PyTorch is installed for this alone,
# into .cache/pytorch; PYTHON names a Python that has it already. An otherwise idle machine is assumed.
set -eu
. "$(dirname "$0")/lib.sh"
scripts/setup.sh demo
. scripts/env.sh

rounds=3
target=${CARGO_TARGET_DIR:-target}
runner=$PWD/$target/release/runner
work=$target/pytorch
cargo build --locked -q --release -p pipewright-runner
mkdir -p "$work"
if [ -z "${PYTHON:-}" ]; then
  PYTHON=$PWD/.cache/pytorch/bin/python
  [ -x "$PYTHON" ] || python3 -m venv .cache/pytorch
  "$PYTHON" -c 'import torch, numpy' 2>/dev/null || "$PYTHON" -m pip install -q torch==2.8.0 numpy
fi

gpt=transformer:layers=6,hidden=256,heads=4,sequence=128,vocabulary=1024
printf '%-12s %5s %-20s %24s %24s %6s %9s\n' network batch run 'PyTorch ms (range)' 'Pipewright ms (range)' ratio predicted

# A plan with times that were measured here, by as many ranks and threads as will run.
plan() { # MODEL BATCH STEPS RANKS MICRO_BATCHES THREADS
  local options=(--model "$1" --mini-batch "$2" --steps "$3" --ranks "$4" --stages "$4" --micro-batches "$5"
    --schedule 1f1b --learning-rate 1e-4)
  "$runner" plan "${options[@]}" -o "$work/plan.json" 2>"$work/log" >&2
  local as=(taskset -c "0-$(($6 - 1))")
  [ "$4" = 1 ] || as=(mpirun -n "$4")
  "${as[@]}" "$runner" profile "$work/plan.json" -o "$work/cluster.json" 2>"$work/log" >&2
  "$runner" plan "${options[@]}" --cluster "$work/cluster.json" -o "$work/plan.json" 2>"$work/log" >&2
}

row() { # NAME MODEL BATCH STEPS RANKS THREADS EAGER|COMPILED
  local run="$6 threads" where=$6 micro_batches=1
  [ "$7" = eager ] || { run="$run, compiled" where="$6-compiled"; }
  [ "$5" = 1 ] || { run="$5 ranks, m = 8" micro_batches=8; }
  case "$1 $run" in *"$word"*) ;; *) return 0 ;; esac
  : >"$work/torch"
  : >"$work/ours"
  for _ in $(seq "$rounds"); do
    if [ "$5" = 1 ]; then
      "$PYTHON" scripts/pytorch/step.py "$2" "$3" "$where" "$4" >>"$work/torch" 2>"$work/log"
    else
      OMP_NUM_THREADS=1 "$PYTHON" -m torch.distributed.run --standalone --nproc-per-node "$5" \
        scripts/pytorch/pipeline.py "$2" "$3" "$micro_batches" "$4" "$work/torch" >"$work/log" 2>&1
    fi
    # The profile just before the run: a shared machine is another one a minute later.
    plan "$2" "$3" "$4" "$5" "$micro_batches" "$6"
    if [ "$5" = 1 ]; then
      "$runner" run "$work/plan.json" --threads "$6" --no-eval --out "$work/run" --overwrite >"$work/log" 2>&1
    else
      mpirun -n "$5" "$runner" run "$work/plan.json" --no-eval --out "$work/run" --overwrite >"$work/log" 2>&1
    fi
    cat "$work/run/result.json" >>"$work/ours"
  done
  "$PYTHON" scripts/pytorch/table.py "$1" "$3" "$run" "$work/torch" "$work/ours"
}

word=${1:-}
while read -r name model batch steps more <&3; do
  for threads in 1 2; do
    row "$name" "$model" "$batch" "$steps" 1 "$threads" eager
    row "$name" "$model" "$batch" "$steps" 1 "$threads" compiled
  done
  # Images of 224 pixels would be one or two in a micro-batch.
  [ "$more" = alone ] || row "$name" "$model" $((batch * more)) "$steps" 2 1 eager
done 3<<EOF
fc32:1024 fc32:1024 128 20 1
gpt-6 $gpt 8 20 2
vgg16:32 vgg16:32 32 12 2
resnet18:32 resnet18:32 32 20 4
vgg16 vgg16 4 3 alone
resnet18 resnet18 8 6 alone
EOF
