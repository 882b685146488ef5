"""Check a wheel or an sdist before it is published: its metadata and its files.

python tools/check_package.py dist/*
python tools/check_package.py --publish dist/*    # refuses placeholders of addresses too
"""

from __future__ import annotations

import argparse
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from email.message import Message
from email.parser import Parser
from pathlib import Path

_TEXTS = (
    "Name", "Version", "Summary", "License-Expression", "Requires-Python", "Keywords", "Author"
)  # fmt: skip
_URLS = ("Homepage", "Documentation", "Source", "Issues")
_NEEDED = (
    "causerie/py.typed",
    "causerie/http/pages/templates/base.html",
    "causerie/http/pages/static/vendor/htmx.js",
    "causerie/http/pages/static/inter.LICENSE",
    "causerie/http/pages/static/inter.woff2",
    "causerie/distributed/windows.lua",
    "causerie/hosted/store/migrations/script.py.mako",
)
_PLACEHOLDER = ".example"


def main() -> None:
    """Print each problem; exit with 1 if there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--publish", action="store_true", help="refuse placeholders of addresses")
    options = parser.parse_args()
    found = [
        f"{file.name}: {problem}"
        for file in options.files
        if file.suffix in (".whl", ".gz")
        for problem in problems(file, publish=options.publish)
    ]
    sys.stdout.write("\n".join(found or ["The package is complete."]) + "\n")
    sys.exit(bool(found))


def problems(file: Path, *, publish: bool = False) -> Iterator[str]:
    """Yield what a wheel or an sdist lacks."""
    names, metadata = _wheel(file) if file.suffix == ".whl" else _sdist(file)
    yield from metadata_problems(metadata, publish=publish)
    for needed in _NEEDED:
        if not any(name.endswith(needed) for name in names):
            yield f"{needed} is missing"
    for name in names:
        if "__pycache__" in name or "/tests/" in name or name.startswith("tests/"):
            yield f"{name} does not belong into it"


def metadata_problems(metadata: Message, *, publish: bool = False) -> Iterator[str]:
    """Yield what the metadata lacks."""
    for name in _TEXTS:
        if not (metadata[name] or "").strip():
            yield f"{name} is empty"
    if not metadata.get_all("Classifier"):
        yield "there is no classifier"
    if not (metadata["Description"] or metadata.get_payload()):
        yield "the description is empty"
    addresses = dict(_addresses(metadata.get_all("Project-URL") or ()))
    for name in _URLS:
        address = addresses.get(name, "")
        if not address.startswith("https://"):
            yield f"the address of {name} is empty or not https"
        elif publish and address.split("/")[2].endswith(_PLACEHOLDER):
            yield f"the address of {name} is a placeholder"


def _addresses(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        name, _, address = line.partition(",")
        yield name.strip(), address.strip()


def _wheel(file: Path) -> tuple[list[str], Message]:
    with zipfile.ZipFile(file) as package:
        names = package.namelist()
        [path] = [name for name in names if name.endswith(".dist-info/METADATA")]
        return names, Parser().parsestr(package.read(path).decode())


def _sdist(file: Path) -> tuple[list[str], Message]:
    with tarfile.open(file) as package:
        names = package.getnames()
        [path] = [name for name in names if name.count("/") == 1 and name.endswith("/PKG-INFO")]
        content = package.extractfile(path)
        assert content is not None
        return names, Parser().parsestr(content.read().decode())


if __name__ == "__main__":
    main()
