"""The published prices of providers: the list that comes with this version, or a newer one.

A list is CSV. Each row has the prices of a model for a million tokens, the page that they stand
on, and the day on which they were seen; a row with a number in ``above`` is for requests with more
prompt tokens. Columns are found by their names, and others are passed over.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from functools import cache
from importlib.resources import files
from itertools import groupby
from urllib.parse import urlsplit

from msgspec import Struct

from causerie.protocol.numbers import money
from causerie.providers.dialects import KNOWN_PROVIDERS

PRICES = ("prompt", "completion", "cached", "cache_write")
COLUMNS = ("provider", "model", "above", *PRICES, "source", "date")
LARGEST = 1024 * 1024
_MOST_ROWS = 5_000
_DEAREST = 2_000_000  # as in the settings

# Ids of one model that a list has once: with a day, a place of the provider's, or a prefix.
_DATED = re.compile(r"(-\d{4}-\d{2}-\d{2}|-\d{8}|-latest|@[\w.-]+)$", re.ASCII)
_PLACED = re.compile(r"^(models/|(us|eu|apac|jp|au|ca|global)\.)")
_HOSTS = {
    urlsplit(one.base_url).hostname: one.name for one in KNOWN_PROVIDERS.values() if not one.local
}


class WrongList(ValueError):
    """Raised if a text is no valid price list; the message says where and why."""


class ListedPrice(Struct, frozen=True):
    """Prices of one model as texts, for requests of more than ``above`` prompt tokens."""

    provider: str
    model: str
    above: int
    prices: Mapping[str, str]
    source: str
    date: date


class PriceList:
    """Price rows by provider and model, sorted by ``above``, which is 0 in the first row."""

    def __init__(self, rows: Iterable[ListedPrice]) -> None:
        ordered = sorted(rows, key=lambda one: (one.provider, one.model, one.above))
        self.models: Mapping[tuple[str, str], Sequence[ListedPrice]] = {
            name: tuple(found)
            for name, found in groupby(ordered, lambda row: (row.provider, row.model))
        }

    def of(self, provider: str, model: str) -> Sequence[ListedPrice]:
        """Return the rows of a model by any of its ids; empty if there are none."""
        placed = _PLACED.sub("", model)
        names = (model, placed, _DATED.sub("", placed))
        return next((rows for name in names if (rows := self.models.get((provider, name)))), ())

    def updated(self, other: PriceList) -> PriceList:
        """Return both lists as one, with the newer rows of each model."""
        models = dict(self.models)
        for name, rows in other.models.items():
            if name not in models or rows[0].date >= models[name][0].date:
                models[name] = rows
        return PriceList(row for rows in models.values() for row in rows)


def provider_at(base_url: str) -> str:
    """Return the price list's name of the provider at a base URL; empty if there is none."""
    host = urlsplit(base_url).hostname or ""
    if host.startswith("bedrock-runtime") and host.endswith(".amazonaws.com"):
        return "bedrock"
    return "vertex" if host.endswith("aiplatform.googleapis.com") else _HOSTS.get(host, "")


@cache
def shipped_list() -> PriceList:
    """Return the list that comes with this version."""
    return parsed_list((files("causerie.providers") / "price_list.csv").read_text("utf-8"))


def parsed_list(text: str) -> PriceList:
    """Return a list that was written as CSV; raise :class:`WrongList`."""
    if len(text) > LARGEST:
        raise WrongList(f"is longer than {LARGEST} characters")
    reader = csv.DictReader(text.splitlines(), strict=True)
    try:
        missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            raise WrongList(f"line 1: no column {missing[0]}; a list has {', '.join(COLUMNS)}")
        found = PriceList(_yield_listed_prices(reader))
    except csv.Error as failure:
        raise WrongList(f"line {reader.line_num}: {failure}") from failure
    for (provider, model), rows in found.models.items():
        if [row.above for row in rows] != sorted({0, *(row.above for row in rows)}):
            raise WrongList(f"{provider} {model}: needs one row without `above`, and one for each")
    return found


def _yield_listed_prices(csv_reader: csv.DictReader[str]) -> Iterator[ListedPrice]:
    for number, row in enumerate(csv_reader):
        if number >= _MOST_ROWS:
            raise WrongList(f"has more than {_MOST_ROWS} rows")
        try:
            yield _parse_price_row({name: (row[name] or "").strip() for name in COLUMNS})
        except ValueError as failure:
            raise WrongList(f"line {csv_reader.line_num}: {failure}") from failure


def _parse_price_row(row: Mapping[str, str]) -> ListedPrice:
    for name in ("provider", "model", "prompt", "completion", "source"):
        if not row[name]:
            raise ValueError(f"{name} is empty")
    prices = {name: row[name] for name in PRICES if row[name]}
    for name, text in prices.items():
        if money(text) > _DEAREST:
            raise ValueError(f"{name} is {text}; an amount is at most {_DEAREST}")
    above = row["above"] or "0"
    if not above.isdecimal() or len(above) > 9:
        raise ValueError(f"above is {above}; it is a number of prompt tokens")
    day = date.fromisoformat(row["date"])
    return ListedPrice(row["provider"], row["model"], int(above), prices, row["source"], day)
