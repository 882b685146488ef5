"""What a response says again of its request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET

from causerie.protocol.body import ObjectReader
from causerie.protocol.request import ChatRequest
from causerie.shapes.responses.body import Echo

_FUNCTION = {"description": None, "parameters": None, "strict": None}


def echo_of(body: ObjectReader, request: ChatRequest) -> Echo:
    """Return the echo of a body whose fields are valid."""
    sampling, user = request.sampling, body.get("user")
    return Echo(
        instructions=body.string("instructions"),
        max_output_tokens=request.max_tokens,
        max_tool_calls=body.integer("max_tool_calls", 1, 2**31 - 1),
        metadata=_object(body.get("metadata")),
        parallel_tool_calls=request.parallel_tool_calls is not False,
        prompt_cache_key=_text(body.get("prompt_cache_key")),
        reasoning=_reasoning(body.get("reasoning")),
        safety_identifier=_text(body.get("safety_identifier")),
        temperature=_number(sampling.temperature, 1.0),
        text=_text_settings(_object(body.get("text"))),
        tool_choice=_choice(body.get("tool_choice")),
        tools=_tools(body.get("tools")),
        top_logprobs=request.top_logprobs or 0,
        top_p=_number(sampling.top_p, 1.0),
        presence_penalty=_number(sampling.presence_penalty, 0.0),
        frequency_penalty=_number(sampling.frequency_penalty, 0.0),
        user=user if isinstance(user, str) else UNSET,
    )


def _number(value: float | None, unset: float) -> float:
    return unset if value is None else value


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _reasoning(value: object) -> Mapping[str, Any] | None:
    if not isinstance(value, dict):
        return None
    return {"effort": value.get("effort"), "summary": value.get("summary")}


def _text_settings(text: Mapping[str, Any]) -> Mapping[str, Any]:
    # The specification has no schema in what is said again.
    form = _object(text.get("format")) or {"type": "text"}
    if form.get("type") == "json_schema":
        name, strict = form.get("name") or "response", form.get("strict")
        form = {
            **{"type": "json_schema", "name": name, "description": form.get("description")},
            **{"schema": None, "strict": strict is not False},
        }
    verbosity = text.get("verbosity")
    return {"format": form, **({"verbosity": verbosity} if verbosity else {})}


def _choice(value: Any) -> Any:
    if isinstance(value, dict) and value.get("type") == "allowed_tools":
        return {"mode": "auto", **value}
    return "auto" if value is None else value


def _tools(value: object) -> Sequence[Any]:
    if not isinstance(value, list):
        return ()
    plain = ({**_FUNCTION, **tool} if tool.get("type") == "function" else tool for tool in value)
    return list(plain)
