#!/bin/sh
# Installs foreign programs that tests use: Node.js (segment counters, an SMSC, a chain, axe, a client), PHP,
# Composer and Laravel (a webhook receiver, a client), Chromium (pages), poppler-utils and a font (PDF), iproute2 (networks
# of nodes), promtool (alerts), HAProxy and nginx (draining). `peers.sh long` installs those of the long suite too:
# Composer, Laravel, WordPress and MariaDB (the clients for PHP), etcd and Patroni (failovers), debootstrap and lintian
# (the Debian package), buildah and Caddy (the container).
set -eu
cd "$(dirname "$0")/.."
. scripts/system.sh

# Java and LibreOffice are not installed: they are large, and each serves one test, which is skipped with a
# message.
if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
    install_packages nodejs npm ||
        echo "Node.js and npm are missing, so tests with split-sms, npm's smpp, the Node.js receiver, axe and a chain are skipped: install nodejs and npm."
fi
if ! command -v php >/dev/null; then
    install_packages php-cli || echo "PHP is missing, so tests of its webhook receiver and client are skipped: install php-cli."
fi
if ! command -v pdftotext >/dev/null; then
    install_packages poppler-utils || echo "pdftotext is missing, so tests that read PDF files are skipped: install poppler-utils."
fi

# A container of Python alone has no fonts. Papers use this one for letters that the standard fonts lack.
if ! ls /usr/share/fonts/truetype/dejavu/DejaVuSans-Bold.ttf >/dev/null 2>&1; then
    install_packages fonts-dejavu-core ||
        echo "DejaVu Sans is missing, so tests of letters in PDF files are skipped: install fonts-dejavu-core."
fi

if ! command -v ip >/dev/null && ! test -x /usr/sbin/ip && ! test -x /sbin/ip; then
    install_packages iproute2 ||
        echo "iproute2 is missing, so tests of many nodes use loopback only and cannot cut connections: install iproute2."
fi

# Checks that a Chromium starts: on some systems the command only prints how to install one. The headless shell
# comes first, because it opens a page with a fifth of the work.
has_chromium() {
    for program in chromium-headless-shell chromium chromium-browser google-chrome google-chrome-stable; do
        if command -v "$program" >/dev/null && timeout 20 "$program" --version >/dev/null 2>&1; then
            return 0
        fi
    done
    return 1
}
# Chromium only recommends fonts, and without any font a page has no letters.
if ! has_chromium && ! { install_packages chromium-headless-shell fonts-liberation && has_chromium; } &&
    ! { install_packages chromium fonts-liberation && has_chromium; }; then
    echo "Chromium is missing, so browser tests are skipped: install chromium or google-chrome."
fi

# Extracted, not installed: installing the package would start a Prometheus on this machine.
fetch_promtool() {
    folder=$(mktemp -d) || return 1
    if (cd "$folder" && chmod 755 . && apt-get -qq download prometheus && dpkg-deb -x prometheus_*.deb .) >/dev/null 2>&1; then
        mkdir -p .tools && mv "$folder/usr/bin/promtool" .tools/promtool
    fi
    rm -rf "$folder"
    test -x .tools/promtool
}
if ! command -v promtool >/dev/null && ! test -x .tools/promtool && ! fetch_promtool; then
    echo "promtool is missing, so tests of the alerts are skipped: put it into the path, or install Debian's prometheus."
fi

# Balancers are extracted too: installed, they would occupy ports of this machine.
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
    echo "HAProxy and nginx are missing, so tests of draining are skipped: install haproxy and nginx."
fi

[ "${1:-}" = long ] || exit 0
if ! ls /usr/lib/*/faketime/libfaketime.so.1 >/dev/null 2>&1; then
    install_packages faketime || echo "libfaketime is missing, so tests with a moved clock are skipped: install faketime."
fi
if ! command -v debootstrap >/dev/null && ! test -x /usr/sbin/debootstrap; then
    install_packages debootstrap || echo "debootstrap is missing, so tests of the Debian package are skipped: install debootstrap."
fi
if ! command -v lintian >/dev/null; then
    install_packages lintian || echo "lintian is missing, so the Debian package is not checked by it: install lintian."
fi
if ! command -v buildah >/dev/null; then
    install_packages buildah || echo "buildah is missing, so the container is not built: install buildah."
fi
# Extracted: installed, it would occupy port 80.
fetch_caddy() {
    folder=$(mktemp -d) || return 1
    if (cd "$folder" && chmod 755 . && apt-get -qq download caddy && dpkg-deb -x caddy_*.deb .) >/dev/null 2>&1; then
        mkdir -p .tools && mv "$folder/usr/bin/caddy" .tools/caddy
    fi
    rm -rf "$folder"
    test -x .tools/caddy
}
if ! command -v caddy >/dev/null && ! test -x .tools/caddy && ! fetch_caddy; then
    echo "Caddy is missing, so the proxy of the compose file is not tried: install caddy."
fi
# Composer unpacks archives with PHP's own extension.
if ! command -v composer >/dev/null || ! php -m 2>/dev/null | grep -qx zip; then
    install_packages composer php-zip ||
        echo "Composer is missing, so tests that install the client for PHP are skipped: install composer and php-zip."
fi
laravel='php-illuminate-notifications php-illuminate-config php-illuminate-events'
if ! test -d /usr/share/php/Illuminate/Notifications; then
    # shellcheck disable=SC2086 # These are several words.
    install_packages $laravel || echo "Laravel is missing, so the test of its notification channel is skipped: install $laravel."
fi

# Installed, because an extension fits only the PHP that was built with it: apt upgrades both.
if ! php -m 2>/dev/null | grep -qx mysqli; then
    install_packages php-mysql ||
        echo "PHP's extension for MySQL is missing, so tests of the plugin for WooCommerce are skipped: install php-mysql."
fi
# Extracted: installed, WordPress would bring a web server, and MariaDB would run.
fetch_wordpress() {
    folder=$(mktemp -d) || return 1
    if (
        cd "$folder" && chmod 755 . &&
            # shellcheck disable=SC2046 # These are several words.
            apt-get -qq download wordpress php-getid3 mariadb-server-core \
                $(apt-cache depends mariadb-server-core |
                    awk '$1 == "Depends:" && $2 ~ /^lib(aio|uring|numa|pmem)/ { print $2 }') &&
            for package in *.deb; do dpkg-deb -x "$package" . || exit 1; done && rm -- *.deb
    ) >/dev/null 2>&1; then
        mkdir -p .tools && rm -rf .tools/wordpress && mv "$folder" .tools/wordpress
    fi
    rm -rf "$folder"
    test -d .tools/wordpress/usr/share/wordpress
}
if ! test -d .tools/wordpress/usr/share/wordpress && ! fetch_wordpress; then
    echo "WordPress is missing, so tests of the plugin for WooCommerce are skipped: apt could not download wordpress and mariadb-server-core."
fi

# Extracted, not installed: installed, it would run on this machine.
fetch_etcd() {
    folder=$(mktemp -d) || return 1
    if (cd "$folder" && chmod 755 . && apt-get -qq download etcd-server && dpkg-deb -x etcd-server_*.deb .) >/dev/null 2>&1; then
        mkdir -p .tools/etcd/usr/bin && mv "$folder/usr/bin/etcd" .tools/etcd/usr/bin/etcd
    fi
    rm -rf "$folder"
    test -x .tools/etcd/usr/bin/etcd
}
if ! command -v etcd >/dev/null && ! test -x .tools/etcd/usr/bin/etcd && ! fetch_etcd; then
    echo "etcd is missing, so tests with Patroni are skipped: install etcd-server."
fi

# In a folder of its own, because nothing of ours imports it, and made again when a pin or Python changes. It is
# compiled here: PostgreSQL's user cannot write there, and each start of a server would compile it.
fetch_patroni() {
    mark=$(echo compiled && cksum requirements-patroni.txt && .venv/bin/python --version)
    if [ "$(cat .tools/patroni/installed 2>/dev/null)" != "$mark" ]; then
        rm -rf .tools/patroni
        .venv/bin/python -m pip install -qq --disable-pip-version-check --root-user-action ignore \
            --require-hashes --target .tools/patroni -r requirements-patroni.txt &&
            echo "$mark" >.tools/patroni/installed
    fi
}
if ! fetch_patroni; then
    echo "Patroni is missing, so its tests are skipped: look at what pip said."
fi
