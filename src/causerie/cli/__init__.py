"""The command line: a file for each subject, a sentence for each error, documented exit codes."""

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
    """Run the command line: the entry point of the installed command."""
    _replace_closed_streams()
    if os.getpid() == 1:  # the first process of a container receives only signals that it handles
        signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))
    try:
        from causerie.cli.root import app  # it takes a while: Ctrl-C may come
    except KeyboardInterrupt:
        sys.exit(130)
    try:
        app()
    except OSError as error:
        if error.filename is not None or error.errno not in _OF_STREAMS:
            raise
        sys.stdout = _null_stream()  # what could not be written would be tried again at the end
        sys.exit(f"causerie: the output cannot be written: {error.strerror}")


# A socket would get the number of a closed stream, and receive what is printed. The event loop of
# the service takes that for its own mistake and aborts.
def _replace_closed_streams() -> None:
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    sys.stdout = sys.stdout or _null_stream()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # not every encoding knows what a model may say
    sys.stderr = sys.stderr or _null_stream()


def _null_stream() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")
