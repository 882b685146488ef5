"""Long lists of the console, a page each, narrowed down by a text and sorted by a column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

from causerie.catalog.search import ROWS, rows_of
from causerie.console.fields import FormFields
from causerie.protocol.numbers import whole_number

PAGE = ROWS[0]
_LONGEST = 100
_MANY = 8  # items; fewer are found by looking
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ListPage(Generic[T]):
    """One page of a list."""

    items: Sequence[T]
    number: int  # of this page, from 1
    found: int  # items that have the text
    total: int
    find: str
    sort: str = ""
    """A column; with ``-`` before it from the largest down."""
    kept: Mapping[str, str] = field(default_factory=dict)
    """Other fields of the page's address."""
    rows: int = PAGE
    choice: Sequence[int] = ROWS

    @property
    def pages(self) -> int:
        return max(-(-self.found // self.rows), 1)

    @property
    def searchable(self) -> bool:
        """Return whether the list is too long to be taken in at a glance."""
        return self.total > _MANY

    def address(self, number: int) -> str:
        return self._query(page=number, sort=self.sort)

    def with_rows(self, rows: int) -> str:
        """Return the query of the list with so many rows on a page."""
        return self._query(sort=self.sort, rows=rows if rows != PAGE else "")

    def order(self, column: str) -> str:
        """Return how the list is sorted by a column, in the word of ``aria-sort``."""
        if self.sort.removeprefix("-") != column:
            return ""
        return "descending" if self.sort.startswith("-") else "ascending"

    def sorted_by(self, column: str, *, down: bool = False) -> str:
        """Return the query of the list sorted by a column, the other way round if it is already."""
        order = self.order(column)
        falling = order == "ascending" if order else down
        return self._query(sort=f"-{column}" if falling else column)

    def _query(self, **fields: str | int) -> str:
        rows = self.rows if self.rows != PAGE else ""
        asked = {**self.kept, "find": self.find, "rows": rows, **fields}
        return "?" + urlencode({name: value for name, value in asked.items() if value})


def page_of(
    items: Sequence[T],
    query: FormFields,
    texts: Callable[[T], Iterable[str]],
    columns: Mapping[str, Callable[[T], Any]] = MappingProxyType({}),
    kept: Mapping[str, str] = MappingProxyType({}),
) -> ListPage[T]:
    """Return the page that a query asks for; ``texts`` are what ``find`` is looked for in.

    ``columns`` give what ``sort`` may name; an item without a value (``None``) is last.
    ``kept`` are other fields of the address, which its links keep.
    A page that is not there is the last one: what was on it may have been deleted meanwhile.
    """
    find = query.get("find")[:_LONGEST]
    words = find.casefold().split()
    found = items
    if words:
        found = [each for each in items if _has(" ".join(texts(each)).casefold(), words)]
    sort = query.get("sort")
    if column := columns.get(sort.removeprefix("-")):
        found = _sorted(found, column, down=sort.startswith("-"))
    else:
        sort = ""
    rows = rows_of(query.get("rows"))
    number = min(max(whole_number(query.get("page")) or 1, 1), max(-(-len(found) // rows), 1))
    shown = found[(number - 1) * rows : number * rows]
    return ListPage(shown, number, len(found), len(items), find, sort, kept, rows)


def _sorted(items: Sequence[T], column: Callable[[T], Any], *, down: bool) -> Sequence[T]:
    """Return the items by a column, equal ones in their order, those without a value last."""
    known = [each for each in items if column(each) is not None]
    known.sort(key=column, reverse=down)
    return [*known, *(each for each in items if column(each) is None)]


def _has(text: str, words: Iterable[str]) -> bool:
    return all(word in text for word in words)
