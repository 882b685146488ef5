"""What is measured, claimed and unknown: in entries, in filters, and in routing."""

from __future__ import annotations

import pytest
from marketkit import PLAIN, TOOLS, ScriptedMarket, card, endpoint
from msgspec import UNSET, structs
from routingkit import ASK

from causerie.catalog.endpoint import CatalogEndpoint
from causerie.catalog.listing import Listing
from causerie.catalog.model import ProviderClaims
from causerie.catalog.page_cache import Filters
from causerie.errors import InvalidRequest
from causerie.protocol.request import ChatRequest
from causerie.protocol.targets import Preferences

CLAIMS = ProviderClaims(TOOLS, ("text", "image", "audio"), ("text",))
MEASURED = endpoint("measured", "1", "1", parameters=PLAIN | {"messages", "model", "tools"})
PLAINER = endpoint("plainer", "1", "1", parameters=PLAIN | {"messages", "model"})
CLAIMED = endpoint("claimed", "1", "1", parameters=None, claims=CLAIMS)
UNKNOWN = endpoint("unknown", "1", "1", parameters=None)


def listing(*endpoints: CatalogEndpoint) -> Listing:
    (made,) = ScriptedMarket([(card("a/m"), endpoints, None)]).entries()
    return made


def asks(*params: str, strict: bool = True) -> ChatRequest:
    wanted = frozenset({"model", "messages", *params})
    return structs.replace(ASK, params=wanted, preferences=Preferences(require_parameters=strict))


def names(one: Listing, request: ChatRequest) -> set[str]:
    return {each.name.partition("/")[0] for each in one.candidates(request)}


def test_an_entry_tells_what_is_measured_from_what_is_claimed() -> None:
    measured = listing(MEASURED, CLAIMED, UNKNOWN).entry()
    assert measured.evidence == "measured"
    assert {"tools", "seed"} <= {*measured.supported_parameters}
    assert "tool_choice" not in measured.supported_parameters
    assert measured.claimed_parameters is not UNSET
    assert {*measured.claimed_parameters} == {
        "tool_choice",
        "response_format",
        "structured_outputs",
    }
    claimed = listing(CLAIMED, UNKNOWN).entry()
    assert claimed.evidence == "claimed"
    assert "stream" in claimed.supported_parameters
    assert "tools" not in claimed.supported_parameters
    assert claimed.claimed_parameters == sorted(TOOLS)
    assert claimed.architecture.input_modalities == ["text", "image", "audio"]
    assert claimed.architecture.evidence == "claimed"
    assert claimed.architecture.modality == "text+image+audio->text"
    unknown = listing(UNKNOWN).entry()
    assert (unknown.evidence, unknown.claimed_parameters) == ("unknown", UNSET)
    assert unknown.architecture.evidence == "unknown"
    assert unknown.supported_parameters == claimed.supported_parameters
    each = listing(MEASURED, CLAIMED, UNKNOWN).with_endpoints().endpoints
    assert [one.evidence for one in each] == ["measured", "claimed", "unknown"]
    assert not each[1].supports_tool_choice["auto"]


async def test_the_filter_of_the_api_is_by_what_is_measured() -> None:
    every = [listing(MEASURED), listing(CLAIMED), listing(UNKNOWN)]
    assert await Filters.parse("supported_parameters=tools").of(every) == every[:1]
    assert await Filters.parse("supported_parameters=stream").of(every[1:]) == every[1:]


def test_without_a_wish_nothing_that_was_not_measured_is_left_out() -> None:
    one = listing(PLAINER, CLAIMED, UNKNOWN)
    assert names(one, asks("tools", strict=False)) == {"claimed", "unknown"}
    assert names(one, asks("logprobs", strict=False)) == {"claimed", "unknown"}
    assert names(one, asks()) == {"plainer", "claimed", "unknown"}


def test_who_requires_parameters_gets_measured_ones_else_claimed_ones() -> None:
    one = listing(MEASURED, PLAINER, CLAIMED, UNKNOWN)
    assert names(one, asks("tools")) == {"measured"}
    excluded = one.excluded(asks("tools"))
    assert excluded["claimed/m"][0].field == "provider.require_parameters"
    assert excluded.keys() == {"plainer/m", "claimed/m", "unknown/m"}
    assert names(one, asks("tools", "tool_choice")) == {"claimed"}
    with pytest.raises(InvalidRequest, match="its provider does not claim `logprobs`"):
        one.candidates(asks("logprobs"))
