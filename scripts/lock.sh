#!/bin/sh
# Writes requirements.lock anew from pyproject.toml: newest versions, all extras, for every platform and Python.
# Only the default index counts, whatever this machine is set to, so that the hashes hold everywhere.
set -eu

env -u UV_INDEX -u UV_INDEX_URL -u UV_EXTRA_INDEX_URL -u UV_DEFAULT_INDEX -u UV_FIND_LINKS UV_SYSTEM_CERTS=1 \
    .venv/bin/python -m uv pip compile --quiet --no-config --upgrade --universal --python-version 3.11 \
    --all-extras --group dev --generate-hashes --no-header --output-file requirements.lock pyproject.toml

if grep -nE '://|^-|@ ' requirements.lock; then
    echo "lock: the lines above name a place, which a lock must not" >&2
    exit 1
fi
