"""Numbers as pages show them."""

from __future__ import annotations

import pytest

from causerie.console.templating import short


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (0, "0"),
        (999, "999"),
        (1_000, "1.0k"),
        (9_949, "9.9k"),
        (9_960, "10k"),
        (999_499, "999k"),
        (999_999, "1.0M"),
        (34_000_000, "34M"),
        (999_700_000_000, "1.0T"),
        (2_500_000_000_000_000, "2,500T"),
    ],
)
def test_a_number_is_short(number: int, shown: str) -> None:
    assert short(number) == shown
