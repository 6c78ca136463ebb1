#!/bin/sh
# Builds the Debian package into dist/, for the Debian and the machine that this runs on.
# `deb.sh stage FOLDER PYTHON DEBIAN`, as in `deb.sh stage /tmp/tumira 3.13 13`, only writes the folder of a package for
# another Debian; `dpkg-buildpackage -b -us -uc` builds it there, without the network.
# REVISION=2 is for a second package of the same version.
set -eu
cd "$(dirname "$0")/.."
. scripts/system.sh

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)

# stage FOLDER PYTHON DEBIAN: writes what dpkg-buildpackage needs.
stage() {
    case $(dpkg --print-architecture) in
        amd64) machine=x86_64 ;;
        arm64) machine=aarch64 ;;
        *) stop "The package is for amd64 and arm64; this machine is $(dpkg --print-architecture). Use the wheel: docs/install.md." ;;
    esac
    rm -rf "$1"
    mkdir -p "$1/wheels"
    cp -R deploy docs README.md requirements.txt "$1"
    mv "$1/deploy/debian" "$1/debian"
    # What linters and Python left in the checkout.
    find "$1" -type d \( -name '.*_cache' -o -name __pycache__ \) -prune -exec rm -rf {} +
    date=$(date -R ${SOURCE_DATE_EPOCH:+-d "@$SOURCE_DATE_EPOCH"})
    cat >"$1/debian/changelog" <<END
tumira ($version-${REVISION:-1}~deb$3) stable; urgency=medium

  * CHANGELOG.md of Tumira says what changed.

 -- Tumira <packages@tumira.invalid>  $date
END
    .venv/bin/python -c 'import sys; from flit_core import buildapi; buildapi.build_wheel(sys.argv[1])' "$1/wheels"
    echo "Fetching the pinned packages for Python $2 on $machine …"
    # Debian 12 has glibc 2.36, and later Debians newer ones.
    platforms=$(seq -f "--platform manylinux_2_%g_$machine" 17 36)
    # shellcheck disable=SC2086 # These are several words.
    .venv/bin/python -m pip download -qq --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: \
        --dest "$1/wheels" --implementation cp --python-version "$2" --abi "cp$(echo "$2" | tr -d .)" --abi abi3 --abi none \
        $platforms --platform "manylinux2014_$machine" --platform "linux_$machine" -r requirements.txt ||
        stop 'The pinned packages could not be fetched: look at what pip said, and check the network and the index that pip uses.'
}

if [ "${1:-}" = stage ]; then
    stage "$2" "$3" "$4"
    exit 0
fi

# shellcheck disable=SC1091 # A file of the system.
debian=$(. /etc/os-release 2>/dev/null && [ "$ID" = debian ] && echo "$VERSION_ID") || debian=
[ -n "$debian" ] || stop 'The package is built on the Debian that it is for, and this is none. Use the wheel: docs/install.md.'
needs='dpkg-dev debhelper python3 python3-pip python3-venv'
# shellcheck disable=SC2086 # These are several words.
dpkg -s $needs >/dev/null 2>&1 || install_packages $needs ||
    stop "Building the package needs $needs: install them, as root, with: apt install $needs"
# The distribution's own, whichever python3 is first in the path.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
python=$(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
stage "$folder/tumira" "$python" "$debian"
echo 'Building the package …'
(cd "$folder/tumira" && dpkg-buildpackage -b -us -uc) >"$folder/log" 2>&1 || {
    tail -n 30 "$folder/log" | cut -c 1-300 >&2
    stop 'The package was not built: the lines above say why.'
}
mkdir -p dist
mv "$folder"/*.deb dist/
ls dist/tumira_*~deb"$debian"_*.deb
