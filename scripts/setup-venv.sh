#!/bin/sh
# Makes .venv hold exactly what requirements.lock says, and the project itself, editable.
# PYTHON names the interpreter that .venv is made of (python3 unless given).
set -eu

python=${PYTHON:-python3}
venv=.venv/bin/python

say() { echo "setup: $*"; }
die() { echo "setup: $*" >&2; exit 3; }

make_venv() {
    command -v "$python" >/dev/null || die "no $python here: install Python 3.11 or newer, or name one: make PYTHON=..."
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        die "$python is Python $version, and 3.11 or newer is needed: name one with make PYTHON=..."
    "$python" -c 'import ensurepip' 2>/dev/null ||
        scripts/apt-install.sh "python$version-venv" ||
        die "$python cannot make a virtual environment: install the package python$version-venv"
    say "a new .venv of Python $version"
    "$python" -m venv --clear .venv
}

# The entry of one package in the lock, with its hashes.
locked() { awk -v name="$1==" 'index($0, name) == 1 { on = 1 } on { print } on && !/\\$/ { exit }' requirements.lock; }

install_uv() {
    locked uv >.venv/uv.lock
    grep -q "^uv==$("$venv" -m uv --version 2>/dev/null | cut -d' ' -f2) " .venv/uv.lock ||
        "$venv" -m pip install --quiet --disable-pip-version-check --require-hashes --requirement .venv/uv.lock
}

# pip knows the machine's own settings (a mirror, a proxy), which uv does not read: it is slower, and the second try.
install_lock() {
    say "the packages of requirements.lock"
    UV_SYSTEM_CERTS=1 "$venv" -m uv pip sync --quiet --python "$venv" --require-hashes \
        --build-constraints requirements.lock requirements.lock && return
    say "uv could not, trying pip"
    "$venv" -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.lock
}

install_project() {
    "$venv" -m uv pip install --quiet --python "$venv" --offline --no-deps --no-build-isolation --editable .
}

"$venv" -c '' 2>/dev/null || make_venv
install_uv
install_lock
install_project
