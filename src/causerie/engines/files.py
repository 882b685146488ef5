"""The files that a model was read from, told from others that take their places."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from causerie.engines.supervisor import GivenUp


class Files:
    """Snapshot of files, taken before anything is read from them."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._stamps = {path: _stamp(path) for path in paths}

    def same(self) -> None:
        """Raise :class:`GivenUp` if one is gone, or another than it was. Blocks.

        Nothing is to answer with one file's template and the weights of another.
        """
        for path, before in self._stamps.items():
            stamp = _stamp(path)
            if stamp is None:
                raise GivenUp(f"the weights are gone: {path} does not exist any more")
            if stamp != before:
                raise GivenUp(f"the weights have changed: {path} is read anew when it is asked for")

    @property
    def digest(self) -> str:
        """Return a text that is another where a file is another one."""
        every = sorted((str(path), stamp) for path, stamp in self._stamps.items())
        return hashlib.blake2b(repr(every).encode(), digest_size=16).hexdigest()

    def mark(self, size: int) -> str:
        """Tells weights of ``size`` bytes from others, in eight hexadecimal digits at most."""
        modified = next((stamp[1] for stamp in self._stamps.values() if stamp), 0) // 10**9
        return f"{size:x}{modified:x}"[-8:]


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns
