"""Functions and which of them must be called, where a server knows only some of the ways to say it.

A way that it does not know is said by another one that has the same effect, by
sending fewer functions; what cannot be said is refused.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from causerie.protocol.parameters import ToolParameters
from causerie.providers.dialect import Choice
from causerie.providers.draft import RequestDraft

PARAMETERS = frozenset(ToolParameters.__struct_fields__)


def write_tools(draft: RequestDraft) -> None:
    """The functions, the choice among them, and whether several may be called at once."""
    request, fields = draft.request, draft.fields
    if not request.tools:
        for name in ("tools", "tool_choice", "parallel_tool_calls"):
            if draft.given(name):
                draft.dropped(name)
        return
    fields["tools"] = draft.document["tools"]
    _write_choice(draft)
    if "tools" in fields:
        _write_parallel(draft)


def _write_choice(draft: RequestDraft) -> None:
    sent = draft.document.get("tool_choice")
    if sent is None:
        return
    way, known = _way(sent), draft.dialect.choices
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
            _only(draft, choice.allowed or ())
            if choice.mode in known:
                draft.fields["tool_choice"] = choice.mode
            draft.moved("tool_choice", choice.mode)


def _way(sent: object) -> Choice:
    if isinstance(sent, dict):
        return "named" if sent.get("type") == "function" else "allowed"
    return "none" if sent == "none" else "required" if sent == "required" else "auto"


def _only(draft: RequestDraft, names: Collection[str]) -> None:
    """Leave out the functions that may not be called."""
    tools: Any = draft.fields["tools"]
    kept = [tool for tool in tools if tool["function"]["name"] in names]
    if len(kept) < len(tools):
        draft.changes.append(f"tools {len(tools)}->{len(kept)}")
    draft.fields["tools"] = kept


def _write_parallel(draft: RequestDraft) -> None:
    sent = draft.document.get("parallel_tool_calls")
    if "parallel_tool_calls" in draft.dialect.accepts:
        if sent is not None or not draft.dialect.parallel_by_default:
            draft.fields["parallel_tool_calls"] = sent is not False
    elif sent is False:
        raise draft.unsupported("parallel_tool_calls", "It may make several calls at once.")
    elif sent is not None:
        draft.dropped("parallel_tool_calls")
