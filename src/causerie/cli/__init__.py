"""The command line: one file a command, one sentence on each error, documented exit codes."""

from __future__ import annotations

import errno
import os
import signal
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

# Errors of writing to a stream, which have no file's name; a connection fails otherwise.
_OF_STREAMS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EPIPE, errno.EBADF})


def main() -> None:
    """Entry point of the installed command."""
    _have_streams()
    _be_ended()
    try:
        from causerie.cli.root import app  # it takes a while: Ctrl-C may come
    except KeyboardInterrupt:
        sys.exit(130)
    try:
        app()
    except OSError as error:
        if error.filename is not None or error.errno not in _OF_STREAMS:
            raise
        sys.stdout = _nowhere()  # what could not be written would be tried again at the end
        sys.exit(f"causerie: the output cannot be written: {error.strerror}")


def _have_streams() -> None:
    """Put nothing where a stream was closed: a socket would get its number, and what is said there.

    The event loop of the service takes that for its own mistake and aborts.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    sys.stdout = sys.stdout or _nowhere()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # not every encoding knows what a model may say
    sys.stderr = sys.stderr or _nowhere()


def _be_ended() -> None:
    """End by the signal to stop in a container, too.

    The first process there gets none that it does not handle: whoever stopped a command, or a
    service that reads its secrets yet, would wait until it is killed.
    """
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")
