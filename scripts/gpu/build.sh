#!/usr/bin/env bash
# build.sh [PROFILE]: target/gpu-check.tar.gz, all that a machine with a GPU needs to check Pipewright: the
# program and the tests of GPUs, without MPI and without symbols, their data, check.py. CUDA's libraries are
# loaded there when they are asked for. PROFILE is release, or dev for a quick look at the archive.
set -eu -o pipefail
. "$(dirname "$0")/../lib.sh"

profile=${1:-release}
target=${CARGO_TARGET_DIR:-target}
archive=$target/gpu-check.tar.gz
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
folder=$work/gpu-check
mkdir -p "$folder/bin" "$folder/target/check/deps" "$folder/scripts/gpu" "$folder/scripts/pytorch" \
  "$folder/runner/kernels/tests" "$folder/tests/data/golden"

# A test's program comes with the program that it tests.
cargo test --locked --profile "$profile" -p pipewright-runner --no-default-features --no-run \
  --test cuda --message-format=json-render-diagnostics |
  sed -n 's/.*"name":"\(cuda\|runner\)".*"executable":"\([^"]*\)".*/\1 \2/p' >"$work/built"
# `make test` compiles kernels for the oldest and the newest architecture; the other pairs are here, where
# NVRTC is.
tests=$(realpath "$(sed -n 's/^cuda //p' "$work/built")")
(cd runner && "$tests" other_architectures --ignored)
strip -o "$folder/bin/runner" "$(sed -n 's/^runner //p' "$work/built")"
strip -o "$folder/target/check/deps/test-cuda" "$tests"
cp scripts/gpu/*.py "$folder/scripts/gpu"
cp scripts/pytorch/step.py scripts/pytorch/networks.py "$folder/scripts/pytorch"
cp -r runner/kernels/tests/vectors "$folder/runner/kernels/tests"
cp -r tests/data/golden/train "$folder/tests/data/golden"
tar -C "$work" -czf "$archive" gpu-check
say "$archive: $(($(stat -c %s "$archive") / 1024)) KiB"
limit=$((64 << 20))
[ "$(stat -c %s "$archive")" -le "$limit" ] || give_up "the archive is larger than 64 MiB, which is all that may be taken along"
