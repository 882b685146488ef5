"""The tables of ``docs/internals/how-far-it-goes.md``: rates from measured costs.

Nothing is measured here. Each cost was measured by the benchmark that is named; change it where a
newer figure is better, run this, and put the tables into the page (a test compares them).

    python bench/how_far.py
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_SECOND = 1e6  # microseconds
_TOKENS_A_SECOND = 50
_TOKENS = 500  # of a stream


@dataclass(frozen=True, slots=True)
class Costs:
    """Processor time in microseconds, of one core of the slow machine where it was measured."""

    plain: float = 180.0
    """A plain request at a door without keys (``bench/accounts.py``)."""
    accounts: float = 350.0
    """The same with keys of accounts, limits, budgets and the ledger in SQLite."""
    postgres: float = 315.0
    """The same with PostgreSQL, in the service alone."""
    database: float = 40.0
    """A record in PostgreSQL, in its own processes."""
    token: float = 39.1
    """A token of a stream that arrives alone (``bench/gateway.py``)."""
    shared: float = 82.0
    """Limits of two scopes and a budget, of 1,000 keys in random order, in the Valkey server that
    eight replicas ask (``bench/shared.py``)."""


@dataclass(frozen=True, slots=True)
class Place:
    """Machines, and the cores of each that answer requests."""

    machines: int
    cores: int

    @property
    def all(self) -> int:
        return self.machines * self.cores

    def __str__(self) -> str:
        cores = "1 core" if self.cores == 1 else f"{self.cores} cores"
        return cores if self.machines == 1 else f"{self.machines} machines of {cores}"


PLACES = (Place(1, 1), Place(1, 4), Place(1, 16), Place(3, 16), Place(10, 16))


def bare(costs: Costs) -> Iterator[str]:
    """Yield the table of a gateway without accounts on one machine."""
    yield "| cores | plain requests per second | streams | first limit |"
    yield "|---|---|---|---|"
    for place in PLACES[:3]:
        plain = _round(place.all * _SECOND / costs.plain)
        yield f"| {place.cores} | {plain} | {_round(_streams(costs, place.all))} | the cores |"


def with_accounts(costs: Costs) -> Iterator[str]:
    """Yield the table of a gateway with accounts, of limits and budgets in Valkey."""
    yield "| | plain requests per second | streams | first limit of plain requests |"
    yield "|---|---|---|---|"
    for place in PLACES:
        request = costs.accounts if place.all == 1 else costs.postgres
        limits = {"the cores": place.all * _SECOND / request}
        if place.all > 1:
            limits["the core of Valkey"] = _SECOND / costs.shared
            limits["a core of PostgreSQL"] = _SECOND / costs.database
        first = min(limits, key=limits.__getitem__)
        # A stream asks Valkey and the database as often as a plain request.
        streams = min(_streams(costs, place.all), *_started(list(limits.values())))
        yield f"| {place} | {_round(limits[first])} | {_round(streams)} | {first} |"


def _streams(costs: Costs, cores: int) -> float:
    return cores * _SECOND / (_TOKENS_A_SECOND * costs.token)


def _started(rates: Sequence[float]) -> Sequence[float]:
    seconds = _TOKENS / _TOKENS_A_SECOND
    return [rate * seconds for rate in rates]


def _round(rate: float) -> str:
    digits = 10 ** max(len(str(int(rate))) - 2, 0)
    return f"{int(rate / digits + 0.5) * digits:,}"


def main() -> None:
    """Print both tables."""
    for table in (bare, with_accounts):
        print(*table(Costs()), "", sep="\n")


if __name__ == "__main__":
    main()
