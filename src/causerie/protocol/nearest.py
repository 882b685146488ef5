"""Find the known name that is nearest to an unknown one, in bounded work."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

AROUND = 8  # names that are compared on each side in each of the two orders
ALIKE = 0.65  # the distance up to which a word is taken for one of a few known ones


class NameIndex:
    """Known names, sorted by their beginnings and by their endings, to find similar names."""

    def __init__(self, names: Iterable[str]) -> None:
        folded = [(_fold_case_and_cut(name), name) for name in names]
        self._names_sorted_by_start = sorted(folded)
        self._names_sorted_by_end = sorted((text[::-1], name) for text, name in folded)

    def around(self, text: str) -> Iterator[str]:
        """Yield the names that begin or end most like ``text``, at most ``4 * AROUND``."""
        wanted = _fold_case_and_cut(text)
        yield from _find_neighbours(self._names_sorted_by_start, wanted)
        yield from _find_neighbours(self._names_sorted_by_end, wanted[::-1])


def nearest(text: str, names: Iterable[str], most: float) -> str | None:
    """Return the name least distant from ``text``, ``None`` if its distance exceeds ``most``.

    The distance is the share of the longer name between common beginning and end. ``maker/NAME``
    is the same as ``NAME``. Of two names that are as near, the one that begins more alike is meant.
    """
    wanted = _fold_case_and_cut(text)

    def order(name: str) -> tuple[float, int, str]:
        known = _fold_case_and_cut(name)
        return _compute_unlike_share(wanted, known), -_common_prefix_length(wanted, known), name

    least, _, name = min(map(order, names), default=(1.0, 0, ""))
    return name if least <= most else None


def _compute_unlike_share(name: str, known_name: str) -> float:
    if name == known_name.rpartition("/")[2]:
        return 0.0
    longest = max(len(name), len(known_name))
    begin = _common_prefix_length(name, known_name)
    end = _common_prefix_length(name[begin:][::-1], known_name[begin:][::-1])
    return (longest - begin - end) / max(longest, 1)


def _common_prefix_length(name: str, other: str) -> int:
    for at, (left, right) in enumerate(zip(name, other, strict=False)):
        if left != right:
            return at
    return min(len(name), len(other))


def _find_neighbours(sorted_names: Sequence[tuple[str, str]], folded_name: str) -> Iterator[str]:
    at = bisect_left(sorted_names, (folded_name, ""))
    return (name for _, name in sorted_names[max(at - AROUND, 0) : at + AROUND])


def _fold_case_and_cut(name: str) -> str:
    return name[:200].casefold()
