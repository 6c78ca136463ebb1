#!/bin/sh
# Which programs of others do tests compare us with? Node.js, for segment counters and an SMSC from npm.
set -eu
cd "$(dirname "$0")/.."
. scripts/system.sh

if command -v node >/dev/null && command -v npm >/dev/null; then
    exit 0
fi
install_packages nodejs npm ||
    echo "Node.js and npm are missing, so split-sms and the SMSC of npm's smpp are not tried: install nodejs and npm."
