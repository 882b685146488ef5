"""What a request carries arrives, is refused, or is named: at all APIs, for all targets."""

from __future__ import annotations

import re
import string
from pathlib import Path

import pytest
from fidelity import CARRIED, CLIENTS, OWN, TARGETS, THINGS, Thing, body_with, outcome, returns
from hypothesis import given, settings
from hypothesis import strategies as st
from shapes_page import cell, shapes_page

PAGE = Path(__file__).parents[2] / "docs" / "reference/shapes.md"
PAIRS = [(thing, client) for thing in THINGS for client in CLIENTS if client in thing.puts]
# Nothing else in a request holds them; as data of an image they are whole bytes.
NAMES = st.text(string.ascii_letters, min_size=6, max_size=6).map("zq".__add__)
WORDS = st.text(st.characters(codec="utf-8", categories=("L", "N", "S")), min_size=1).map(
    "zq".__add__
)
HAVE_A_WORD = {
    "reasoning, as text": {OWN, "generic", "causerie", "openrouter"},
    "signature of reasoning": {"generic", "causerie", "openrouter", "anthropic"},
    "redacted reasoning of Anthropic": {"generic", "causerie", "openrouter", "anthropic"},
    "encrypted reasoning of other providers": {"generic", "causerie", "openrouter"},
    "data of a provider beside a call": {"generic", "causerie"},
}
"""Kinds of targets that can take back what a reply said."""


def test_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == shapes_page(), "run `make docs`"


@given(st.sampled_from(PAIRS), st.sampled_from(TARGETS), st.data())
@settings(max_examples=4 * settings.default.max_examples)  # type: ignore[union-attr]
def test_what_arrives_does_not_depend_on_its_value(
    pair: tuple[Thing, str], target: str, data: st.DataObject
) -> None:
    thing, client = pair
    value = (
        thing.values(data.draw(WORDS if thing.words else NAMES))
        if callable(thing.values)
        else data.draw(st.sampled_from(thing.values))
    )
    found = outcome(thing, client, target, value)
    assert cell(found, client, target) == cell(
        outcome(thing, client, target, thing.example()), client, target
    )
    assert not found.silent or (thing.hint and target == OWN)
    body = body_with(thing, client, value)
    for change in found.told:
        if change.endswith(" dropped"):  # at its place in the body of the client
            assert re.split(r"[.\[ ]", change)[0] in body, change


@pytest.mark.parametrize("thing", CARRIED)
@given(WORDS)
@settings(max_examples=2)
def test_what_a_provider_needs_comes_back_through_every_api(thing: str, text: str) -> None:
    for client in CLIENTS:
        back = {target for target in TARGETS if returns(thing, client, target, text)}
        assert back == HAVE_A_WORD[thing], client
