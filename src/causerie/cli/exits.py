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

from causerie.composition.startup import CannotStart
from causerie.engines.weights.errors import BadLibrary, BadReference, WeightsError
from causerie.errors import ServiceError
from causerie.settings import SettingsError


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
    """Turn the failures that a person can do something about into a sentence and a code."""
    try:
        yield
    except CommandFailed as error:
        raise _ended(str(error), error.code) from error
    except (SettingsError, BadLibrary) as error:
        raise _ended(str(error), ExitCode.CONFIGURATION) from error
    except BadReference as error:
        raise _ended(str(error), ExitCode.USAGE) from error
    except WeightsError as error:
        raise _ended(str(error), ExitCode.NETWORK) from error
    except (ServiceError, CannotStart) as error:
        raise _ended(str(error), ExitCode.FAILURE) from error
    except KeyboardInterrupt as error:
        raise typer.Exit(ExitCode.INTERRUPTED) from error


def _ended(message: str, code: ExitCode) -> typer.Exit:
    typer.echo(f"causerie: {message}", err=True)
    return typer.Exit(code)
