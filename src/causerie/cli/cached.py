"""``causerie list``: the weights in the cache, or the short names that can be fetched."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from causerie.cli.in_force import settings_in_force
from causerie.cli.names import library
from causerie.cli.options import Config, Set
from causerie.cli.terminal import WHOLE_LINES
from causerie.composition.app import cached_weights
from causerie.engines.weights import CachedWeights
from causerie.engines.weights.errors import NotGguf
from causerie.engines.weights.gguf import read_header
from causerie.engines.weights.library import Library, LibraryModel
from causerie.engines.weights.quantization import of_file_name, of_file_type

_EMPTY = (
    "Nothing is in the cache. `causerie pull NAME` fetches a model of `causerie list --library`."
)
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
        _print(known.models, _library_table(known.models), as_json=as_json)
        return
    rows = _cached(known, config, pairs)
    _print(rows, _cached_table(rows), as_json=as_json)
    if not rows and not as_json:
        typer.echo(_EMPTY, err=True)


def _print(rows: Iterable[LibraryModel | CachedModel], table: Table, *, as_json: bool) -> None:
    if as_json:
        typer.echo(msgspec.json.encode(list(rows)))
    else:
        Console(highlight=False, soft_wrap=True, width=WHOLE_LINES).print(table, markup=False)


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


def _cached_table(rows: Iterable[CachedModel]) -> Table:
    table = _table("NAME", "SIZE", "QUANT", "USED")
    for row in rows:
        quantization = row.quantization or "-"
        table.add_row(row.name, size_text(row.bytes), quantization, _age(row.used_at))
    return table


def _library_table(rows: Iterable[LibraryModel]) -> Table:
    table = _table("NAME", "SIZE", "CONTEXT", "LICENSE", "WEIGHTS")
    for row in rows:
        table.add_row(row.name, size_text(row.size), f"{row.context:,}", row.license, row.ref)
    return table


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in titles:
        right = title in {"SIZE", "CONTEXT"}
        table.add_column(title, no_wrap=True, justify="right" if right else "left")
    return table


def _age(moment: float | None) -> str:
    if moment is None:
        return "-"
    passed = datetime.now(UTC).timestamp() - moment
    for seconds, word in _AGES:
        count = int(passed // seconds)
        if count:
            return f"{count} {word}{'s' if count > 1 else ''} ago"
    return "just now"
