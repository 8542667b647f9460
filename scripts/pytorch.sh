#!/usr/bin/env bash
# pytorch.sh [WORD]: step times of PyTorch's CPU build (eager) and of the runner side by side: the
# same networks, mini-batches, optimizer and threads, one process each, in turns. With a word only
# the networks that contain it. PyTorch is installed for this alone, into .cache/pytorch; PYTHON
# names a Python that has it already. An otherwise idle machine is assumed.
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
printf '%-12s %5s %7s %24s %24s %6s\n' network batch threads 'PyTorch ms (range)' 'Pipewright ms (range)' ratio
while read -r name model batch steps; do
  case $name in *"${1:-}"*) ;; *) continue ;; esac
  "$runner" plan --model "$model" --stages 1 --schedule gpipe --mini-batch "$batch" \
    --micro-batches 1 --learning-rate 1e-4 --steps "$steps" -o "$work/plan.json" 2>"$work/log" >&2
  for threads in 1 2; do
    : >"$work/torch"
    : >"$work/ours"
    for _ in $(seq "$rounds"); do
      "$PYTHON" scripts/pytorch/step.py "$model" "$batch" "$threads" "$steps" >>"$work/torch"
      "$runner" run "$work/plan.json" --threads "$threads" --out "$work/run" --overwrite --json \
        >/dev/null 2>"$work/log"
      cat "$work/run/result.json" >>"$work/ours"
    done
    "$PYTHON" scripts/pytorch/table.py "$name" "$batch" "$threads" "$work/torch" "$work/ours"
  done
done <<EOF
fc32:1024 fc32:1024 128 20
gpt-6 $gpt 8 20
vgg16:32 vgg16:32 32 12
resnet18:32 resnet18:32 32 20
vgg16 vgg16 4 3
resnet18 resnet18 8 6
EOF
