"""``causerie models``: what is configured, and which weights are in the cache."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from causerie.cli.cached import size_text
from causerie.cli.database_entries import Database, with_database
from causerie.cli.exits import reporting
from causerie.cli.options import Config, Set, settings_in_force
from causerie.cli.terminal import WHOLE_LINES
from causerie.composition.app import cached_weights, weights_here
from causerie.settings import Settings


@dataclass(frozen=True, slots=True)
class ModelLine:
    """One line of the list. ``bytes`` is ``None`` where the weights are not here."""

    id: str | None
    ref: str | None
    engine: str | None
    bytes: int | None
    path: str | None


def models(
    config: Config = None,
    pairs: Set = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False,
    database: Database = False,
) -> None:
    """List the configured models, and the weights in the cache.

    **Examples**

    `causerie models`

    `causerie models --json`
    """
    with reporting():
        found = with_database(config, pairs)[0] if database else settings_in_force(config, pairs)
        rows = asyncio.run(listed(found.settings))
        if as_json:
            typer.echo(msgspec.json.encode(rows))
        else:
            _show(rows, Console(highlight=False, soft_wrap=True, width=WHOLE_LINES))


async def listed(settings: Settings) -> list[ModelLine]:
    """Configured models first, then what else is in the cache."""
    rows = []
    for model in settings.models:
        here = await weights_here(settings, model) if model.ref else None
        size, path = (here.size, str(here.path)) if here else (None, None)
        rows.append(ModelLine(model.id, model.ref, model.engine, size, path))
    known = {row.path for row in rows}
    for weights in await asyncio.to_thread(cached_weights, settings):
        if str(weights.path) not in known:
            rows.append(ModelLine(None, weights.ref, None, weights.size, str(weights.path)))
    return rows


def _show(rows: Sequence[ModelLine], console: Console) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("MODEL", "WEIGHTS", "ENGINE", "SIZE"):
        table.add_column(title, no_wrap=True, justify="right" if title == "SIZE" else "left")
    for row in rows:
        table.add_row(row.id or "-", row.ref or "-", row.engine or "-", _size(row))
    console.print(table, markup=False)


def _size(row: ModelLine) -> str:
    if row.bytes is None:
        return "not fetched" if row.ref else "-"
    return size_text(row.bytes)
