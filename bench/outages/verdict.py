"""What clients got and a provider sent, against the ledger: each promise that is broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from causerie.metering.ledger import UsageRecord
from outages.clients import Seen

_SHOWN = ("", "rated", "paid")
WORD = 1_000_000_000  # the price of one, in billionths; prompts cost nothing


@dataclass(frozen=True, slots=True)
class Bounds:
    """Highest numbers that are promised."""

    at_once: Mapping[str, int]
    """Requests at the provider at the same time, by the kind of clients (``""``: all)."""
    requests: Mapping[str, int] = field(default_factory=dict)
    """Requests at the provider within a minute, by kind."""
    words: Mapping[str, int] = field(default_factory=dict)
    """Words that the budget of a kind pays."""
    failures: int | None = None
    """Requests that may fail for any other reason; ``None``: not bounded."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Counts of the provider, and sums of money: of the database, and of the shared server."""

    asked: Mapping[str, int]
    sent: Mapping[str, int]
    most: Mapping[str, int]
    in_a_minute: Mapping[str, int]
    database: int
    shared: int
    cost: int
    """Sum of all rows of the project."""


@dataclass
class Verdict:
    """The row of one fault in the table; ``broken`` has to be empty."""

    ok: int
    full: int
    failed: int
    rows: int
    missing: int
    twice: int
    words: tuple[int, int, int]
    """Of replies that a client has whole: as received, as in the ledger, as sent."""
    highest: Sequence[tuple[int, int]]
    """Requests at once, requests within a minute, and words that a budget paid; each with its
    bound."""
    broken: list[str] = field(default_factory=list)


def judged(
    seen: Sequence[Seen], rows: Sequence[UsageRecord], counted: Counted, bounds: Bounds
) -> Verdict:
    """Compare; ``rows`` are those of the requests in ``seen``, and maybe others."""
    kept = Counter(row.request_id for row in rows)
    whole = {one.name: one for one in seen if one.whole}
    by_name = {row.request_id: row for row in rows}
    missing = [name for name in counted.asked if name not in kept]
    missing += [name for name in whole if getattr(by_name.get(name), "status", 0) != 200]
    twice = [name for name, count in kept.items() if count > 1]
    failed = [one for one in seen if not (one.whole or one.full)]
    measured = _measured(rows, counted, bounds)
    verdict = Verdict(
        ok=len(whole),
        full=sum(one.full for one in seen),
        failed=len(failed),
        rows=len(rows),
        missing=len(missing),
        twice=len(twice),
        words=(
            sum(one.words for one in whole.values()),
            sum(by_name[name].completion for name in whole if name in by_name),
            sum(counted.sent.get(name, 0) for name in whole),
        ),
        highest=[(found, bound) for _, kind, found, bound in measured if kind in _SHOWN],
    )
    verdict.broken += [f"missing in the ledger: {name}" for name in missing]
    verdict.broken += [f"twice in the ledger: {name}" for name in twice]
    verdict.broken += _tokens(whole, rows, counted)
    verdict.broken += _money(rows, counted)
    verdict.broken += [
        f"{what} of {kind or 'all'}: {found}, allowed are {bound}"
        for what, kind, found, bound in measured
        if found > bound
    ]
    if bounds.failures is not None and len(failed) > bounds.failures:
        verdict.broken += [f"{one.name} failed: {one.status} {one.said[:300]}" for one in failed]
    return verdict


def _tokens(
    whole: Mapping[str, Seen], rows: Sequence[UsageRecord], counted: Counted
) -> Sequence[str]:
    """A whole reply has as many tokens everywhere; any other row has no more than were sent."""
    broken = []
    for row in rows:
        sent = counted.sent.get(row.request_id, 0)
        if (one := whole.get(row.request_id)) is not None:
            if not one.words == row.completion == sent:
                broken.append(
                    f"{one.name}: {one.words} received, {row.completion} in the ledger, {sent} sent"
                )
        elif row.completion > sent:
            broken.append(f"{row.request_id}: {row.completion} in the ledger, {sent} sent")
    return broken


def _money(rows: Sequence[UsageRecord], counted: Counted) -> Sequence[str]:
    """A row costs what its tokens cost, if they are charged; sums are those of the rows."""
    broken = [
        f"{row.request_id} costs {row.cost}, with {row.completion} tokens and status {row.status}"
        for row in rows
        if row.cost != (row.completion * WORD if row.charged else 0)
    ]
    for place, amount in (("database", counted.database), ("shared server", counted.shared)):
        if amount != counted.cost:
            broken.append(f"spent in the {place}: {amount}, in the ledger: {counted.cost}")
    return broken


def _measured(
    rows: Sequence[UsageRecord], counted: Counted, bounds: Bounds
) -> Sequence[tuple[str, str, int, int]]:
    """Return each bound: what it is of, of which kind, the highest number, and the bound."""
    words = Counter[str]()
    for row in rows:
        words[row.request_id.split("-")[1]] += row.cost // WORD
    found = (
        ("at once", counted.most, bounds.at_once),
        ("requests within a minute", counted.in_a_minute, bounds.requests),
        ("words paid", words, bounds.words),
    )
    return [
        (what, kind, counts.get(kind, 0), bound)
        for what, counts, of_kinds in found
        for kind, bound in of_kinds.items()
    ]
