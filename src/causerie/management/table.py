"""Sums of usage as CSV, made while they are read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from causerie.accounts.time_buckets import UsageBucket
from causerie.accounts.usage import UsageQuery, UsageSum
from causerie.management.views import amount
from causerie.web.exports import csv_lines, csv_text

CONTENT_TYPE = "text/csv; charset=utf-8; header=present"
_COUNTED = (
    *("requests", "refused", "failed", "aborted"),
    *("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens"),
    *("cost", "first_token_seconds", "duration_seconds"),
)


async def table(
    question: UsageQuery, buckets: AsyncGenerator[UsageBucket]
) -> AsyncGenerator[bytes]:
    """Yield the head with the lines of the first bucket, then those of the others."""
    text = csv_lines([["start", *question.by, *_COUNTED]])
    async with aclosing(buckets):
        async for _, sums in buckets:
            if sums:
                text += await asyncio.to_thread(_table, sums, question)
            if text:
                yield text
                text = b""


def _table(sums: Sequence[UsageSum], question: UsageQuery) -> bytes:
    return csv_lines(_line(each, question) for each in sums)


def _line(sum: UsageSum, question: UsageQuery) -> list[str]:
    start = "" if sum.start is None else f"{sum.start:%Y-%m-%dT%H:%M:%SZ}"
    first = "" if sum.first_token_seconds is None else f"{sum.first_token_seconds:.6f}"
    counts = (
        *(sum.requests, sum.refused, sum.failed, sum.aborted),
        *(sum.prompt, sum.cached, sum.completion, sum.reasoning),
    )
    return [
        start,
        *(csv_text(sum.group[by]) for by in question.by),
        *map(str, counts),
        amount(sum.cost),
        first,
        f"{sum.duration_seconds:.6f}",
    ]
