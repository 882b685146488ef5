"""The command line: one file a command, one sentence on each error, documented exit codes."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the installed command."""
    try:
        from causerie.cli.root import app  # noqa: PLC0415 - it takes a while: Ctrl-C may come
    except KeyboardInterrupt:
        sys.exit(130)
    app()
