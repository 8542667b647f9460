#!/usr/bin/env bash
# codecs.sh OUT [NET RANKS MBIT STEPS]..: what codecs of gradients do to training on a slow network.
#
# Trains caffenet-mini and googlenet-mini on four hosts (hosts.sh): in single precision, in fp8, by
# table(1) without feedback, each bucket the fastest way (adaptive), and chosen while training among
# all of these (spec). OUT/NET-RANKS/ gets plans and runs, OUT/NET-RANKS.txt the table of
# `runner curves` and OUT/NET-RANKS.svg its picture. RUNNER names the program, RATE the course of the
# learning rate (constant), RUNS the ways (all five), TEST the images to test on (1024), every so many steps
# (EVAL_EVERY, 20). SEEDS "1 2 3" has each network trained by several seeds, in OUT/NET-RANKS-SEED, and prints
# what is left of single precision's accuracy and time over all of them (codec_seeds.py).
set -eu -o pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
. scripts/env.sh
runner=$(realpath "${RUNNER:-target/debug/runner}")
out=$(mkdir -p "$1" && cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- caffenet-mini 4 250 600 googlenet-mini 4 50 400 \
  caffenet-mini 16 250 400 googlenet-mini 16 50 300

# mpirun with RANKS ranks on four hosts.
on_hosts() { # MBIT RANKS ARGS..
  local mbit=$1 ranks=$2 each=$(($2 / 4))
  shift 2
  scripts/hosts.sh 4 "$mbit" mpirun --oversubscribe \
    --host "host1:$each,host2:$each,host3:$each,host4:$each" -n "$ranks" "$runner" "$@"
}

runs=${RUNS:-fp32 fp8 table1 adaptive spec}

train() { # NET RANKS MBIT STEPS [SEED]
  local net=$1 ranks=$2 mbit=$3 steps=$4 seed=${5:-} hosts='' name
  local dir=$out/$1-$2${5:+-$5}
  [ "$ranks" -le 4 ] || hosts=--hierarchical
  mkdir -p "$dir"
  plan() { # NAME ARGS..
    local name=$1
    shift
    "$runner" plan --model "$net" --stages 1 --schedule gpipe --micro-batches 1 \
      --replicas "$ranks" --mini-batch 64 --data shapes --steps "$steps" --bucket-mib 1 \
      --learning-rate 0.003 --momentum 0.9 --weight-decay 0.0005 --warmup 40 \
      --rate "${RATE:-constant}" ${seed:+--seed "$seed"} "$@" -o "$dir/$name.json"
    sed -i 's/"test": 1024/"test": '"${TEST:-1024}/" "$dir/$name.json"
  }
  plan fp32
  on_hosts "$mbit" "$ranks" profile "$dir/fp32.json" -o "$dir/cluster.json"
  set -- --cluster "$dir/cluster.json"
  plan fp32 "$@"
  plan fp8 "$@" --codec fp8-e5m2 $hosts
  plan table1 "$@" --codec table:1 $hosts
  plan adaptive "$@" --codec adaptive --codecs fp32,fp8-e5m2,table:1 $hosts
  plan spec "$@" --codec adaptive --codecs fp32,fp8-e5m2,table:1 $hosts \
    --choose fp32,fp8-e5m2,table:1 --choose-every 100 --choose-trial 5
  for name in $runs; do
    on_hosts "$mbit" "$ranks" "$dir/$name.json" --out "$dir/$name" --overwrite \
      --threads 1 --eval-every "${EVAL_EVERY:-20}"
  done
  (cd "$dir" && "$runner" curves $runs -o "$dir.svg") | tee "$dir.txt"
}

while [ $# -ge 4 ]; do
  for seed in ${SEEDS:-""}; do
    train "$1" "$2" "$3" "$4" "$seed"
  done
  [ -z "${SEEDS:-}" ] || python3 scripts/codec_seeds.py "$out/$1-$2"-*.txt
  shift 4
done
