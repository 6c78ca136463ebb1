#!/bin/sh
# Which programs of others do tests compare us with? Node.js, for segment counters and an SMSC from npm, and PHP,
# for a receiver of webhooks.
set -eu
cd "$(dirname "$0")/.."
. scripts/system.sh

# A Java is not installed for its one receiver: it is large, and who has none is told so by the test.
if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
    install_packages nodejs npm ||
        echo "Node.js and npm are missing, so split-sms, the SMSC of npm's smpp and a receiver of webhooks are not tried: install nodejs and npm."
fi
if ! command -v php >/dev/null; then
    install_packages php-cli || echo "PHP is missing, so its receiver of webhooks is not tried: install php-cli."
fi
