#!/usr/bin/env bash
# python.sh [wheel]: the Python package, with the explorer where `make web` has built it. Without a word: built as
# tests are, installed into target/python, its types checked and its tests run with the torch of PYTHON (python3).
# wheel: an optimised wheel into target/wheels.
set -eu
. "$(dirname "$0")/lib.sh"
. scripts/env.sh

python=${PYTHON:-python3}
target=${CARGO_TARGET_DIR:-$PWD/target}
venv=$target/python
have cargo || give_up "There is no cargo, which builds the program in the package:" "scripts/setup.sh demo"
[ "${1:-}" = wheel ] || "$python" -c 'import torch' 2>/dev/null ||
  give_up "$python has no torch, which the tests need:" "$python -m pip install torch" "PYTHON=/path/to/python make python"

if [ ! -x "$venv/bin/maturin" ] || [ ! -x "$venv/bin/mypy" ]; then
  say "Tools of Python into $venv"
  "$python" -m venv --clear "$venv"
  "$venv/bin/python" -m pip install -q 'maturin>=1.9,<2' pytest mypy
fi
# The venv sees the packages of the Python that it was asked for, also where that is one of a venv.
"$python" -c 'import site; print("\n".join(site.getsitepackages()))' >"$("$venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')/outside.pth"

explorer=python/wheel/data/share/pipewright/explorer
find "$explorer" -mindepth 1 ! -name .gitignore -delete
if [ -f dist/index.html ]; then cp -R dist/. "$explorer"; fi

if [ "${1:-}" = wheel ]; then
  "$venv/bin/maturin" build --locked --release -q --out "$target/wheels"
  say "Done: $(ls -t "$target"/wheels/pipewright-*.whl | sed -n 1p)"
  exit 0
fi

rm -rf "$venv/wheel"
"$venv/bin/maturin" build --locked --profile dev -q --out "$venv/wheel"
"$venv/bin/python" -m pip install -q --no-deps --force-reinstall "$venv"/wheel/pipewright-*.whl
say "Types of the package and its examples"
"$venv/bin/mypy" python/pipewright python/examples
say "Tests of the package"
OMP_NUM_THREADS=1 "$venv/bin/python" -m pytest -q python/tests
