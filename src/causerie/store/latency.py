"""Buckets for times: four to each doubling, so that a percentile is right to within a tenth.

The scale is open at the top and the same for everybody, which lets histograms
of different hours and processes be added.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

_TO_DOUBLE = 4


def bucket_of(microseconds: int) -> int:
    return max(math.ceil(math.log2(microseconds) * _TO_DOUBLE), 0) if microseconds > 0 else 0


def upper_bound(bucket: int) -> float:
    """The longest time of a bucket, in microseconds."""
    return math.pow(2.0, bucket / _TO_DOUBLE)


def percentile(counts: Mapping[int, int], share: float) -> float | None:
    """The time, in microseconds, that ``share`` (0 to 1) of all stayed within; no times: none.

    It lies within its bucket in proportion to the rank.
    """
    total = sum(counts.values())
    if total == 0:
        return None
    rank = share * total
    below = 0
    for bucket in sorted(counts):
        count = counts[bucket]
        if below + count >= rank:
            low = upper_bound(bucket - 1) if bucket else 0.0
            inside = (rank - below) / count if count else 0.0
            return low + (upper_bound(bucket) - low) * inside
        below += count
    return upper_bound(max(counts))
