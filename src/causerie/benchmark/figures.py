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
    """Of one run of ``seconds`` with ``streams`` replies at a time.

    ``replies`` began in it and came to their end, ``failed`` did not, by what went wrong. Rates
    are a second, of what came within the run; ``prompt`` and ``completion`` are the median
    tokens of a reply; ``first_token`` and ``each_token`` are ``None`` where nothing was measured.
    ``busy`` is the share of one core that asking took.
    """

    streams: int
    seconds: float
    replies: int
    failed: Mapping[str, int]
    replies_a_second: float
    tokens_a_second: float
    prompt: int
    completion: int
    first_token: Spread | None
    each_token: Spread | None
    busy: float


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
