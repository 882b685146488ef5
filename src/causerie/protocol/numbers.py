"""Parse amounts of money and whole numbers from outside."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

MOST_MONEY = Decimal(10) ** 15
_LONGEST = 60
_MOST_BITS = 64
_MOST_DECIMALS = 30


def money(given: str | int | float | Decimal, *, signed: bool = False) -> Decimal:
    """Parse an amount of money of bounded size and decimals, or raise ``ValueError``."""
    try:
        amount = _parse_exact_decimal(given)
    except InvalidOperation:
        raise ValueError("it is no number; an amount looks like 1.50") from None
    if not amount.is_finite() or (amount.is_signed() and amount and not signed):
        raise ValueError("an amount is a number from 0, like 1.50")
    if amount.copy_abs() > MOST_MONEY:
        raise ValueError(f"an amount is at most {MOST_MONEY:,}")
    if -int(amount.as_tuple().exponent) > _MOST_DECIMALS:
        raise ValueError(f"an amount has at most {_MOST_DECIMALS} decimals")
    return amount if amount else Decimal(0)


def whole_number(text: str, most: int = 2**31 - 1) -> int | None:
    """Parse decimal digits of a number up to ``most``, or return ``None``."""
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most))):
        return None
    number = int(text)
    return number if number <= most else None


def _parse_exact_decimal(amount: str | int | float | Decimal) -> Decimal:
    if isinstance(amount, Decimal):
        return amount
    if isinstance(amount, int) and amount.bit_length() > _MOST_BITS:
        raise ValueError(f"an amount is at most {MOST_MONEY:,}")
    text = str(amount)
    if len(text) > _LONGEST:
        raise ValueError(f"an amount has at most {_LONGEST} characters")
    return Decimal(text)
