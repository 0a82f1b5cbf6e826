#!/bin/sh
# Programs that the tests start, and the Debian packages that hold them. Installs what is missing and can be had;
# a test whose program is missing skips and says so.
set -eu

packages_by_tool="strace:strace mariadbd:mariadb-server-core my_print_defaults:mariadb-client-core tarantool:tarantool chromium:chromium"

for pair in $packages_by_tool; do
    tool=${pair%%:*} package=${pair#*:}
    command -v "$tool" >/dev/null ||
        scripts/apt-install.sh "$package" ||
        echo "setup: no $tool, so the tests that need it will skip: install the package $package" >&2
done
