"""Socket between the service and its child: a Unix socket that only this user can open.

It costs the kernel less than the loopback address, and no other user of the
machine can reach the engine. ``path`` is ``None`` if such sockets are not
supported, no folder can hold one, or its path would be too long. The child
then listens on a port.
"""

from __future__ import annotations

import shutil
import socket
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

_PREFIX = "causerie-engine-"
_NAME = "engine.sock"
_LONGEST_PATH = 100  # in bytes; systems take 104 or 108, with the zero at the end
_LOADING_SECONDS = 86_400.0  # at most: vLLM binds its socket first, and listens when it has loaded
_EMPTY_SECONDS = 3600.0  # and long before that there is a folder for it


class IpcSocket:
    """One place for one child; ``close`` takes it away."""

    def __init__(self) -> None:
        self.path: str | None = None
        self._folder: str | None = None
        if sys.platform == "win32":
            return
        with suppress(OSError):
            _sweep(Path(tempfile.gettempdir()))
            self._folder = tempfile.mkdtemp(prefix=_PREFIX)  # for this user only (0700)
            path = str(Path(self._folder, _NAME))
            self.path = path if len(path.encode()) <= _LONGEST_PATH else None
        if self.path is None:
            self.close()

    def close(self) -> None:
        """Remove it. May be called again."""
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _sweep(where: Path) -> None:
    """Remove the sockets of killed services, at which nobody listens.

    And the folders of those that were killed before there was one.
    """
    now = time.time()  # noqa: TID251 - the clock of files
    for folder in where.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # as of one that is not empty
            if folder.stat().st_mtime < now - _EMPTY_SECONDS:
                folder.rmdir()
    latest = now - _LOADING_SECONDS
    for path in where.glob(f"{_PREFIX}*/{_NAME}"):
        with suppress(OSError):
            if path.stat().st_mtime < latest and _is_dead(path):
                shutil.rmtree(path.parent, ignore_errors=True)


def _is_dead(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as asking:
        asking.setblocking(False)  # a full queue of one that lives is no reason to wait
        try:
            asking.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False
