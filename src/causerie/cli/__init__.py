"""The command line: one file a command, one sentence on each error, documented exit codes."""

from __future__ import annotations

from causerie.cli.root import main

__all__ = ["main"]
