#!/bin/sh
# Installs the pinned packages into .venv. `install.sh run` installs what a gateway needs, `install.sh dev`
# adds what the checks need, and `install.sh train` adds what training the content check needs. A second call
# does nothing unless a pin changed.
set -eu
cd "$(dirname "$0")/.."
. scripts/system.sh

python=${PYTHON:-python3}
venv=.venv
case $1 in
    run) pins=requirements.txt enough='run dev train' ;;
    dev) pins=requirements-dev.txt enough='dev train' ;;
    train) pins=requirements-train.txt enough='train' ;;
esac

version_of() {
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null
}

# Checksums, because a checkout may change the date of a file without changing its text.
mark() {
    cksum requirements-pip.txt requirements.txt pyproject.toml
    [ "$1" = run ] || cksum requirements-dev.txt
    [ "$1" != train ] || cksum requirements-train.txt
}

is_done() {
    for one in $enough; do
        if [ -x $venv/bin/tumira ] && [ -f "$venv/installed-$one" ] &&
            [ "$(mark "$one")" = "$(cat "$venv/installed-$one")" ]; then
            return 0
        fi
    done
    return 1
}

# A lock, because `make run` and `make test` may run at the same time.
if command -v flock >/dev/null; then
    exec 9<"$0"
    flock 9
fi

# An environment without pip is incomplete. The programs of a moved environment point to the old path.
has=
if [ -x $venv/bin/pip ] && { [ ! -f $venv/made-in ] || [ "$(cat $venv/made-in)" = "$PWD" ]; }; then
    has=$(version_of $venv/bin/python || true)
fi
if [ "${PYTHON_NAMED:-}" = yes ] && [ "$has" != "$(version_of "$python" || true)" ]; then
    has=
fi
if [ -n "$has" ] && is_done; then
    exit 0
fi

if [ -z "$has" ]; then
    package=python3
    case $(basename "$python") in python3.*) package=$(basename "$python") ;; esac
    if ! command -v "$python" >/dev/null; then
        install_packages "$package" "$package-venv" ||
            stop "There is no $python here: install Python 3.11 or newer (on Debian and Ubuntu: apt install $package $package-venv)."
    fi
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        stop "$python is Python $(version_of "$python"), too old: install 3.11 or newer and name it, as in \`make install PYTHON=python3.12\`."
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        install_packages "$package-venv" ||
            stop "$python cannot make environments: install its venv module (on Debian and Ubuntu: apt install $package-venv)."
    fi
    echo "Creating $venv with $("$python" --version) …"
    "$python" -m venv --clear $venv
    pwd >$venv/made-in
fi

echo "Installing what $pins pins …"
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_INPUT=1
rm -f $venv/installed-*
# Tests compile into a folder of their own, so compiling all packages here would take 20 seconds for nothing.
compile=--no-compile
[ "$1" != run ] || compile=--compile
$venv/bin/python -m pip install -qq --no-compile --require-hashes -r requirements-pip.txt
$venv/bin/python -m pip install -qq $compile --require-hashes -r "$pins"
$venv/bin/python -m pip install -qq --no-deps --no-build-isolation --editable .
mark "$1" >"$venv/installed-$1"
