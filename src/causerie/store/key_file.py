"""The file with the key of a database, where none is named: made once, for its owner alone."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from causerie.accounts.encryption import SHORTEST_KEY, new_key

_OTHERS = 0o077


def key_of_file(file: Path) -> str:
    """The key in this file, which is made where there is none.

    Raises :class:`OSError`, and :class:`ValueError` for a file that others may
    read or that holds no key.
    """
    if not file.exists():
        with suppress(FileExistsError):  # another process was first
            _make(file)
    if file.stat().st_mode & _OTHERS:
        raise ValueError("others may read it; `chmod 600` it")
    key = file.read_text(encoding="ascii").strip()
    if len(key) < SHORTEST_KEY:
        raise ValueError("it holds no key; restore it, for what it encrypted is lost without it")
    return key


def _make(file: Path) -> None:
    """Whole or not at all: another process may start at the same time."""
    part = file.with_name(f".{file.name}.{token_hex(8)}")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="ascii") as opened:
            opened.write(new_key() + "\n")
            opened.flush()
            os.fsync(opened.fileno())
        os.link(part, file)
    finally:
        part.unlink()
