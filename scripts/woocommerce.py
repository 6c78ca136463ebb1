"""Builds the plugin for WooCommerce, with the PHP client in it: `python3 scripts/woocommerce.py FILE.zip`."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

ROOT: Final = Path(__file__).resolve().parent.parent
NAME: Final = "tumira-for-woocommerce"


def contents() -> Mapping[str, Path]:
    """Return the files of the plugin by their names in its folder."""
    plugin, client = ROOT / "clients" / "woocommerce", ROOT / "clients" / "php"
    files = [
        *(
            (plugin, file)
            for file in (plugin / "README.md", *plugin.glob("*.php"), *plugin.glob("src/*.php"))
        ),
        *((client, file) for file in (client / "autoload.php", *client.glob("src/*.php"))),
    ]
    names = {
        f"{'client/' if folder == client else ''}{file.relative_to(folder).as_posix()}": file
        for folder, file in files
    }
    return dict(sorted({**names, "LICENSE": ROOT / "LICENSE"}.items()))


def build(target: Path) -> None:
    """Write the archive; the same files always give the same bytes."""
    with ZipFile(target, "w", ZIP_DEFLATED) as archive:
        for name, file in contents().items():
            entry = ZipInfo(f"{NAME}/{name}")
            entry.compress_type = ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, file.read_bytes())


if __name__ == "__main__":
    build(Path(sys.argv[1]))
