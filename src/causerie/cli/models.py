"""``causerie models``: what is configured, and which weights are in the cache."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from causerie.cli.cached import size_text
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


def show_models(rows: Sequence[ModelLine], console: Console) -> None:
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
