#!/bin/sh
# web-toolchain.sh DIR: a toolchain folder for wasm32 from Debian's compiler, for machines on which
# `rustup target add` cannot download. Debian ships the compiler and the sources of the standard
# library but not the library itself; it is compiled here, once.
# Needs the packages rustc-web cargo-web rust-web-src and an lld-N; the newest that is here is used.
set -eu
dir=$1
target=wasm32-unknown-unknown
[ ! -d "$dir" ] || exit 0

work=$(mktemp -d)
trap 'rm -rf "$work" "$dir.new"' EXIT
rm -rf "$dir.new"
host=$(/usr/bin/rustc -vV | sed -n 's/^host: //p')
lib=$dir.new/lib/rustlib
mkdir -p "$work/src" "$dir.new/bin" "$lib/$target/lib" "$lib/$host/bin"

# An empty crate makes cargo build the library. RUSTC_BOOTSTRAP is confined to this one command.
# The bitcode is for the link-time optimisation of the page, which cannot use a library without.
printf '[package]\nname = "seed"\nedition = "2021"\n[workspace]\n' >"$work/Cargo.toml"
: >"$work/src/lib.rs"
(cd "$work" && env -u RUSTUP_TOOLCHAIN -u CARGO_TARGET_DIR PATH="/usr/bin:$PATH" RUSTC=/usr/bin/rustc \
  RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Cembed-bitcode=yes \
  /usr/bin/cargo build -q --release --target $target -Zbuild-std=std,panic_abort)
for file in "$work"/target/$target/release/deps/*.rlib; do
  case $file in */libseed-*) ;; *) cp "$file" "$lib/$target/lib/" ;; esac
done

ln -s "/usr/lib/rustlib/$host/lib" "$lib/$host/lib"
lld=$(ls -d /usr/lib/llvm-*/bin/lld | sort -V | tail -n 1)
ln -s "$lld" "$lib/$host/bin/rust-lld"
# cargo asks `rustc` and finds this one first on PATH: the sysroot is the folder it lies in.
cat >"$dir.new/bin/rustc" <<'W'
#!/bin/sh
exec /usr/bin/rustc --sysroot "$(dirname "$(dirname "$(readlink -f "$0")")")" "$@"
W
cat >"$dir.new/bin/cargo" <<'W'
#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
PATH=$here:$PATH RUSTC=$here/rustc exec /usr/bin/cargo "$@"
W
chmod +x "$dir.new/bin/rustc" "$dir.new/bin/cargo"
mv "$dir.new" "$dir"
