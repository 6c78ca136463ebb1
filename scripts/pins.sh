#!/bin/sh
# Pins the packages of the requirements*.in files, with hashes, for every platform. Versions stay unchanged
# unless UPGRADE is set.
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

for name in requirements requirements-dev requirements-train; do
    echo "Pinning $name.in …"
    "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
        ${UPGRADE:+--upgrade} --output-file "$name.txt" "$name.in"
done
