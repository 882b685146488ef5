"""Promises of the design: contrast for every pair of colours, in both themes; no stray files."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable

import pytest

from causerie.hosted.console.words import WORDS

STATIC = files("causerie.http.pages") / "static"
TEXT = 4.5  # WCAG 2.2, 1.4.3
SHAPE = 3.0  # 1.4.11
PAIRS = [
    *[(ink, ground, TEXT) for ink in ("ink", "ink-soft", "ink-quiet")
      for ground in ("ground", "surface", "raised", "sunken", "code")],
    *[("accent", ground, TEXT) for ground in ("ground", "surface", "raised", "accent-soft")],
    *[(name, f"{name}-soft", TEXT) for name in ("good", "warn", "bad")],
    *[(name, ground, TEXT) for name in ("bad",) for ground in ("surface", "raised")],
    *[("ink", "hover", TEXT), ("ink-soft", "hover", TEXT), ("ink", "accent-soft", TEXT)],
    ("ink-soft", "accent-soft", TEXT),
    *[(f"code-{name}", "code", TEXT) for name in ("word", "text", "value", "name")],
    *[("on-accent", "accent", TEXT), ("on-accent", "accent-hover", TEXT)],
    *[("on-bad", "bad", TEXT), ("on-bad", "bad-hover", TEXT)],
    *[("line-strong", "surface", SHAPE), ("line-strong", "raised", SHAPE)],
]  # fmt: skip


def _themes() -> dict[str, dict[str, str]]:
    text = (STATIC / "10-tokens.css").read_text(encoding="utf-8")
    blocks = re.findall(r"(:root[^{]*)\{([^{}]*)\}", text)
    tokens = [dict(re.findall(r"--([\w-]+):\s*(#[0-9a-f]{6});", body)) for _, body in blocks]
    light, by_system, by_choice = tokens
    assert by_system == by_choice
    return {"light": light, "dark": light | by_choice}


def _luminance(colour: str) -> float:
    """Relative luminance, WCAG 2.2."""
    parts = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everything_can_be_read(theme: str) -> None:
    tokens = _themes()[theme]
    for ink, ground, least in PAIRS:
        high, low = sorted((_luminance(tokens[ink]), _luminance(tokens[ground])), reverse=True)
        contrast = (high + 0.05) / (low + 0.05)
        assert contrast >= least, f"{ink} on {ground}: {contrast:.2f}"


def test_scripts_of_others_are_the_released_ones_with_their_licences() -> None:
    folder = STATIC / "vendor"
    sums = dict(line.split()[::-1] for line in (folder / "SHA256SUMS").read_text().splitlines())
    kept = {each.name for each in folder.iterdir()} - {"SHA256SUMS"}
    assert kept == set(sums)
    for name, digest in sums.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, name
    packages = {name.removesuffix(".js").partition("_")[0] for name in kept if ".js" in name}
    for package in packages:
        assert len((folder / f"{package}.LICENSE").read_text(encoding="utf-8")) > 500, package


def test_the_typeface_is_licensed_and_a_subset() -> None:
    assert "SIL OPEN FONT LICENSE Version 1.1" in (STATIC / "inter.LICENSE").read_text("utf-8")
    font = (STATIC / "inter.woff2").read_bytes()
    assert font.startswith(b"wOF2")
    assert len(font) <= 30_000


def test_styles_and_scripts_fetch_nothing_from_elsewhere() -> None:
    for file in STATIC.iterdir():
        if not file.name.endswith((".css", ".js")):
            continue
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://(?!\$)|@import|innerHTML|eval\(|document\.write", text), (
            file.name
        )


def test_what_may_be_cut_off_has_all_of_it_in_its_title() -> None:
    cut = []
    for page in _pages(files("causerie.http.pages") / "templates"):
        for element in re.findall(r"<[a-z0-9]+[^>]*\bclass=\"[^\"]*\bcut\b[^>]*>", page):
            if "title=" not in element and "data-is=" not in element:  # scripts give those theirs
                cut.append(element)
    assert cut == []


def test_customers_read_no_words_of_routing() -> None:
    """Targets, dialects and breakers are words of operators; pages of all others say providers."""
    theirs = re.compile(r"\b(targets?|dialects?|half open|in force|rule [0-9])\b")
    templates, found = files("causerie.http.pages") / "templates", []
    for each in (*WORDS["requests"]["codes"].values(), *WORDS["requests"]["finishes"].values()):
        found += theirs.findall(each)
    for page in (
        *(templates / f"{name}.html" for name in ("activity", "usage", "playground", "chat")),
        *(each for name in ("catalog", "keys", "sign_in") for each in (templates / name).iterdir()),
    ):
        shown = re.sub(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}|<[^>]*>", " ", page.read_text("utf-8"))
        found += [f"{page.name}: {word}" for word in theirs.findall(shown)]
    assert found == []


def _pages(folder: Traversable) -> Iterator[str]:
    for each in folder.iterdir():
        if each.is_dir():
            yield from _pages(each)
        else:
            yield each.read_text(encoding="utf-8")
