"""Name, colour, terms and contact of whoever runs the service are on its pages."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from causerie.http.pages.branding import Branding, contrast

READABLE = 4.5
VARIABLE = re.compile(r"--([a-z-]+): #([0-9a-f]{6});")
SURFACES = {"day": "ededea", "night": "2d2d2a"}


def rgb(text: str) -> tuple[float, float, float]:
    red, green, blue = bytes.fromhex(text)
    return float(red), float(green), float(blue)


@given(st.integers(0, 0xFFFFFF))
def test_every_colour_can_be_read(number: int) -> None:
    style = Branding(accent=f"#{number:06x}").style().decode()
    day, night, chosen = (
        dict(re.findall(r"--([a-z-]+): #([0-9a-f]{6});", line)) for line in style.splitlines()
    )
    assert night == chosen
    for light, colours in (("day", day), ("night", night)):
        accent = rgb(colours["accent"])
        # Rounded to whole channels after the search: a hundredth less is the same to an eye.
        assert contrast(accent, rgb(SURFACES[light])) > READABLE - 0.05
        assert contrast(accent, rgb(colours["accent-soft"])) > READABLE - 0.05
        assert contrast(accent, rgb(colours["on-accent"])) > READABLE - 0.05


def test_a_colour_that_can_be_read_stays() -> None:
    assert b"--accent: #1a4fb4;" in Branding(accent="#1A4FB4").style().splitlines()[0]
    assert Branding().style() == b""
