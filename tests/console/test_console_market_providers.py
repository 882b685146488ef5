"""Public pages of providers, and logos: images of the configuration, or initials."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from accountkit import World
from casekit import each_of
from consolekit import Place, console_of
from marketkit import Fair, market_of, small_market
from marketkit import fair as fair

from causerie.hosted.console.request_context import Site
from causerie.http.pages.branding import initials
from causerie.protocol.targets import TimeBucket
from causerie.settings.console import read_logo

SVG = b'<svg xmlns="http://www.w3.org/2000/svg"/>'


async def test_a_stranger_reads_what_a_provider_offers(fair: Place) -> None:
    stranger = fair.visitor()
    listed = (await stranger.get("/providers")).text
    for name in ("causerie", "east", "north", "south", "west"):
        assert f'href="/console/providers/{name}"' in listed
    page = (await stranger.get("/providers/north")).text
    for words in (
        "Qwen3 8B",
        "Iris Large",
        "131k",
        "$2.50",
        "310 ms",
        "99.80 %",
        "1 endpoint down",
    ):
        assert words in page
    assert 'aria-hidden="true">NO</span>' in page
    assert "Mystery" not in page
    assert (await stranger.get("/providers/nobody")).status == 404
    assert 'href="/console/providers/north"' in (await stranger.get("/catalog/qwen/qwen3-8b")).text


async def test_a_provider_has_its_policy_and_prices_against_others(fair: Place) -> None:
    view, stranger = fair.service_view, fair.visitor()
    assert isinstance(view, Fair)
    page = (await stranger.get("/providers/south")).text
    assert "Keeps prompts" not in page
    page_of_it = "https://south.example.org/privacy"
    view.policies = {
        "south": {
            "about": "Runs in the cold.",
            "retention": "30 days",
            "trains": False,
            "place": "Chile",
            "page": page_of_it,
        }
    }
    page = (await stranger.get("/providers/south")).text
    for words in ("Runs in the cold.", "30 days", "<dd>no</dd>", "Chile", f'href="{page_of_it}"'):
        assert words in page
    # Its mix costs $0.0925, and the others $0.0875 and $0.09625.
    assert re.findall(r"Than the median[^>]*>([^<]+)<", page) == ["1 % more"]
    assert re.findall(
        r"Than the median[^>]*>([^<]+)<", (await stranger.get("/providers/north")).text
    ) == ["7 % less"]
    assert "No other provider offers it" in page


async def test_rows_of_providers_are_made_once_in_ten_seconds_for_everybody(
    fair: Place,
) -> None:
    stranger, shown, read = fair.visitor(), market_of(fair), list[str]()

    class Days(dict[str, Sequence[TimeBucket]]):
        def get(self, target: str, default: Any = None) -> Any:
            read.append(target)
            return super().get(target, default)

    shown.by_day = Days(shown.by_day)
    first = (await stranger.get("/providers/north")).text
    asked = len(read)
    for path in ("/providers", "/providers/south", "/providers/north"):
        assert (await stranger.get(path)).status == 200
    assert len(read) == asked
    fair.world.later(seconds=11)
    assert (await stranger.get("/providers/north")).text == first
    assert len(read) == 2 * asked
    shown.cards = shown.cards[:1]  # a reload, which is seen at once
    assert (await stranger.get("/providers/east")).status == 404


async def test_a_logo_of_the_configuration_takes_the_place_of_initials(lite: World) -> None:
    site = Site(logos={"north": ("image/svg+xml", SVG)})
    async with console_of(lite, site, Fair(small_market(lite.now))) as place:
        stranger = place.visitor()
        page = (await stranger.get("/providers/north")).text
        address = page.partition('class="logo logo-large" src="/console')[2].partition('"')[0]
        image = await stranger.get(address)
        assert (image.status, image.text) == (200, SVG.decode())
        assert image.headers["content-type"] == "image/svg+xml"
        assert "default-src 'none'" in image.headers["content-security-policy"]
        assert (await stranger.get("/logos/south")).status == 404


@each_of(
    ("name", "expected"),
    [("qwen", "QW"), ("mistral-ai", "MA"), ("x", "X"), ("01.ai labs", "0A"), ("…", "")],
)
def test_initials_are_those_of_two_words(name: str, expected: str) -> None:
    assert initials(name) == expected


def test_a_logo_is_a_small_file_or_data(tmp_path: Path) -> None:
    file = tmp_path / "logo.svg"
    file.write_bytes(SVG)
    assert read_logo(str(file))[1] == SVG
    data = f"data:image/png;base64,{base64.b64encode(b'PNG').decode()}"
    assert read_logo(data)[0] == "image/png"
    file.write_bytes(b"x" * 70_000)
    wrong = {
        str(file): "at most 65,536",
        str(tmp_path / "none.png"): "cannot be read",
        "https://example.org/logo": "is none of .svg",
        "data:text/html;base64,AAAA": "is no `data:image",
        "data:image/png;base64,A": "base64",
    }
    for text, words in wrong.items():
        with pytest.raises(ValueError, match=words):
            read_logo(text)
