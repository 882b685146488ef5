"""Files that are made while they are sent, and CSV (RFC 4180) as their content."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from causerie.edge.exchange import Exchange

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True)
class Export:
    """A file that clients save. ``pieces`` has at least one."""

    content_type: str
    filename: str
    pieces: AsyncGenerator[bytes]

    async def send(self, exchange: Exchange, headers: Mapping[str, str]) -> None:
        """Send the file no faster than the client reads it; stop when the client leaves.

        The first piece is made before the response starts: its errors can still be reported.
        """
        disposition = {"content-disposition": f'attachment; filename="{self.filename}"'}
        async with aclosing(self.pieces):
            first = await anext(self.pieces)
            exchange.start(200, self.content_type, {**headers, **disposition})
            exchange.write(first)
            async for piece in self.pieces:
                if exchange.gone:
                    return
                exchange.write(piece)
                if exchange.blocked:
                    await exchange.drained()
        exchange.end()


def csv_lines(rows: Iterable[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode("utf-8", "replace")


def csv_text(text: str) -> str:
    """Return a cell that spreadsheets do not take for a formula: an apostrophe marks it as text."""
    return f"'{text}" if text.startswith(_FORMULA) else text
