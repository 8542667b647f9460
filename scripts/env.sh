# The environment in which everything is built and run. Sourced after lib.sh, or by hand from the
# repository's root: `. scripts/env.sh`.

set -a
. "${root:-$PWD}/scripts/mpi.env"
set +a

# Where setup.sh put a browser because the system has no package for one.
if [ -z "${CHROMIUM:-}" ] && [ -d "${root:-$PWD}/.cache/browser" ]; then
  for file in "${root:-$PWD}"/.cache/browser/*/*/*/*; do
    case ${file##*/} in
      chrome) export CHROMIUM="$file" ;;
      chromedriver) export CHROMEDRIVER="$file" ;;
    esac
  done
fi

# rustup could not fetch the wasm32 target: the page is compiled by Debian's compiler instead.
if [ -x "${root:-$PWD}/.cache/web-toolchain/bin/cargo" ]; then
  export PIPEWRIGHT_WEB_CARGO="${root:-$PWD}/.cache/web-toolchain/bin/cargo"
fi
