#!/bin/sh
# Which programs of others do tests need? Node.js, for segment counters, an SMSC, a chain and a judge of pages from npm, PHP,
# for a receiver of webhooks, Chromium, for the pages, iproute2, for networks of nodes, and promtool, for the alerts.
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

if ! command -v ip >/dev/null && ! test -x /usr/sbin/ip && ! test -x /sbin/ip; then
    install_packages iproute2 ||
        echo "iproute2 is missing, so many nodes are tried on loopback alone, and no line between them is cut: install iproute2."
fi

# Whether a Chromium starts: on some systems the command only says how to install one. The first has no window at all,
# and opens a page with a fifth of the work.
has_chromium() {
    for program in chromium-headless-shell chromium chromium-browser google-chrome google-chrome-stable; do
        if command -v "$program" >/dev/null && timeout 20 "$program" --version >/dev/null 2>&1; then
            return 0
        fi
    done
    return 1
}
# With a font, which Chromium only recommends: without any, a page has no letters.
if ! has_chromium && ! { install_packages chromium-headless-shell fonts-liberation && has_chromium; } &&
    ! { install_packages chromium fonts-liberation && has_chromium; }; then
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

# Balancers, taken out of their packages too: installed, they would take ports of this machine.
fetch_balancers() {
    folder=$(mktemp -d) || return 1
    if (
        cd "$folder" && chmod 755 . &&
            # shellcheck disable=SC2046 # These are several words.
            apt-get -qq download nginx haproxy $(apt-cache depends haproxy libopentracing-c-wrapper0 |
                awk '$1 == "Depends:" && $2 ~ /^lib(lua|opentracing)/ { print $2 }' | sort -u) &&
            for package in *.deb; do dpkg-deb -x "$package" . || exit 1; done && rm -- *.deb
    ) >/dev/null 2>&1; then
        mkdir -p .tools && rm -rf .tools/balancers && mv "$folder" .tools/balancers
    fi
    rm -rf "$folder"
    test -x .tools/balancers/usr/sbin/haproxy && test -x .tools/balancers/usr/sbin/nginx
}
if ! { command -v haproxy && command -v nginx; } >/dev/null && ! test -x .tools/balancers/usr/sbin/haproxy && ! fetch_balancers; then
    echo "HAProxy and nginx are missing, so stopping behind a balancer is not tried: install haproxy and nginx."
fi
