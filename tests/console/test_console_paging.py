"""Long lists of the console: each entry is on one page, and a text finds it."""

from __future__ import annotations

import re

from consolekit import Page, Place
from hypothesis import given
from hypothesis import strategies as st

from causerie.console.fields import FormFields
from causerie.console.paging import PAGE, page_of


def _query(**fields: object) -> FormFields:
    return FormFields((name, str(value)) for name, value in fields.items())


@given(st.integers(0, 3 * PAGE + 1))
def test_each_item_is_on_one_page(count: int) -> None:
    items = [f"item {n}" for n in range(count)]
    first = page_of(items, _query(), lambda each: (each,))
    shown = [
        each
        for number in range(1, first.pages + 1)
        for each in page_of(items, _query(page=number), lambda each: (each,)).items
    ]
    assert shown == items
    assert first.searchable == (count > PAGE)


@given(st.text(max_size=12))
def test_any_number_of_a_page_is_answered(page: str) -> None:
    found = page_of(range(250), _query(page=page), lambda each: (str(each),))
    assert 1 <= found.number <= found.pages == 3
    assert found.items


def test_all_words_are_found_in_any_of_the_texts() -> None:
    items = [("Nightly report", "ck_1"), ("Website", "ck_2"), ("Nightly tests", "ck_3")]
    found = page_of(items, _query(find="ck NIGHTLY"), lambda each: each)
    assert list(found.items) == [items[0], items[2]]
    assert (found.found, found.total, found.pages) == (2, 3, 1)


def _names(page: Page) -> list[str]:
    return re.findall(r'<strong class="cut" title="(key \d+)">', page.text)


async def test_keys_are_found_by_pages_and_by_text(place: Place) -> None:
    owner = await place.world.person()
    project = await place.world.project(owner=owner)
    for number in range(PAGE + 1):
        await place.world.key(project, owner, name=f"key {number:03}")
        place.world.later(seconds=1)
    visitor = await place.visitor_of(owner)
    base = f"/projects/{project.id}/keys"
    first = await visitor.get(base)
    assert (len(_names(first)), _names(first)[0]) == (PAGE, "key 100")
    assert "Page 1 of 2" in first.text
    last = await visitor.get(f"{base}?page=2")
    assert _names(last) == ["key 000"]
    assert _names(await visitor.get(f"{base}?find=042+KEY")) == ["key 042"]
    nothing = await visitor.get(f"{base}?find=%3Cb%3E")
    assert _names(nothing) == []
    assert "&lt;b&gt;" in nothing.text
