"""Amounts of money: whole billionths where they are counted, decimals where people see them."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal

BILLION = 1_000_000_000
_LEAST = Decimal("0.000000001")  # amounts are kept to a billionth


def billionths(amount: Decimal) -> int:
    """Return an amount in billionths, rounded half to even."""
    return int((amount * BILLION).to_integral_value(ROUND_HALF_EVEN))


def amount_of(count: int) -> Decimal:
    """Return the amount of so many billionths."""
    return Decimal(count) / BILLION


def exact(amount: Decimal) -> str:
    """Return the amount as text with all digits, two decimals at least: ``$0.00001``."""
    whole, _, rest = f"{abs(amount):,f}".partition(".")
    return f"{'-' if amount < 0 else ''}${whole}.{rest.rstrip('0').ljust(2, '0')}"


def rounded(amount: Decimal | float) -> str:
    """Return the amount as text, to three significant digits below $1, else to a cent."""
    value = Decimal(amount)
    if not value:
        return "$0.00"
    digits = Decimal(1).scaleb(min(max(value.adjusted() - 2, -9), -2))
    short = value.quantize(digits)
    return exact(short) if short else f"<{exact(_LEAST)}"
