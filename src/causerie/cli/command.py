"""Options, settings, exit codes and failures that commands have in common.

Exit codes: 0 done; 1 failed: a provider refused, the service broke; 2 the command line itself
is wrong; 3 the configuration is wrong; 4 network or weights; 130 interrupted (Ctrl-C).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from causerie.engines.weights.reference import Library, Reference
    from causerie.settings.entries import Entry
    from causerie.settings.load import Loaded, Override
    from causerie.settings.tree import Settings


class ExitCode(IntEnum):
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


class WrongUsage(CommandFailed):
    """The command line itself is wrong."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ExitCode.USAGE)


@contextmanager
def reporting() -> Iterator[None]:
    """Print failures that a person can do something about, and exit with their code."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise typer.Exit(ExitCode.INTERRUPTED) from error
    except Exception as error:
        code = error.code if isinstance(error, CommandFailed) else _choose_exit_code(error)
        if code is None:
            raise
        typer.echo(f"causerie: {error}", err=True)
        raise typer.Exit(code) from error


def confirm(question: str) -> None:
    try:
        typer.confirm(question, abort=True)
    except typer.Abort as error:
        raise CommandFailed("nothing was done; --yes goes on without a question") from error


def _choose_exit_code(error: Exception) -> ExitCode | None:
    from causerie.composition.startup import CannotStart
    from causerie.engines.weights import errors as weights
    from causerie.errors import ServiceError
    from causerie.settings.problems import SettingsError

    if isinstance(error, (SettingsError, weights.BadLibrary)):
        return ExitCode.CONFIGURATION
    if isinstance(error, weights.BadReference):
        return ExitCode.USAGE
    if isinstance(error, weights.WeightsError):
        return ExitCode.NETWORK
    return ExitCode.FAILURE if isinstance(error, (ServiceError, CannotStart)) else None


# What several commands take: options, the settings that they give, and names of models.

ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # with the address that this machine asks
HERE = "http://127.0.0.1:8000/v1"  # where `causerie serve` answers
QUESTION = "Ask this and leave. Piped text goes before it, or where a word is `-`."
Config = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", help="Configuration file; otherwise ./causerie.toml where there is one."
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Set one setting, like `engines.memory_budget=6GiB`."
    ),
]
Engine = Annotated[
    Literal["llamacpp", "openvino", "vllm"] | None,
    typer.Option(
        "--engine",
        help="llamacpp loads a GGUF file, vllm a model folder, openvino a GGUF file or a folder "
        "that was converted for it. [default: what the weights need; llamacpp for a GGUF file]",
    ),
]
Plain = Annotated[bool, typer.Option("--plain", help="Show Markdown as it is written.")]
Database = Annotated[
    bool, typer.Option("--database", help="With the entries that the database of accounts holds.")
]
KeyText = Annotated[str | None, typer.Option("--key", help="The key; others may see it.")]
KeyName = Annotated[
    str | None, typer.Option("--key-env", metavar="NAME", help="Variable with the key.")
]
KeyFile = Annotated[Path | None, typer.Option("--key-file", help="File with the key.")]
DialectName = Annotated[
    str | None, typer.Option("--dialect", help="Kind of server; otherwise guessed from its models.")
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]


def context_of(text: str) -> str | int:
    if text == "auto":
        return text
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither a number of tokens nor `auto`") from None


Context = Annotated[
    str | None,
    typer.Option(
        "--context",
        parser=context_of,
        metavar="TOKENS",
        help="Tokens of prompt and output of one request; `auto` takes what fits.",
    ),
]


def local_url(host: str, port: int | str) -> str:
    """Return the URL at which this machine reaches a service that listens on ``host``."""
    host = ANY_ADDRESS.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def settings_in_force(
    config: Path | None,
    pairs: list[str] | None,
    *more: Override,
    text: str | None = None,
    entries: Sequence[Entry] = (),
) -> Loaded:
    """Return the settings from the file or its text, variables and options.

    Raises :class:`SettingsError`.
    """
    from causerie.settings.load import Override, load

    overrides = []
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals:
            raise WrongUsage(f"--set takes KEY=VALUE, like server.port=9000, and got {pair!r}")
        overrides.append(Override(key.strip(), value.strip(), "--set"))
    return load(file=config, text=text, overrides=[*overrides, *more], entries=entries)


def library() -> Library:
    """Return the short names of models, shipped and the user's own. Raises ``BadLibrary``."""
    from causerie.settings.environment import own_library, variables

    return own_library(variables())


def reference_of(settings: Settings, name: str) -> Reference:
    """Return the weights that a name of the library or an id of the cache means.

    Raises :class:`BadReference`.
    """
    from causerie.cli.cached_models import cached_ids
    from causerie.engines.weights.errors import BadReference
    from causerie.engines.weights.reference import Reference

    try:
        return library().reference(name)
    except BadReference:
        found = cached_ids(settings).get(name.strip().lower())
        if found is None:
            raise
        return Reference.parse(found)


def ref_of(reference: Reference) -> str:
    """Return the reference as settings hold it: a path is absolute.

    One that looks like a repository stays, because the failure is to name it.
    """
    from causerie.engines.weights.reference import Kind

    own = reference.kind is Kind.PATH and not reference.like_repository
    return str(reference.path.absolute()) if own else str(reference)


def same_weights(ref: str | None, wanted: Reference) -> bool:
    """Return whether ``ref`` of some settings means the same weights as ``wanted``."""
    from causerie.engines.weights.reference import Reference

    if ref is None:
        return False
    return ref_of(Reference.parse(ref).settled) == ref_of(wanted.settled)


def print_json(value: object) -> None:
    import msgspec

    typer.echo(msgspec.json.encode(value))


def print_found(
    found: object,
    titles: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    json: bool,
    right: Collection[str] = (),
) -> None:
    """Print what was found, as JSON or as a table; the columns in ``right`` are flush right."""
    if json:
        print_json(found)
        return
    from causerie.cli.terminal import print_table

    print_table(titles, rows, right=right)


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Return the text without characters that would move the cursor or write to the clipboard."""
    return _CONTROL.sub("", text)


def size_text(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
