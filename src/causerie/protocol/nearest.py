"""Find the known name that is nearest to an unknown one, in bounded work."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

AROUND = 8  # names that are compared on each side in each of the two orders
ALIKE = 0.65  # the distance up to which a word is taken for one of a few known ones


class NameIndex:
    """Known names, in the order of their beginnings and in that of their ends."""

    def __init__(self, names: Iterable[str]) -> None:
        folded = [(_case_folded(name), name) for name in names]
        self._by_beginning = sorted(folded)
        self._by_end = sorted((text[::-1], name) for text, name in folded)

    def around(self, text: str) -> Iterator[str]:
        """Yield the names that begin or end most like ``text``, at most ``4 * AROUND``."""
        wanted = _case_folded(text)
        yield from _neighbours(self._by_beginning, wanted)
        yield from _neighbours(self._by_end, wanted[::-1])


def nearest(text: str, names: Iterable[str], most: float) -> str | None:
    """Return the name with the least distance, if that is at most this share of the longer name.

    The distance is the length of what differs between common beginning and end. ``maker/NAME`` is
    the same as ``NAME``. Of two names that are as near, the one that begins more alike is meant.
    """
    wanted = _case_folded(text)

    def order(name: str) -> tuple[float, int, str]:
        known = _case_folded(name)
        return _name_distance(wanted, known), -_common_prefix(wanted, known), name

    least, _, name = min(map(order, names), default=(1.0, 0, ""))
    return name if least <= most else None


def _name_distance(one: str, other: str) -> float:
    if one == other.rpartition("/")[2]:
        return 0.0
    longest = max(len(one), len(other))
    begin = _common_prefix(one, other)
    end = _common_prefix(one[begin:][::-1], other[begin:][::-1])
    return (longest - begin - end) / max(longest, 1)


def _common_prefix(one: str, other: str) -> int:
    for at, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return at
    return min(len(one), len(other))


def _neighbours(ordered: Sequence[tuple[str, str]], text: str) -> Iterator[str]:
    at = bisect_left(ordered, (text, ""))
    return (name for _, name in ordered[max(at - AROUND, 0) : at + AROUND])


def _case_folded(text: str) -> str:
    return text[:200].casefold()
