"""Fields of a form or query, and what pages read from them: the part of a list, and the period."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import zip_longest
from typing import Any, Generic, TypeVar
from urllib.parse import parse_qsl, urlencode

from msgspec import Struct

from causerie.errors import InvalidRequest
from causerie.hosted.accounts.usage import Step
from causerie.protocol.numbers import money, whole_number

_MOST = 500


class FormFields:
    """Fields of a form or a query. A missing field is empty."""

    __slots__ = ("_field_pairs",)

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self._field_pairs = tuple(pairs)

    @staticmethod
    def parse(text: str) -> FormFields:
        """Parse ``application/x-www-form-urlencoded``; raises :class:`InvalidRequest`."""
        try:
            pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST)
        except ValueError as failure:
            raise InvalidRequest(f"A form has at most {_MOST} fields.") from failure
        for name, value in pairs:
            if "\0" in name or "\0" in value:
                raise InvalidRequest("A text holds the character 0; leave it out.", param=name)
        return FormFields(pairs)

    def get(self, name: str, default: str = "") -> str:
        return next((value.strip() for key, value in self._field_pairs if key == name), default)

    def raw(self, name: str) -> str:
        """Return the first value as it was sent, spaces included: for passwords."""
        return next((value for key, value in self._field_pairs if key == name), "")

    def every(self, name: str) -> Sequence[str]:
        return [value.strip() for key, value in self._field_pairs if key == name]

    def chosen(self, name: str) -> frozenset[str] | None:
        """Return the chosen values of a field; ``None`` if all are chosen."""
        return frozenset(self.every(name)) if self.get(f"{name}_all") == "some" else None

    def given(self, names: Iterable[str]) -> dict[str, str]:
        """Return the fields of these names that are not empty."""
        return {name: value for name in names if (value := self.get(name))}

    def rows(self, prefix: str, columns: Sequence[str]) -> list[dict[str, str]]:
        """Return rows as dicts by column, read from the repeated fields ``{prefix}_{column}``."""
        values = [self.every(f"{prefix}_{name}") for name in columns]
        return [dict(zip(columns, row, strict=True)) for row in zip_longest(*values, fillvalue="")]

    def one_of(self, name: str, known: Collection[str], default: str = "") -> str:
        """Return a field's value, else the default, else the first known; refuse unknown values."""
        given = self.get(name) or default or next(iter(known))
        if given not in known:
            every = ", ".join(filter(None, known))
            raise InvalidRequest(f"`{name}` is one of {every}, not {given[:40]}.", param=name)
        return given

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._field_pairs)

    def __contains__(self, name: str) -> bool:
        return any(key == name for key, _ in self._field_pairs)

    def __bool__(self) -> bool:
        return bool(self._field_pairs)


def chosen_fields(name: str, chosen: Collection[str] | None) -> Iterator[tuple[str, str]]:
    """Yield the form fields from which :meth:`FormFields.chosen` reads ``chosen`` back."""
    if chosen is not None:
        yield f"{name}_all", "some"
        yield from ((name, each) for each in chosen)


_THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+(\.\d*)?", re.ASCII)


def typed_money(text: str, param: str, what: str = "amount", **options: Any) -> Decimal:
    """Return an amount that was typed, like ``$1,250.50``; raise :class:`InvalidRequest`."""
    try:
        return money(_remove_thousands_commas(text.removeprefix("$")), **options)
    except ValueError as failure:
        words = f"`{text[:20]}` is no {what}; one looks like 25 or 0.50."
        raise InvalidRequest(words, param=param) from failure


def typed_whole(text: str, param: str, title: str, most: int) -> int:
    """Return a whole number that was typed, like ``1,000``; raise :class:`InvalidRequest`."""
    number = whole_number(_remove_thousands_commas(text.replace(" ", "")), most)
    if number is None:
        raise InvalidRequest(f"{title}: `{text[:20]}` is no whole number.", param=param)
    return number


def _remove_thousands_commas(text: str) -> str:
    # A comma for decimals stays, so that it is refused.
    return text.replace(",", "") if _THOUSANDS.fullmatch(text) else text


_BETWEEN = re.compile(r"[\s,]+")


def listed(text: str) -> list[str]:
    """Split a text at commas, spaces and line breaks; return its non-empty parts."""
    return [part for part in _BETWEEN.split(text) if part]


ROWS = (25, 50, 100)
"""Numbers of rows on a page; the first is the usual one."""
USUAL_ROWS = ROWS[0]
_LONGEST_TEXT = 100
_MANY = 8  # items; fewer are found by looking
T = TypeVar("T")
Column = str | Callable[[Any], Any]


class ListPage(Struct, Generic[T], frozen=True):
    items: Sequence[T]
    number: int  # of this page, from 1
    found: int  # items that have the text
    total: int
    find: str
    sort: str = ""
    """A column; with ``-`` before it from the largest down."""
    kept: Mapping[str, str] = {}
    """Other fields of the page's address."""
    rows: int = USUAL_ROWS
    choice: Sequence[int] = ROWS

    @property
    def pages(self) -> int:
        return max(-(-self.found // self.rows), 1)

    @property
    def searchable(self) -> bool:
        """Return whether the list is long enough for a search field."""
        return self.total > _MANY

    def address(self, number: int) -> str:
        return self._build_query_string(page=number, sort=self.sort)

    def with_rows(self, rows: int) -> str:
        return self._build_query_string(sort=self.sort, rows=rows if rows != USUAL_ROWS else "")

    def order(self, column: str) -> str:
        if self.sort.removeprefix("-") != column:
            return ""
        return "descending" if self.sort.startswith("-") else "ascending"

    def sorted_by(self, column: str, *, down: bool = False) -> str:
        """Return the query that sorts the list by a column, in reverse if it is sorted so now."""
        order = self.order(column)
        falling = order == "ascending" if order else down
        return self._build_query_string(sort=f"-{column}" if falling else column)

    def _build_query_string(self, **fields: str | int) -> str:
        rows = self.rows if self.rows != USUAL_ROWS else ""
        asked = {**self.kept, "find": self.find, "rows": rows, **fields}
        return "?" + urlencode({name: value for name, value in asked.items() if value})


def rows_of(text: str) -> int:
    return next((rows for rows in ROWS if str(rows) == text), USUAL_ROWS)


def page_of(
    items: Sequence[T],
    query: FormFields,
    texts: Callable[[T], Iterable[str]],
    columns: Mapping[str, Column] = {},
    kept: Mapping[str, str] = {},
) -> ListPage[T]:
    """Return the page of a list that a query asks for; ``texts`` are searched for ``find``.

    ``columns`` give the sort keys, as attributes or functions; items with ``None`` or without the
    attribute are last. ``kept`` fields stay in links.
    """
    find = query.get("find")[:_LONGEST_TEXT]
    words = find.casefold().split()
    found = items
    if words:
        searched = [(each, " ".join(texts(each)).casefold()) for each in items]
        found = [each for each, text in searched if all(word in text for word in words)]
    sort = query.get("sort")
    if column := columns.get(sort.removeprefix("-")):
        found = _sort_by_column(found, column, down=sort.startswith("-"))
    else:
        sort = ""
    rows = rows_of(query.get("rows"))
    number = min(max(whole_number(query.get("page")) or 1, 1), max(-(-len(found) // rows), 1))
    shown = found[(number - 1) * rows : number * rows]
    return ListPage(shown, number, len(found), len(items), find, sort, kept, rows)


def _sort_by_column(items: Sequence[T], column: Column, *, down: bool) -> Sequence[T]:
    keyed = [
        (column(each) if callable(column) else _read_sort_key(each, column), each) for each in items
    ]
    known = [pair for pair in keyed if pair[0] is not None]
    known.sort(key=lambda pair: pair[0], reverse=down)
    return [each for _, each in (*known, *(pair for pair in keyed if pair[0] is None))]


def _read_sort_key(item: Any, attribute_path: str) -> Any:
    for name in attribute_path.split("."):
        item = getattr(item, name, None)
    return item.casefold() if isinstance(item, str) else item


HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
LONGEST_PERIOD = timedelta(days=731)
_HOURLY = timedelta(days=3)
_FIRST_YEAR, _LAST_YEAR = 1980, 2199  # with room around them for what dates and sums can hold
USUAL_PERIOD = "7d"
PERIOD_LENGTHS: Mapping[str, tuple[str, timedelta]] = {
    "24h": ("24 hours", timedelta(hours=24)),
    "7d": ("7 days", timedelta(days=7)),
    "30d": ("30 days", timedelta(days=30)),
    "90d": ("90 days", timedelta(days=90)),
}


class ReportPeriod(Struct, frozen=True):
    """From ``since`` up to ``until``; ``name`` is a length, or ``custom``."""

    name: str
    since: datetime
    until: datetime

    @property
    def step(self) -> Step:
        return Step.HOUR if self.until - self.since <= _HOURLY else Step.DAY

    @property
    def earlier(self) -> ReportPeriod:
        """Return the period of the same length that ends where this one begins."""
        return ReportPeriod("earlier", self.since - (self.until - self.since), self.since)

    @property
    def last(self) -> datetime:
        return self.until - timedelta(microseconds=1)

    def starts(self) -> Sequence[datetime]:
        length = HOUR if self.step is Step.HOUR else DAY
        count = -((self.since - self.until) // length)
        return [self.since + length * index for index in range(count)]

    def fields(self) -> dict[str, str]:
        """Return the query fields that select this period again."""
        if self.name != "custom":
            return {"range": self.name}
        return {"from": self.since.date().isoformat(), "to": self.last.date().isoformat()}


def period(query: FormFields, now: datetime) -> ReportPeriod:
    if query.get("from") or query.get("to"):
        return _parse_custom_period_or_last_7_days(query, now)
    name = query.one_of("range", PERIOD_LENGTHS, USUAL_PERIOD)
    length = PERIOD_LENGTHS[name][1]
    unit = HOUR if length <= _HOURLY else DAY
    until = _truncate_to_hour_or_day(now, unit) + unit
    return ReportPeriod(name, until - length, until)


def _parse_custom_period_or_last_7_days(query: FormFields, now: datetime) -> ReportPeriod:
    last = _parse_day(query.get("to"), "to") if query.get("to") else now.astimezone(UTC)
    last = _truncate_to_hour_or_day(last, DAY)
    first = _parse_day(query.get("from"), "from") if query.get("from") else last - timedelta(days=6)
    until = last + DAY
    if first >= until:
        raise InvalidRequest("The first day comes after the last one.", param="from")
    if until - first > LONGEST_PERIOD:
        raise InvalidRequest(f"A range has at most {LONGEST_PERIOD.days} days.", param="from")
    return ReportPeriod("custom", first, until)


def _parse_day(text: str, param: str) -> datetime:
    try:
        found = date.fromisoformat(text)
    except ValueError as failure:
        raise InvalidRequest(
            f"{text[:20]} is not a day; write it like 2026-11-21.", param=param
        ) from failure
    if not _FIRST_YEAR <= found.year <= _LAST_YEAR:
        raise InvalidRequest(
            f"A day lies between {_FIRST_YEAR} and {_LAST_YEAR}, not in {found.year}.", param=param
        )
    return datetime.combine(found, datetime.min.time(), UTC)


def _truncate_to_hour_or_day(moment: datetime, unit: timedelta) -> datetime:
    utc = moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    return utc if unit == HOUR else utc.replace(hour=0)
