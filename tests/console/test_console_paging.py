"""Long lists of the console: each entry is on one page, and a text finds it."""

from __future__ import annotations

import re

from consolekit import Page, Place
from hypothesis import given
from hypothesis import strategies as st

from causerie.hosted.console.fields import USUAL_ROWS, FormFields, page_of


def _query(**fields: object) -> FormFields:
    return FormFields((name, str(value)) for name, value in fields.items())


@given(st.integers(0, 3 * USUAL_ROWS + 1))
def test_each_item_is_on_one_page(count: int) -> None:
    items = [f"item {n}" for n in range(count)]
    first = page_of(items, _query(), lambda each: (each,))
    shown = [
        each
        for number in range(1, first.pages + 1)
        for each in page_of(items, _query(page=number), lambda each: (each,)).items
    ]
    assert shown == items
    assert first.searchable == (count > 8)


@given(st.text(max_size=12))
def test_any_number_of_a_page_is_answered(page: str) -> None:
    found = page_of(range(250), _query(page=page), lambda each: (str(each),))
    assert 1 <= found.number <= found.pages == 10
    assert found.items


def test_all_words_are_found_in_any_of_the_texts() -> None:
    items = [("Nightly report", "ck_1"), ("Website", "ck_2"), ("Nightly tests", "ck_3")]
    found = page_of(items, _query(find="ck NIGHTLY"), lambda each: each)
    assert list(found.items) == [items[0], items[2]]
    assert (found.found, found.total, found.pages) == (2, 3, 1)


def test_a_column_sorts_both_ways_and_items_without_a_value_are_last() -> None:
    items = [("b", 2), ("a", None), ("c", 1), ("d", 2)]

    def sorted_by(sort: str) -> str:
        found = page_of(items, _query(sort=sort), lambda each: each[0], {"n": lambda each: each[1]})
        return "".join(name for name, _ in found.items)

    assert sorted_by("n") == "cbda"
    assert sorted_by("-n") == "bdca"
    assert sorted_by("nothing") == sorted_by("") == "bacd"


def test_a_title_turns_the_order_round_and_pages_keep_it() -> None:
    columns = {"n": lambda each: each}
    plain = page_of(range(250), _query(find="1"), lambda each: (str(each),), columns)
    assert (plain.order("n"), plain.sorted_by("n")) == ("", "?find=1&sort=n")
    assert plain.sorted_by("n", down=True) == "?find=1&sort=-n"
    down = page_of(range(250), _query(find="1", sort="-n"), lambda each: (str(each),), columns)
    assert (down.order("n"), down.sorted_by("n", down=True)) == ("descending", "?find=1&sort=n")
    assert down.address(2) == "?find=1&page=2&sort=-n"
    kept = {"range": "7d"}
    other = page_of(range(250), _query(find="1"), lambda each: (str(each),), columns, kept)
    assert other.sorted_by("n") == "?range=7d&find=1&sort=n"


def test_as_many_rows_as_are_asked_for() -> None:
    found = page_of(range(250), _query(rows=100, find="1"), lambda each: (str(each),), {})
    assert (len(found.items), found.pages) == (100, 2)
    assert found.address(2) == "?find=1&rows=100&page=2"
    assert (found.with_rows(50), found.with_rows(25)) == ("?find=1&rows=50", "?find=1")
    other = page_of(range(250), _query(rows="33"), lambda each: (str(each),))
    assert len(other.items) == USUAL_ROWS


def _names(page: Page) -> list[str]:
    return re.findall(r'<strong class="cut" title="(key \d+)">', page.text)


async def test_keys_are_found_by_pages_and_by_text(place: Place) -> None:
    owner = await place.world.person()
    project = await place.world.project(owner=owner)
    for number in range(USUAL_ROWS + 1):
        await place.world.key(project, owner, name=f"key {number:03}")
        place.world.later(seconds=1)
    visitor = await place.visitor_of(owner)
    base = f"/projects/{project.id}/keys"
    first = await visitor.get(base)
    assert (len(_names(first)), _names(first)[0]) == (USUAL_ROWS, f"key {USUAL_ROWS:03}")
    assert "Page 1 of 2" in first.text
    last = await visitor.get(f"{base}?page=2")
    assert _names(last) == ["key 000"]
    assert _names(await visitor.get(f"{base}?find=012+KEY")) == ["key 012"]
    nothing = await visitor.get(f"{base}?find=%3Cb%3E")
    assert _names(nothing) == []
    assert "&lt;b&gt;" in nothing.text
