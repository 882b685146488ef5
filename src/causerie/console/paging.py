"""Long lists of the console, a page each, narrowed down by a text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar
from urllib.parse import urlencode

from causerie.console.fields import FormFields

PAGE = 100
_LONGEST = 100
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ListPage(Generic[T]):
    """One page of a list."""

    items: Sequence[T]
    number: int  # of this page, from 1
    found: int  # items that have the text
    total: int
    find: str

    @property
    def pages(self) -> int:
        """Number of rows."""
        return max(-(-self.found // PAGE), 1)

    @property
    def searchable(self) -> bool:
        """Return whether the list is too long to be looked through."""
        return self.total > PAGE

    def address(self, number: int) -> str:
        """Return the query of another page."""
        return "?" + urlencode({**({"find": self.find} if self.find else {}), "page": number})


def page_of(
    items: Sequence[T], query: FormFields, texts: Callable[[T], Iterable[str]]
) -> ListPage[T]:
    """Return the page that a query asks for; ``texts`` are what ``find`` is looked for in.

    A page that is not there is the last one: what was on it may have been deleted meanwhile.
    """
    find = query.get("find")[:_LONGEST]
    words = find.casefold().split()
    found = items
    if words:
        found = [each for each in items if _has(" ".join(texts(each)).casefold(), words)]
    asked = query.get("page")
    number = int(asked) if asked.isascii() and asked.isdigit() and len(asked) < 10 else 1
    number = min(max(number, 1), max(-(-len(found) // PAGE), 1))
    shown = found[(number - 1) * PAGE : number * PAGE]
    return ListPage(shown, number, len(found), len(items), find)


def _has(text: str, words: Iterable[str]) -> bool:
    return all(word in text for word in words)
