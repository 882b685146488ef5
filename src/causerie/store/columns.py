"""Column types that mean the same on SQLite and PostgreSQL.

Moments and money are whole numbers in the database: no driver, locale or
column type rounds them, and they compare and add up exactly everywhere.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

import msgspec
from sqlalchemy import BigInteger, Dialect, Text
from sqlalchemy.types import TypeDecorator

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_BILLION = Decimal(1_000_000_000)


def microseconds(moment: datetime) -> int:
    """Microseconds since 1970 of an aware moment. Raises :class:`ValueError` for a naive one."""
    if moment.tzinfo is None:
        raise ValueError("a moment needs a time zone; use datetime.now(UTC)")
    return (moment - _EPOCH) // _MICROSECOND


def moment_of(stored: int) -> datetime:
    """The moment, in UTC, of microseconds since 1970."""
    return _EPOCH + timedelta(microseconds=stored)


def billionths(amount: Decimal) -> int:
    """Money as whole billionths of its unit, rounded half to even."""
    return int((amount * _BILLION).to_integral_value(ROUND_HALF_EVEN))


def amount_of(stored: int) -> Decimal:
    """The amount that so many billionths are."""
    return Decimal(stored) / _BILLION


class Moment(TypeDecorator[datetime]):
    """An aware :class:`datetime`, kept as microseconds since 1970."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        return None if value is None else microseconds(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        return None if value is None else moment_of(value)


class Money(TypeDecorator[Decimal]):
    """A :class:`~decimal.Decimal`, kept as billionths; sums of it are money too."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> int | None:
        return None if value is None else billionths(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> Decimal | None:
        """From the database; PostgreSQL gives sums as decimals."""
        return None if value is None else amount_of(int(value))


class JsonText(TypeDecorator[Any]):
    """A value of this ``kind``, kept as JSON: a set as a sorted list.

    ``missing`` is kept where there is none; without it ``NULL``, which is not the empty set.
    """

    impl = Text
    cache_ok = True

    def __init__(self, kind: Any, missing: str | None = None) -> None:
        super().__init__()
        self.kind = kind
        self.missing = missing

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        if value is None:
            return self.missing
        plain = sorted(value) if isinstance(value, set | frozenset) else value
        return msgspec.json.encode(plain).decode()

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        stored = value or self.missing
        return None if stored is None else msgspec.json.decode(stored, type=self.kind)


NAME_SET = JsonText(frozenset[str])
LINES = JsonText(tuple[str, ...], "[]")
JSON_OBJECT = JsonText(dict[str, Any], "{}")
