#!/bin/sh
# demo: what the image can do without anything else. Plans a small network on 4 stages and trains it on 4 ranks.
set -eu
pipewright plan --model digits-cnn --stages 4 --schedule 1f1b --micro-batches 8 --mini-batch 384 \
  --data idx:/usr/share/pipewright/digits --steps "${STEPS:-150}" --learning-rate 0.05 -o plan.json
exec mpirun -n 4 pipewright plan.json --out run --overwrite
