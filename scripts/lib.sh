# What the scripts share. Sourced by bash scripts that ran `set -eu`.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

# Where things land that are neither built nor tracked: a browser, a fallback toolchain.
cache=$root/.cache

# Colour for people, plain text for logs.
if [ -t 1 ]; then bold=$'\033[1m' dim=$'\033[2m' plain=$'\033[0m'; else bold= dim= plain=; fi
say() { printf '%s==> %s%s\n' "$bold" "$*" "$plain"; }

# Prints what a person must do and stops. 2 means "not set up", unlike 1, "a check failed".
give_up() {
  printf '\n%s\n' "$1" >&2
  shift
  [ $# -eq 0 ] || printf '\n    %s\n' "$@" >&2
  printf '\n' >&2
  exit 2
}

have() { command -v "$1" >/dev/null 2>&1; }

# The first of the named programs that is on PATH.
first_of() {
  local name
  for name in "$@"; do
    if command -v "$name" 2>/dev/null; then return 0; fi
  done
  return 1
}
