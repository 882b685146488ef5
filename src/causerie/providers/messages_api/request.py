"""Body of a request to the Messages API, from one that is written in terms of chat completions.

What the server does not support was refused or dropped before. Here only the form changes, and what
the API demands in addition is filled in: an output limit, and an object as the input of tools.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from causerie.providers.draft import RequestDraft
from causerie.providers.messages_api.history import turns

_LIMIT = 32_000  # tokens; every model since Claude 4 may write so many
_LEAST_BUDGET = 1024
# Fields that take another form; what else there is goes as it is.
_OTHERS = frozenset(
    {
        "messages", "max_tokens", "stop", "user", "tools", "tool_choice", "parallel_tool_calls",
        "response_format", "output_config", "continue_final_message", "add_generation_prompt",
    }
)  # fmt: skip
_OF_A_TOOL = frozenset({"type", "function", "name", "parameters"})
_CHOICES = {"none": "none", "auto": "auto", "required": "any"}

Fields = dict[str, Any]


def messages_fields(draft: RequestDraft) -> Fields:
    """Return the fields of the body; adds to the draft's changes."""
    given: Mapping[str, Any] = draft.fields
    fields: Fields = {name: value for name, value in given.items() if name not in _OTHERS}
    system, fields["messages"] = turns(draft)
    if system:
        fields["system"] = system
    _limit(draft, fields)
    stop = given.get("stop")
    if stop:
        fields["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    if given.get("user"):
        fields["metadata"] = {"user_id": given["user"]}
    if given.get("tools"):
        fields["tools"] = [_tool(tool) for tool in given["tools"]]
        _choice(given, fields)
    elif called := _called(fields["messages"]):
        fields["tools"] = [{"name": name, "input_schema": {"type": "object"}} for name in called]
        fields["tool_choice"] = {"type": "none"}
        draft.changes.append("tools added, which earlier messages call")
    _output(given, fields)
    return fields


def _limit(draft: RequestDraft, fields: Fields) -> None:
    """The output limit, which the API demands; a budget of thinking must be below it."""
    thinking = fields.get("thinking") or {}
    budget = thinking.get("budget_tokens", 0)
    limit: Any = draft.fields.get("max_tokens")
    if limit is None:
        limit = _LIMIT + budget
        draft.changes.append(f"max_tokens {limit} added")
    elif _LEAST_BUDGET < limit <= budget:
        fields["thinking"] = {**thinking, "budget_tokens": limit - 1}
        draft.changes.append(f"thinking.budget_tokens {budget}->{limit - 1}")
    fields["max_tokens"] = limit


def _tool(tool: Mapping[str, Any]) -> Fields:
    function = tool["function"]
    schema = function.get("parameters") or {}
    made: Fields = {"name": function["name"], "input_schema": {"type": "object", **schema}}
    for holder in (function, tool):  # with what the operator has allowed
        made |= {name: holder[name] for name in holder.keys() - _OF_A_TOOL if holder[name]}
    return made


def _called(messages: list[Fields]) -> list[str]:
    """Return the names of the functions of earlier calls; the API demands that they are defined."""
    blocks = (block for message in messages for block in message["content"])
    return list(dict.fromkeys(block["name"] for block in blocks if block["type"] == "tool_use"))


def _choice(given: Mapping[str, Any], fields: Fields) -> None:
    """Set which tool is called, and whether several may be called at once."""
    sent = given.get("tool_choice")
    choice: Fields = {"type": _CHOICES.get(sent, "auto") if isinstance(sent, str) else "auto"}
    if isinstance(sent, Mapping):
        choice = {"type": "tool", "name": sent["function"]["name"]}
    if given.get("parallel_tool_calls") is False and choice["type"] != "none":
        choice["disable_parallel_tool_use"] = True
    elif sent is None:
        return
    fields["tool_choice"] = choice


def _output(given: Mapping[str, Any], fields: Fields) -> None:
    """The effort and the schema of the answer."""
    output: Fields = dict(given.get("output_config") or {})
    asked = given.get("response_format") or {}
    if asked.get("type") == "json_schema":
        output["format"] = {"type": "json_schema", "schema": asked["json_schema"]["schema"]}
    if output:
        fields["output_config"] = output
