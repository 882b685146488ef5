"""Numbers from outside: none costs more than its text, wherever it is read."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints
from urllib.parse import urlencode

import msgspec
import pytest
from casekit import each_of
from hypothesis import given
from hypothesis import strategies as st
from sourcekit import READS_SOURCE, nodes

from causerie.access.allowed import Access
from causerie.catalog.page_cache import Filters
from causerie.chat.call_syntax.choices import resolved
from causerie.chat.schema.references import Addresses
from causerie.errors import InvalidRequest
from causerie.hosted.accounts.bounds import LimitsAndBudgets
from causerie.hosted.accounts.people import SYSTEM
from causerie.hosted.accounts.statement import Credits
from causerie.hosted.console.catalog_search import CatalogQuery, CostAssumptions
from causerie.hosted.console.entries import picked_model
from causerie.hosted.console.fields import FormFields
from causerie.hosted.management import requests
from causerie.hosted.management.application import ROUTES
from causerie.hosted.operations.configuring import ListedModel, published
from causerie.hosted.operations.provider_models import configured
from causerie.protocol.numbers import MOST_MONEY, money, whole_number
from causerie.protocol.parameters import ParsingRules
from causerie.shapes.chat_completions.reader import parse

HOSTILE = ("1e-50000000", "9e999999", "0e99999999", "1e-999990", "NaN", "sNaN", "Infinity", "-1")
DIGITS = ("9" * 5000, "1" * 4300, "²", "٣")
TEXTS = st.one_of(
    st.sampled_from((*HOSTILE, *DIGITS)),
    st.decimals().map(str),
    st.floats().map(str),
    st.from_regex(r"-?[0-9]{0,30}(\.[0-9]{0,30})?([eE][+-]?[0-9]{1,12})?", fullmatch=True),
    st.text(max_size=80),
)
DECIMALS_ELSEWHERE = {
    "protocol/money.py": "a number of ours, for a list",
    "hosted/accounts/spending.py": "tokens that were counted here",
    "hosted/operations/explanation.py": "a ratio of two prices, in three digits",
    "hosted/store/keys.py": "whole tokens of the database",
}


@given(TEXTS | st.integers() | st.floats() | st.decimals(allow_nan=True), st.booleans())
def test_an_amount_of_money_is_small_whatever_is_given(
    text: str | int | float | Decimal, signed: bool
) -> None:
    try:
        amount = money(text, signed=signed)
    except ValueError:
        return
    assert amount.is_finite()
    assert signed or not amount.is_signed()
    assert abs(amount) <= MOST_MONEY
    assert len(f"{amount:f}") < 60
    assert len(configured(amount)) < 60
    assert len(f"{amount.normalize():f}") < 60
    int(amount * amount / 3)


@each_of("text", ["0", "1.50", "1.5e-07", "0.000000001", "1E3"])
def test_an_amount_of_money_keeps_its_digits(text: str) -> None:
    assert money(text) == Decimal(text)
    assert money("-" + text, signed=True) == -Decimal(text)


@given(st.text(max_size=12) | st.sampled_from(DIGITS), st.integers(0, 10**12))
def test_a_whole_number_is_in_its_range(text: str, most: int) -> None:
    number = whole_number(text, most)
    assert number is None or (0 <= number <= most and number == int(text))


@READS_SOURCE
def test_only_one_place_makes_decimals_of_what_comes_from_outside() -> None:
    found = {
        name
        for name, node in nodes(ast.Call)
        if isinstance(node.func, ast.Name | ast.Attribute)
        and getattr(node.func, "id", getattr(node.func, "attr", "")) in ("Decimal", "from_float")
        and not all(isinstance(each, ast.Constant) for each in node.args)
    }
    assert found == {"protocol/numbers.py", *DECIMALS_ELSEWHERE}, "read it with `money`"


def _hints(kind: type[msgspec.Struct]) -> Iterator[Any]:
    yield from get_type_hints(kind).values()


def _structs(kind: Any) -> Iterator[type[msgspec.Struct]]:
    """The structs that a body holds, itself among them."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
        for hint in _hints(kind):
            yield from _structs(hint)
    for argument in get_args(kind):
        yield from _structs(argument)


@each_of("text", HOSTILE)
async def test_decimals_in_bodies_of_the_management_api_are_checked_before_use(text: str) -> None:
    bodies = {kind for route in ROUTES if route.takes_body for kind in _structs(route.body)}
    kinds = {
        kind.__name__
        for kind in bodies
        if any(hint is Decimal or Decimal in get_args(hint) for hint in _hints(kind))
    }
    assert kinds == {"Access", "Budget", "PutCredits"}
    bounds = msgspec.json.decode(f'{{"budgets":[{{"amount":"{text}"}}]}}', type=LimitsAndBudgets)
    put = msgspec.json.decode(f'{{"amount":"{text}"}}', type=requests.PutCredits)
    access = msgspec.json.decode(f'{{"prompt_price":"{text}"}}', type=Access)
    with pytest.raises(InvalidRequest) as refused:
        bounds.check()
    assert refused.value.param == "budgets[0].amount"
    with pytest.raises(InvalidRequest) as refused:
        access.check()
    assert refused.value.param == "prompt_price"
    nothing: Any = SimpleNamespace(clock=None)
    with pytest.raises((InvalidRequest, AttributeError)) as refused_or_stored:
        await Credits(nothing).put(SYSTEM, "prj_1", put.amount)
    assert (refused_or_stored.type is AttributeError) == (text == "-1")


READERS: Mapping[str, Callable[[str], object]] = {
    "pages of the catalog": lambda text: CatalogQuery.parse(FormFields([("max", text)])).address(),
    "list of models": lambda text: Filters.parse(urlencode({"max_price": text})),
    "routing preferences": lambda text: parse(
        msgspec.json.encode(
            {
                "model": "m",
                "messages": [{"role": "user", "content": "Hi"}],
                "provider": {"max_price": {"prompt": text}},
            }
        ),
        ParsingRules(router=True),
    ),
    "a form's model": lambda text: picked_model(
        msgspec.json.encode({"id": "m", "prompt_price": text}).decode()
    ),
}


@each_of("place", READERS)
@each_of("text", [each for each in HOSTILE if not each.startswith("0e")])
def test_every_reader_refuses_an_amount_that_is_none(place: str, text: str) -> None:
    with pytest.raises(InvalidRequest):
        READERS[place](text)


@given(TEXTS)
def test_a_providers_list_is_read_whatever_its_prices(text: str) -> None:
    parts = ("prompt", "completion", "input_cache_read", "internal_reasoning", "request")
    (found,) = published([{"id": "m", "pricing": dict.fromkeys(parts, text)}])
    assert isinstance(found, ListedModel)
    assert len(msgspec.json.encode(found)) < 600
    assert picked_model(msgspec.json.encode(found).decode()) == found


@pytest.mark.parametrize("text", DIGITS)
def test_whole_numbers_of_an_address_are_bounded(text: str) -> None:
    for name in ("context", "page"):
        with pytest.raises(InvalidRequest):
            CatalogQuery.parse(FormFields([(name, text)]))
    for name in ("limit", "offset", "context"):
        with pytest.raises(InvalidRequest):
            Filters.parse(urlencode({name: text}))
    for name in ("in", "out", "requests"):
        with pytest.raises(InvalidRequest):
            CostAssumptions.parse(FormFields([(name, text)]))


@pytest.mark.parametrize("text", DIGITS)
def test_a_reference_to_an_item_that_no_list_has_names_nothing(text: str) -> None:
    schema: dict[str, Any] = {"anyOf": [{"type": "string"}]}
    assert resolved(schema, f"#/anyOf/{text}") == {}
    assert Addresses(schema).part(f"#/anyOf/{text}") is None
