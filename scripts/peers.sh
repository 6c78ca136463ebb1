#!/bin/sh
# Which programs of others do tests compare us with? Node.js, for segment counters from npm.
set -eu
cd "$(dirname "$0")/.."
. scripts/system.sh

if command -v node >/dev/null && command -v npm >/dev/null; then
    exit 0
fi
install_packages nodejs npm ||
    echo "Node.js and npm are missing, so segments are not compared with split-sms: install nodejs and npm."
