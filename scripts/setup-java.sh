#!/bin/sh
# Spark needs Java 17 or newer. Installs it when possible; says in one line how to get it when not, and goes on.
set -eu

java=${JAVA_HOME:+$JAVA_HOME/bin/}java

recent_enough() {
    major=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p')
    [ "${major:-0}" -ge 17 ]
}

recent_enough && exit
for package in openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless; do
    scripts/apt-install.sh "$package" 2>/dev/null && recent_enough && exit
done
echo "setup: no Java 17 or newer, which Spark needs: install a JRE (Debian: openjdk-17-jre-headless) or set JAVA_HOME" >&2
