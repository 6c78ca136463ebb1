#!/bin/sh
# Pins the packages of pyproject.toml and of the requirements*.in files, with the hashes of their files for every
# Python and platform. Versions stay unchanged unless UPGRADE is set.
set -eu
cd "$(dirname "$0")/.."
. scripts/system.sh

uv=$(command -v uv || true)
if [ -z "$uv" ]; then
    place=$(mktemp -d)
    trap 'rm -rf "$place"' EXIT
    "${PYTHON:-python3}" -m venv "$place" || stop "uv is missing and cannot be installed: install uv."
    "$place/bin/python" -m pip install --quiet --disable-pip-version-check uv
    uv=$place/bin/uv
fi

for name in requirements-pip requirements requirements-dev requirements-train requirements-patroni; do
    echo "Pinning $name …"
    sources=$name.in
    [ $name != requirements ] || sources="pyproject.toml $name.in"
    # shellcheck disable=SC2086 # These are several words.
    "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
        ${UPGRADE:+--upgrade} --output-file "$name.txt" $sources
done
