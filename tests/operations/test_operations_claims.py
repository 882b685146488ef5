"""What lists of models claim, in the forms of several providers."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causerie.hosted.operations.configuring import published

_LISTED: tuple[tuple[dict[str, Any], object, object], ...] = (
    # An aggregating router.
    (
        {
            "architecture": {"modality": "text+image->text", "input_modalities": ["text", "image"],
                             "output_modalities": ["text"]},
            "supported_parameters": ["tools", "temperature", "web_search_options", 7],
        },
        ("temperature", "tools"), ("text", "image"),
    ),
    ({"architecture": {"modality": "text+image->text"}}, None, ("text", "image")),
    # Yes or no to each.
    (
        {"capabilities": {"completion_chat": True, "function_calling": True, "vision": True}},
        ("tool_choice", "tools"), ("text", "image"),
    ),
    ({"capabilities": {"function_calling": False, "vision": False}}, None, None),
    (
        {"capabilities": {"image_input": {"supported": True}, "thinking": {"supported": True}}},
        ("reasoning", "reasoning_effort"), ("text", "image"),
    ),
    # Names of features.
    ({"supported_features": ["tools", "json_mode"]},
     ("response_format", "tool_choice", "tools"), None),
    ({"features": ["function-calling", "structured-outputs"]},
     ("response_format", "tool_choice", "tools"), None),
    ({"tags": ["tool-use", "vision"]}, ("tool_choice", "tools"), ("text", "image")),
    ({"type": "vlm", "capabilities": ["tool_use"]}, ("tool_choice", "tools"), ("text", "image")),
    ({"supports_tools": True, "supports_image_input": True}, ("tool_choice", "tools"),
     ("text", "image")),
    # Nothing.
    ({}, None, None),
    ({"supported_parameters": [], "architecture": None}, (), None),
)  # fmt: skip


@pytest.mark.parametrize(("entry", "parameters", "takes"), _LISTED)
def test_lists_claim_in_several_forms(
    entry: dict[str, Any], parameters: object, takes: object
) -> None:
    (found,) = published([{"id": "m", **entry}])
    assert (found.supported_parameters, found.input_modalities) == (parameters, takes)


@pytest.mark.parametrize(
    ("told", "day"),
    [
        ({"created": 1_700_000_000}, date(2023, 11, 14)),
        ({"created_at": "2025-02-19T00:00:00Z"}, date(2025, 2, 19)),
        ({"created": 0}, None),
        ({"created": "soon"}, None),
        ({"created": 10**30}, None),
        ({"created": True}, None),
        ({"created": int(datetime.now(UTC).timestamp())}, None),  # as many servers do
    ],
)
def test_a_day_is_when_a_model_came_out_not_when_the_list_was_made(
    told: dict[str, object], day: date | None
) -> None:
    (found,) = published([{"id": "m", **told}])
    assert found.created == day


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
_names = st.sampled_from(
    ("supported_parameters", "features", "capabilities", "architecture", "tags", "created",
     "released", "input_modalities", "metadata", "context_length", "type")
)  # fmt: skip


@given(st.dictionaries(_names, _json, max_size=6))
def test_whatever_a_list_says_is_read(entry: dict[str, Any]) -> None:
    (found,) = published([{**entry, "id": "m"}])
    assert found.id == "m"
