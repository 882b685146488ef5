"""Times in buckets: a percentile is right to within a tenth."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from causerie.hosted.store.usage import bucket_of, percentile, upper_bound


@given(st.integers(0, 10**12))
def test_a_time_is_in_its_bucket(time: int) -> None:
    bucket = bucket_of(time)
    assert time <= upper_bound(bucket) * (1 + 1e-9)
    if bucket > 0:
        assert time > upper_bound(bucket - 1) * (1 - 1e-9)


@given(st.lists(st.integers(1, 10**9), min_size=1), st.sampled_from([0.5, 0.9, 0.99]))
def test_a_percentile_is_near_the_time_of_that_rank(times: list[int], share: float) -> None:
    found = percentile(Counter(map(bucket_of, times)), share)
    rank = max(-(-int(share * len(times) * 1000) // 1000), 1)
    exact = sorted(times)[min(rank, len(times)) - 1]
    assert found is not None
    assert exact / 2**0.25 - 1 <= found <= exact * 2**0.25 + 1


def test_nothing_has_no_percentile() -> None:
    assert percentile({}, 0.5) is None
