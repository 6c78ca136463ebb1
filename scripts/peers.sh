#!/bin/sh
# Which programs of others do tests need? Node.js, for segment counters, an SMSC, a chain and a judge of pages from npm, PHP,
# for a receiver of webhooks, Chromium, for the pages, and promtool, for the alerts.
set -eu
cd "$(dirname "$0")/.."
. scripts/system.sh

# A Java is not installed for its one receiver: it is large, and who has none is told so by the test.
if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
    install_packages nodejs npm ||
        echo "Node.js and npm are missing, so split-sms, the SMSC of npm's smpp, a receiver of webhooks, axe and a chain are not tried: install nodejs and npm."
fi
if ! command -v php >/dev/null; then
    install_packages php-cli || echo "PHP is missing, so its receiver of webhooks is not tried: install php-cli."
fi

# Whether a Chromium starts: on some systems the command only says how to install one.
has_chromium() {
    for program in chromium chromium-browser google-chrome google-chrome-stable; do
        if command -v "$program" >/dev/null && timeout 20 "$program" --version >/dev/null 2>&1; then
            return 0
        fi
    done
    return 1
}
# With a font, which Chromium only recommends: without any, a page has no letters.
if ! has_chromium && ! { install_packages chromium fonts-liberation && has_chromium; }; then
    echo "Chromium is missing, so no page is tried in a browser: install chromium or google-chrome."
fi

# Not installed but taken out of its package: that would also start a Prometheus on this machine.
fetch_promtool() {
    folder=$(mktemp -d) || return 1
    if (cd "$folder" && chmod 755 . && apt-get -qq download prometheus && dpkg-deb -x prometheus_*.deb .) >/dev/null 2>&1; then
        mkdir -p .tools && mv "$folder/usr/bin/promtool" .tools/promtool
    fi
    rm -rf "$folder"
    test -x .tools/promtool
}
if ! command -v promtool >/dev/null && ! test -x .tools/promtool && ! fetch_promtool; then
    echo "promtool is missing, so the alerts are not tried: put it into the path, or install Debian's prometheus."
fi
