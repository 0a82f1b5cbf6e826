#!/bin/sh
# Installs Debian packages when that is possible: apt-get is there and we are root. Fails otherwise, without a word.
set -eu

command -v apt-get >/dev/null && [ "$(id -u)" = 0 ] || exit 1

export DEBIAN_FRONTEND=noninteractive
echo "setup: apt-get install $*"
apt-get -qq -o DPkg::Lock::Timeout=120 update >/dev/null </dev/null
apt-get -qq -o DPkg::Lock::Timeout=120 install --yes --no-install-recommends "$@" >/dev/null </dev/null
