#!/usr/bin/env bash
# test.sh [quick]: every check and test there is, cheapest first; stops at the first that fails.
# quick is the inner loop: nothing for wasm, no browser, no tests across crates.
set -eu
. "$(dirname "$0")/lib.sh"
summary=()

step() {
  local name=$1 begin=$SECONDS
  shift
  say "$name"
  "$@" || {
    local code=$?
    printf '\n%s failed: %s\n' "$name" "$*" >&2
    exit "$code"
  }
  summary+=("$(printf '%4d s  %s' $((SECONDS - begin)) "$name")")
}

# One selection for all native steps: another one would give some dependency other features, and
# cargo would build it twice. The explorer's page is compiled for wasm32 only.
native=(--locked --workspace --exclude pipewright-app --exclude pipewright-worker)
# The quick one installs nothing, and etcd's client needs protoc to build.
if [ "${1:-}" != quick ] || have protoc; then native+=(--features pipewright-runner/etcd); fi
# Its plain half compiles natively in seconds: without the feature `page` there is no leptos.
explorer=(--locked -p pipewright-app -p pipewright-worker --no-default-features)

if [ "${1:-}" = quick ]; then
  step "Format" cargo fmt --all --check
  step "Clippy" cargo clippy "${native[@]}" --all-targets -- -D warnings
  step "Unit tests" cargo test "${native[@]}" --lib --bins
  step "Explorer's own tests" cargo test "${explorer[@]}"
  exit 0
fi

step "Set-up" scripts/setup.sh test
. scripts/env.sh
# From here on a missing tool is a failure and not a skipped test.
export PIPEWRIGHT_REQUIRE_ALL=1

wasm_lints() {
  # core also compiles natively, but the page runs the wasm one: code that only fits 64 bits, or a
  # dependency that has no wasm, must fail here. The profile is that of the page, so that the
  # macros compiled now serve the build later.
  local args=(--locked --profile web --target wasm32-unknown-unknown
    -p pipewright-core -p pipewright-app -p pipewright-worker -p pipewright-meter)
  if [ -n "${PIPEWRIGHT_WEB_CARGO:-}" ]; then
    "$PIPEWRIGHT_WEB_CARGO" check "${args[@]}" # Debian's compiler for wasm has no clippy
  else
    cargo clippy "${args[@]}" -- -D warnings
  fi
}

step "Format" cargo fmt --all --check
step "Clippy, native" cargo clippy "${native[@]}" --all-targets -- -D warnings
step "Clippy, explorer without its page" cargo clippy "${explorer[@]}" --all-targets -- -D warnings
step "Clippy, wasm32" wasm_lints
step "Unit, property, golden and MPI tests" cargo test "${native[@]}"
# Marked `ignore` for want of root or user namespaces; a kernel that refuses them is said and passes.
step "Tests across hosts" cargo test "${native[@]}" --test 'hosts*' -- --ignored --nocapture
step "Explorer's own tests" cargo test "${explorer[@]}"
step "Explorer for the browser" cargo run --locked -p pipewright-web -- build
step "What is measured in the browser" cargo run --quiet --locked -p pipewright-web -- meter
# The tests that need dist/ are marked `ignore`, so that plain `cargo test` works without it.
step "Browser tests" cargo test "${native[@]}" --test browser -- --ignored

say "All passed in $SECONDS s"
printf '%s\n' "${summary[@]}"
