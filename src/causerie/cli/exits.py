"""Exit codes of commands, and one sentence on stderr for each failure.

0    done
1    failed: a provider refused, the service broke
2    the command line itself is wrong
3    the configuration is wrong
4    network or weights
130  interrupted (Ctrl-C)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import typer


class ExitCode(IntEnum):
    """Exit code that the shell receives."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    CONFIGURATION = 3
    NETWORK = 4
    INTERRUPTED = 130


class CommandFailed(Exception):
    """A command cannot go on; the text is one sentence for a person."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILURE) -> None:
        super().__init__(message)
        self.code = code


@contextmanager
def reporting() -> Iterator[None]:
    """Print failures that a person can do something about, and exit with their code."""
    try:
        yield
    except CommandFailed as error:
        raise _exit(str(error), error.code) from error
    except KeyboardInterrupt as error:
        raise typer.Exit(ExitCode.INTERRUPTED) from error
    except Exception as error:
        if (code := _exit_code(error)) is None:
            raise
        raise _exit(str(error), code) from error


def confirm(question: str) -> None:
    """Ask a person; raise :class:`CommandFailed` unless the answer is yes."""
    try:
        typer.confirm(question, abort=True)
    except typer.Abort as error:
        raise CommandFailed("nothing was done; --yes goes on without a question") from error


def _exit_code(error: Exception) -> ExitCode | None:
    from causerie.composition.startup import CannotStart
    from causerie.engines.weights import errors as weights
    from causerie.errors import ServiceError
    from causerie.settings import SettingsError

    if isinstance(error, (SettingsError, weights.BadLibrary)):
        return ExitCode.CONFIGURATION
    if isinstance(error, weights.BadReference):
        return ExitCode.USAGE
    if isinstance(error, weights.WeightsError):
        return ExitCode.NETWORK
    return ExitCode.FAILURE if isinstance(error, (ServiceError, CannotStart)) else None


def _exit(message: str, code: ExitCode) -> typer.Exit:
    typer.echo(f"causerie: {message}", err=True)
    return typer.Exit(code)
