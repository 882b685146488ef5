"""Writes tools and output format into a provider request, in the fields that its server knows."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from causerie.errors import InvalidRequest
from causerie.http.addresses import host_refusal
from causerie.protocol import request as requests
from causerie.protocol.parameters import ToolParameters
from causerie.providers.dialect import Choice, Dialect, Shape, Shaping


class Outgoing(Struct, frozen=True, gc=False):
    """An encoded request to a provider, with the changes that were made for its server.

    ``streamed`` says whether the reply was asked for as a stream, ``native`` is the client's
    request where that passes.
    """

    body: bytes
    changes: tuple[str, ...]
    streamed: bool
    native: requests.NativeRequest | None = None


class RequestDraft(Struct, eq=False):
    """Draft of a provider's request body: ``fields`` are filled from the client's ``document``."""

    request: requests.ChatRequest
    dialect: Dialect
    document: Mapping[str, Any]
    fields: dict[str, Any] = {}
    changes: list[str] = []

    def given(self, name: str) -> bool:
        """Return true if the client sent the field ``name`` with a value other than ``null``."""
        return self.document.get(name) is not None

    def dropped(self, name: str) -> None:
        self.changes.append(f"{name} dropped")

    def moved(self, name: str, to: str) -> None:
        self.changes.append(f"{name}->{to}")

    def unsupported(self, param: str, advice: str = "") -> InvalidRequest:
        """Return the error for a parameter that the provider of this model does not support."""
        words = f"The provider that serves this model does not support `{param}`."
        return InvalidRequest(
            f"{words} {advice}".rstrip(), code="unsupported_parameter", param=param
        )


def check_addresses(
    request: requests.ChatRequest, files: Mapping[str, str], dialect: Dialect
) -> None:
    """Raise :class:`InvalidRequest` for an image or file URL that the provider must not fetch."""
    found = requests.images(request.messages)
    images = {f"{at}.image_url.url": image.url for at, image in found if not image.enclosed}
    for param, url in {**images, **files}.items():
        if not dialect.fetches:
            raise requests.not_fetched(param)
        if (why := host_refusal(url, dialect.inside)) is not None:
            raise InvalidRequest(
                f"`{param}` {why}; name a public host, or send it itself, as a `data:` address.",
                code="unsupported_parameter",
                param=param,
            )


# Functions and which of them must be called, where a server knows only some of the ways to say it.

TOOL_PARAMETERS = frozenset(ToolParameters.__struct_fields__)


def write_tools(draft: RequestDraft) -> None:
    request, fields = draft.request, draft.fields
    if not request.tools:
        for name in ("tools", "tool_choice", "parallel_tool_calls"):
            if draft.given(name):
                draft.dropped(name)
        return
    fields["tools"] = draft.document["tools"]
    _write_tool_choice(draft)
    if "tools" in fields:
        sent = draft.document.get("parallel_tool_calls")
        if "parallel_tool_calls" in draft.dialect.accepts:
            if sent is not None or not draft.dialect.parallel_by_default:
                draft.fields["parallel_tool_calls"] = sent is not False
        elif sent is False:
            raise draft.unsupported("parallel_tool_calls", "It may make several calls at once.")
        elif sent is not None:
            draft.dropped("parallel_tool_calls")


def _write_tool_choice(draft: RequestDraft) -> None:
    sent = draft.document.get("tool_choice")
    if sent is None:
        return
    way: Choice = "none" if sent == "none" else "required" if sent == "required" else "auto"
    if isinstance(sent, dict):
        way = "named" if sent.get("type") == "function" else "allowed"
    known = draft.dialect.choices
    if way in known:
        draft.fields["tool_choice"] = sent
        return
    choice = draft.request.tool_choice
    if choice.mode == "required" and "required" not in known:
        raise draft.unsupported("tool_choice", "It cannot be made to call a function; send auto.")
    match way:
        case "none":
            del draft.fields["tools"]
            draft.changes += ["tools dropped", "tool_choice dropped"]
        case "auto" | "required":
            draft.dropped("tool_choice")
        case "named" | "allowed":
            tools = draft.fields["tools"]
            kept = [tool for tool in tools if tool["function"]["name"] in (choice.allowed or ())]
            if len(kept) < len(tools):
                draft.changes.append(f"tools {len(tools)}->{len(kept)}")
            draft.fields["tools"] = kept
            if choice.mode in known:
                draft.fields["tool_choice"] = choice.mode
            draft.moved("tool_choice", choice.mode)


# The shape that an answer must have, in the fields of the server that is to enforce it.

FORMAT_PARAMETERS = frozenset({"response_format", "structured_outputs"})


def write_shape(draft: RequestDraft) -> None:
    """Write the output format that is asked for; raise :class:`InvalidRequest` if unsupported."""
    output = draft.request.output
    if output is None:
        if draft.given("response_format"):
            draft.fields["response_format"] = draft.document["response_format"]  # plain text
        return
    shape, param = _SHAPES[type(output)]
    if shape == "json_schema" and draft.given("structured_outputs"):
        param = "structured_outputs.json"
    way = draft.dialect.shapes.get(shape)
    if way is None:
        raise draft.unsupported(param, "It cannot hold an answer to that shape.")
    _write_output_format(way, draft)
    if param.split(".", maxsplit=1)[0] not in draft.fields:
        draft.moved(param, next(name for name in reversed(draft.fields)))


_SHAPES: Mapping[type[Struct], tuple[Shape, str]] = {
    requests.JsonObject: ("json_object", "response_format"),
    requests.JsonSchema: ("json_schema", "response_format"),
    requests.Regex: ("regex", "structured_outputs.regex"),
    requests.TextChoice: ("choice", "structured_outputs.choice"),
    requests.Grammar: ("grammar", "structured_outputs.grammar"),
}


def _write_output_format(provider_form: Shaping, draft: RequestDraft) -> None:
    fields = draft.fields
    match provider_form, draft.request.output:
        case "response_format", _:
            _write_response_format(draft)
        case "structured_outputs", _:
            fields["structured_outputs"] = draft.document["structured_outputs"]
        case "object_schema", _:
            schema = {"name": "object", "schema": {"type": "object"}, "strict": True}
            fields["response_format"] = {"type": "json_schema", "json_schema": schema}
            draft.moved("response_format.json_object", "response_format.json_schema")
        case "regex", requests.Regex(pattern=pattern):
            fields["regex"] = pattern
        case "choice_regex", requests.TextChoice(options=options):
            fields["regex"] = "(" + "|".join(map(re.escape, options)) + ")"
        case "choice_grammar", requests.TextChoice(options=options):
            fields["grammar"] = "root ::= " + " | ".join(map(_encode_gbnf_literal, options))
        case "ebnf" | "grammar", requests.Grammar(text=text):
            fields[provider_form] = text


def _write_response_format(draft: RequestDraft) -> None:
    output = draft.request.output
    sent = draft.document.get("response_format")
    if not isinstance(output, requests.JsonSchema):
        draft.fields["response_format"] = sent
        return
    if sent is None or sent["type"] != "json_schema":
        if sent is not None and sent["type"] == "json_object":
            draft.moved(output.param, "response_format.json_schema")
        schema = output.schema
        if isinstance(schema, bool):  # an object is what servers take
            schema = {} if schema else {"not": {}}
        named = {"name": output.name, "schema": schema, "strict": True}
        sent = {"type": "json_schema", "json_schema": named}
    elif draft.dialect.strict_schemas and sent["json_schema"].get("strict") is not True:
        # Some servers enforce only a schema that is marked as strict.
        sent = {**sent, "json_schema": {**sent["json_schema"], "strict": True}}
        draft.changes.append("response_format.json_schema.strict->true")
    draft.fields["response_format"] = sent


def _encode_gbnf_literal(text: str) -> str:
    # GBNF writes strings almost as JSON does.
    written = json.dumps(text, ensure_ascii=False)
    for short, code in (("\\b", "\\x08"), ("\\f", "\\x0c")):
        written = re.sub(rf"(?<!\\)((?:\\\\)*)\{short}", rf"\1\{code}", written)
    return re.sub(r"(?<!\\)((?:\\\\)*)\\u00([0-9a-f]{2})", r"\1\\x\2", written)
