"""Format of amounts of money."""

from __future__ import annotations

from decimal import Decimal

from casekit import each_of
from hypothesis import given
from hypothesis import strategies as st

from causerie.hosted.accounts.bounds import Budget, Unit
from causerie.protocol.money import exact, rounded

AMOUNTS = st.decimals(0, 9_000_000_000, places=9)


@each_of(
    ("amount", "shown", "short"),
    [
        ("0", "$0.00", "$0.00"),
        ("1E-5", "$0.00001", "$0.00001"),
        ("0.000000001", "$0.000000001", "$0.000000001"),
        ("0.000123456", "$0.000123456", "$0.000123"),
        ("0.5", "$0.50", "$0.50"),
        ("0.12345", "$0.12345", "$0.123"),
        ("0.99999", "$0.99999", "$1.00"),
        ("0.0631125", "$0.0631125", "$0.0631"),
        ("0.0000412", "$0.0000412", "$0.0000412"),
        ("1.63625", "$1.63625", "$1.64"),
        ("5", "$5.00", "$5.00"),
        ("1234.5", "$1,234.50", "$1,234.50"),
        ("-2.5", "-$2.50", "-$2.50"),
        ("1E+3", "$1,000.00", "$1,000.00"),
    ],
)
def test_amounts_are_readable(amount: str, shown: str, short: str) -> None:
    assert (exact(Decimal(amount)), rounded(Decimal(amount))) == (shown, short)


@given(AMOUNTS)
def test_no_amount_is_a_power_of_ten_or_nothing(amount: Decimal) -> None:
    for text in (exact(amount), rounded(amount)):
        assert "E" not in text.upper()
        assert Decimal(text.replace("$", "").replace(",", "")) > 0 or not amount
    assert Decimal(exact(amount).replace("$", "").replace(",", "")) == amount
    short = Decimal(rounded(amount).replace("$", "").replace(",", ""))
    assert abs(short - amount) <= max(amount * Decimal("0.005"), Decimal("0.0000000005"))


def test_a_budget_says_how_much_for_how_long() -> None:
    assert Budget(Decimal("1E-5")).words() == "$0.00001 a month"
    assert Budget(Decimal("10")).words() == "$10.00 a month"
    assert Budget(Decimal(250_000), unit=Unit.TOKENS).words() == "250,000 tokens a month"
