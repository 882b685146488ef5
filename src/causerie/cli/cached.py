"""``causerie list``: the weights in the cache, or the short names that can be fetched."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import msgspec
import typer

from causerie.cli.in_force import settings_in_force
from causerie.cli.names import library
from causerie.cli.options import Config, Set
from causerie.cli.tables import print_table
from causerie.composition.app import cached_weights
from causerie.engines.weights import CachedWeights
from causerie.engines.weights.errors import NotGguf
from causerie.engines.weights.gguf import read_header
from causerie.engines.weights.library import Library, LibraryModel
from causerie.engines.weights.quantization import of_file_name, of_file_type

_EMPTY = (
    "Nothing is in the cache. `causerie pull NAME` fetches a model of `causerie list --library`."
)
_TITLES = ("NAME", "SIZE", "QUANT", "USED")
_LIBRARY_TITLES = ("NAME", "SIZE", "CONTEXT", "LICENSE", "WEIGHTS")
_AGES = ((86_400, "day"), (3_600, "hour"), (60, "minute"))  # the longest first


class CachedModel(msgspec.Struct, frozen=True):
    """One line of the list. ``name`` is what other commands take."""

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
    if as_json:
        typer.echo(msgspec.json.encode(found))
    else:
        print_table(titles, rows, right={"SIZE", "CONTEXT"})


def size_text(count: int) -> str:
    """Return a number of bytes as people read it."""
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def _cached(known: Library, config: Config, pairs: Set) -> list[CachedModel]:
    found = cached_weights(settings_in_force(config, pairs).settings)
    return [
        CachedModel(
            known.name(one.ref), one.ref, one.size, _quantization(one), one.used_at, str(one.path)
        )
        for one in found
    ]


def _quantization(weights: CachedWeights) -> str | None:
    """By the file's name where that says it: reading a header takes a while."""
    if weights.path.is_dir():
        return None
    try:
        return of_file_name(weights.path.stem) or of_file_type(read_header(weights.path).file_type)
    except NotGguf:
        return None


def _row(model: CachedModel) -> Sequence[str]:
    size = size_text(model.bytes)
    return model.name, size, model.quantization or "-", _age(model.used_at)


def _library_row(model: LibraryModel) -> Sequence[str]:
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
