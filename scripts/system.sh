# Functions to install packages of the operating system; sourced by the other scripts.

# Prints the command prefix that gives root rights without a prompt, or fails.
root_by() {
    if [ "$(id -u)" = 0 ]; then
        echo env
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        echo sudo -n env
    else
        return 1
    fi
}

# install_packages NAME …: installs with apt, if the system has it and we have the rights.
install_packages() {
    command -v apt-get >/dev/null || return 1
    by=$(root_by) || return 1
    echo "Installing $* with apt …"
    log=$(mktemp)
    # The package lists may be missing, as in a fresh container, or outdated.
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
