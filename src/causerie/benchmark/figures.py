"""Statistics over many replies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from msgspec import Struct

from causerie.benchmark.sample import Sample


class Spread(Struct, frozen=True):
    """Of many measurements, in seconds: half were at most ``p50``, nineteen in twenty ``p95``."""

    p50: float
    p95: float
    p99: float


class Figures(Struct, frozen=True):
    """Figures of one run. Rates are a second, of replies and tokens that came within the run."""

    streams: int
    """Replies at a time."""
    seconds: float
    """Length of the run."""
    replies: int
    """Replies that began in the run and came to their end."""
    failed: Mapping[str, int]
    """Replies that failed, by reason."""
    replies_a_second: float
    tokens_a_second: float
    prompt: int
    """Median tokens of a reply."""
    completion: int
    """Median tokens of a reply."""
    first_token: Spread | None
    """``None`` if nothing was measured."""
    each_token: Spread | None
    """``None`` if nothing was measured."""
    busy: float
    """Share of one core that sending the requests took."""


def figures(
    samples: Sequence[Sample], streams: int, began: float, seconds: float, busy: float
) -> Figures:
    """Return the figures of the replies that began in the run; later output does not count."""
    end = began + seconds
    good = [one for one in samples if not one.failure]
    return Figures(
        streams=streams,
        seconds=seconds,
        replies=len(good),
        failed=dict(Counter(one.failure for one in samples if one.failure).most_common()),
        replies_a_second=sum(one.ended <= end for one in good) / seconds,
        tokens_a_second=sum(one.written_by(end) for one in good) / seconds,
        prompt=int(median([one.prompt for one in good])) if good else 0,
        completion=int(median([one.completion for one in good])) if good else 0,
        first_token=_spread(one.waited for one in good),
        each_token=_spread(one.pause for one in good),
        busy=busy,
    )


def _spread(values: Iterable[float | None]) -> Spread | None:
    """Return the spread by nearest rank."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    return Spread(*(known[-(-len(known) * share // 100) - 1] for share in (50, 95, 99)))
