# How are packages of the operating system installed? Sourced by the other scripts.

# The words that lead to the rights of root without asking anybody, or nothing and a failure.
root_by() {
    if [ "$(id -u)" = 0 ]; then
        echo env
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        echo sudo -n env
    else
        return 1
    fi
}

# install_packages NAME …: by apt, if that is how this system does it and we may.
install_packages() {
    command -v apt-get >/dev/null || return 1
    by=$(root_by) || return 1
    echo "Installing $* with apt …"
    log=$(mktemp)
    # The lists may be missing, as in a fresh container, or too old to be of use.
    if $by DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$@" >"$log" 2>&1 || {
        $by apt-get -qq update >"$log" 2>&1 &&
            $by DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$@" >"$log" 2>&1
    }; then
        rm -f "$log"
    else
        tail -n 3 "$log" >&2
        rm -f "$log"
        return 1
    fi
}

stop() {
    echo "$*" >&2
    exit 1
}
