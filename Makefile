# Every recipe is one line; the work is in scripts/. `make demo` and `make test` need no preparation.
.PHONY: help demo test soak check web serve runner install python setup bench pytorch gpu-check docs clean
help:  ; @sed -n 's/^#: //p' Makefile
#: make demo     set up, plan a small network on 4 stages, train it under MPI, show the plan in the
#:               browser explorer (SERVE=0 stops before serving, PORT=8080 chooses the port)
demo:  ; @scripts/demo.sh
#: make test     set up, then every check and test there is; CI runs this
test:  ; @scripts/test.sh
#: make soak     kill ranks of elastic jobs for half an hour; writes docs/reliability.md
soak:  ; @scripts/soak.sh
#: make check    the fast inner loop: format, lints, unit tests, house rules; after a change under a minute
check: ; @scripts/test.sh quick
#: make web      the explorer into dist/, with its sizes
web:   ; @scripts/web.sh build
#: make serve    the explorer on a local address
serve: ; @scripts/web.sh serve
#: make runner   target/release/runner with the explorer in it, for `runner explore`, and its name pipewright
runner: ; @scripts/runner.sh
#: make install  what `make runner` built into PREFIX/bin (/usr/local)
install: ; @scripts/runner.sh install
#: make python   the Python package into target/python, its types checked, its tests run (PYTHON has torch)
python: ; @scripts/python.sh
#: make setup    only install what is missing for all of the above
setup: ; @scripts/setup.sh test
#: make bench    predicted beside measured step times of compute-bound plans on this machine
bench: ; @scripts/bench.sh
#: make pytorch  step times of PyTorch's CPU build and of the runner side by side
pytorch: ; @scripts/pytorch.sh
#: make gpu-check  target/gpu-check.tar.gz: what checks and measures a machine with a GPU, without Rust there
gpu-check: ; @scripts/gpu/build.sh
#: make docs     docs/ as a book in target/book, by mdBook
docs: ; @scripts/docs.sh
#: make clean    remove what was built; installed packages stay
clean: ; @rm -rf target dist run
