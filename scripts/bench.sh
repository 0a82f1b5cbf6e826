#!/bin/sh
# Runs every benchmark in turn; the arguments go to each of them.
set -eu

for file in bench/*.py; do
    echo "== $file $*"
    .venv/bin/python "$file" "$@"
done
