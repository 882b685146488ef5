"""Sums of usage as CSV (RFC 4180), made while they are read.

If a name begins like a formula an apostrophe stands before it, so that a program for tables shows
it and does not run it.
"""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing

from causerie.accounts.time_buckets import UsageBucket
from causerie.accounts.usage import UsageQuery, UsageSum
from causerie.management.views import amount

CONTENT_TYPE = "text/csv; charset=utf-8; header=present"
_COUNTED = (
    *("requests", "refused", "failed", "aborted"),
    *("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens"),
    *("cost", "first_token_seconds", "duration_seconds"),
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


async def table(
    question: UsageQuery, first: Sequence[UsageSum], rest: AsyncGenerator[UsageBucket]
) -> AsyncGenerator[bytes]:
    """The head, then a line for each sum; closes ``rest`` at its end."""
    yield _lines([["start", *question.by, *_COUNTED]])
    async with aclosing(rest):
        if first:
            yield await asyncio.to_thread(_table, first, question)
        async for _, sums in rest:
            if sums:
                yield await asyncio.to_thread(_table, sums, question)


def _table(sums: Sequence[UsageSum], question: UsageQuery) -> bytes:
    return _lines(_line(each, question) for each in sums)


def _line(sum: UsageSum, question: UsageQuery) -> list[str]:
    start = "" if sum.start is None else f"{sum.start:%Y-%m-%dT%H:%M:%SZ}"
    first = "" if sum.first_token_seconds is None else f"{sum.first_token_seconds:.6f}"
    counts = (
        *(sum.requests, sum.refused, sum.failed, sum.aborted),
        *(sum.prompt, sum.cached, sum.completion, sum.reasoning),
    )
    return [
        start,
        *(_harmless(sum.group[by]) for by in question.by),
        *map(str, counts),
        amount(sum.cost),
        first,
        f"{sum.duration_seconds:.6f}",
    ]


def _harmless(name: str) -> str:
    return f"'{name}" if name.startswith(_FORMULA) else name


def _lines(rows: Iterable[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode("utf-8", "replace")
