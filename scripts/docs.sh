#!/usr/bin/env bash
# docs.sh: the documents as a book in target/book. mdBook is installed for this alone, into .cache/mdbook.
set -eu
. "$(dirname "$0")/lib.sh"

version=0.5.4
book=$cache/mdbook/bin/mdbook
if ! "$book" --version 2>/dev/null | grep -q "$version"; then
  say "Building mdBook $version (3 to 5 minutes)"
  cargo install --quiet --locked --root "$cache/mdbook" --version "$version" mdbook --no-default-features
fi
say "target/book/index.html"
# A warning is a mistake in a document.
"$book" build docs 2>&1 | tee "$cache/mdbook/log"
! grep -q "WARN\|ERROR" "$cache/mdbook/log"
