"""Read tools of all kinds as functions, and remember how the client calls each of them.

Chat completions have functions only. A custom tool becomes a function with one string, a namespace
becomes part of the names of its functions, and a search for tools that the client runs becomes a
function too. Tools that only a vendor runs are left out and named.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct, field

from causerie.errors import InvalidRequest
from causerie.protocol.body import ObjectReader, missing, shown, unsupported, wrong_value
from causerie.protocol.body_types import MAX_TOOLS
from causerie.shapes.chat_completions.past import Changes

INPUT = "input"  # the parameter that a custom tool has as a function
SEARCH = "tool_search"

_TOOL = "a tool with a `type`"
_QUERY = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
_FUNCTION = ("type", "name", "description", "parameters", "strict")
_MOST_CHARACTERS = 64  # of a type in the report of changes

Entry = Mapping[str, Any]


class ToolForm(Struct, frozen=True):
    """A client's name for a tool, its namespace if any, and the kind of its call items."""

    kind: str  # `function`, `custom` or `tool_search`
    name: str
    namespace: str | None = None


def flat_name(name: str, namespace: object = None) -> str:
    return f"{namespace}__{name}" if isinstance(namespace, str) and namespace else name


class ToolReader(Struct, eq=False):
    """Collects the tools of a request from ``tools`` and from items of its input."""

    changes: Changes = field(default_factory=Changes)
    functions: list[Entry] = []  # the tools as chat completions have them
    places: dict[str, str] = {}  # where each of them stands in the client's body
    forms: dict[str, ToolForm] = {}  # by the name of the function; a plain function has none
    grammars: dict[str, str] = {}  # Lark grammars of custom tools, by the name of the function
    left_out: set[str] = set()  # types of the tools that nobody runs here
    _flat_names: set[str] = set()

    def read(self, tools: object, place: str, *, repeated: bool = False) -> None:
        """Read a list of tools; with ``repeated``, skip tools whose names are known already."""
        reader = ObjectReader({"tools": tools}, place.rpartition(".")[0])
        for each in reader.objects("tools", most=MAX_TOOLS, expected=_TOOL):
            self._read_tool(each, repeated)

    def resolve(self, name: object, namespace: object = None) -> str | None:
        if not isinstance(name, str):
            return None
        if (flat := flat_name(name, namespace)) in self._flat_names:
            return flat
        found = [flat for flat, form in self.forms.items() if form.name == name]
        return found[0] if len(found) == 1 and not namespace else None

    def _read_tool(self, tool: ObjectReader, is_repeated: bool) -> None:
        sort = tool.required_string("type", expected="a type such as function or custom")
        if sort == "namespace":
            name = tool.required_string("name")
            self._note_unknown_fields(tool, ("type", "name", "description", "tools"))
            self.changes.note(f"{tool.path} namespace flattened")
            for each in tool.objects("tools", most=MAX_TOOLS, expected=_TOOL):
                self._read_one_tool(each, is_repeated, name)
        else:
            self._read_one_tool(tool, is_repeated, None)

    def _read_one_tool(self, tool: ObjectReader, is_repeated: bool, namespace: str | None) -> None:
        sort = tool.required_string("type", expected="a type such as function or custom")
        match sort:
            case "function":
                self._note_unknown_fields(tool, _FUNCTION)
                made = {name: tool.get(name) for name in _FUNCTION[1:]}
            case "custom":
                self._note_unknown_fields(tool, ("type", "name", "description", "format"))
                made = self._build_custom_function(tool)
            case "tool_search" if tool.get("execution") == "client" and namespace is None:
                self._note_unknown_fields(tool, ("type", "execution", "description", "parameters"))
                made = {
                    "name": SEARCH,
                    "description": tool.get("description"),
                    "parameters": tool.get("parameters") or _QUERY,
                }
            case _:
                self.left_out.add(sort)
                self.changes.note(f"{tool.path} {quote(sort[:_MOST_CHARACTERS], safe='')} dropped")
                return
        self._add_function(tool, made, is_repeated, namespace)

    def _add_function(
        self, tool: ObjectReader, function: dict[str, Any], is_repeated: bool, namespace: str | None
    ) -> None:
        name, sort = function["name"], str(tool.values["type"])
        if isinstance(name, str):
            flat = function["name"] = flat_name(name, namespace)
            if is_repeated and flat in self._flat_names:
                return
            self._flat_names.add(flat)
            if sort != "function" or namespace is not None:
                self.forms[flat] = ToolForm(sort, name, namespace)
            grammar = function.pop("grammar", None)
            if grammar is not None:
                self.grammars[flat] = grammar
        if function.get("parameters") is None:
            function["parameters"] = {"type": "object"}
        self.places[f"tools[{len(self.functions)}].function"] = tool.path
        self.places[f"tools[{len(self.functions)}]"] = tool.path
        given = {key: value for key, value in function.items() if value is not None}
        self.functions.append({"type": "function", "function": given})

    def _build_custom_function(self, tool: ObjectReader) -> dict[str, Any]:
        description, text = tool.string("description") or "", {"type": "string"}
        made: dict[str, Any] = {"name": tool.get("name")}
        form = tool.child("format") or ObjectReader({})
        if form.word("type", ("text", "grammar")) == "grammar":
            syntax = form.required_string("syntax", expected="lark or regex")
            definition = form.required_string("definition")
            if syntax == "regex":
                text["pattern"] = f"^(?:{definition})$"
            elif syntax == "lark":
                made["grammar"] = definition
            else:
                raise wrong_value(form.param("syntax"), f"must be lark or regex, not {syntax}.")
            description = f"{description}\n\nThe input follows this {syntax} grammar:\n{definition}"
        made["description"] = description.strip() or None
        properties = {INPUT: {**text, "description": "The input of the tool, as plain text."}}
        made["parameters"] = {
            **{"type": "object", "properties": properties, "required": [INPUT]},
            "additionalProperties": False,
        }
        return made

    def _note_unknown_fields(self, tool: ObjectReader, known_fields: Sequence[str]) -> None:
        for name in tool.values:
            if name not in known_fields and tool.values[name] not in (None, False):
                self.changes.note(f"{tool.param(quote(name[:_MOST_CHARACTERS], safe=''))} dropped")


def read_choice(value: object, tools: ToolReader) -> object:
    """Return ``tool_choice`` as chat completions have it; raise :class:`InvalidRequest`."""
    if not isinstance(value, dict):
        if value == "required" and not tools.functions and tools.left_out:
            raise _build_choice_error(sorted(tools.left_out)[0], "tool_choice")
        return value
    fields = ObjectReader(value, "tool_choice")
    sort = fields.required_string("type", expected="the type of a tool, or allowed_tools")
    if sort != "allowed_tools":
        return _named_choice(_resolve_chosen_tool(fields, tools))
    mode = fields.word("mode", ("auto", "required", "none")) or "auto"
    if not fields.array("tools", most=MAX_TOOLS):
        raise missing(fields.param("tools"), "an array of at least one tool")
    names = []
    for entry in fields.objects("tools", most=MAX_TOOLS):
        if entry.required_string("type") in tools.left_out:
            tools.changes.note(f"{entry.path} dropped")
        else:
            names.append(_resolve_chosen_tool(entry, tools))
    if not names and mode == "required":
        raise _build_choice_error("a tool of the list", "tool_choice.tools")
    if not names or mode == "none":
        return "none"
    return {"type": sort, "allowed_tools": {"mode": mode, "tools": list(map(_named_choice, names))}}


def _named_choice(function_name: str) -> Entry:
    return {"type": "function", "function": {"name": function_name}}


def _resolve_chosen_tool(fields: ObjectReader, tools: ToolReader) -> str:
    sort = fields.required_string("type", expected="function or custom")
    if sort == "tool_search" and SEARCH in tools.forms:
        return SEARCH
    if sort not in ("function", "custom"):
        raise _build_choice_error(sort, fields.param("type"))
    name = fields.required_string("name")
    found = tools.resolve(name, fields.get("namespace"))
    if found is None:
        raise wrong_value(fields.param("name"), f"is {shown(name)}, which `tools` does not define.")
    return found


def _build_choice_error(tool_type: str, field: str) -> InvalidRequest:
    return unsupported(
        field,
        f"It demands a call of {shown(tool_type)}, which nobody runs here; define a tool of type "
        "`function` or `custom` that your program runs.",
    )


_START = re.compile(rf'\s*\{{\s*"{INPUT}"\s*:\s*"')
_LONGEST_START = 256  # characters; arguments that begin otherwise are read as a whole
_WHOLE_CHARACTERS = re.compile(
    r"""(?:[^"\\]
        |\\["\\/bfnrt]
        |\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}
        |\\u(?![dD][89abAB])[0-9a-fA-F]{4}
        |\\u[dD][89abAB][0-9a-fA-F]{2}(?=[^\\]|\\[^u]|\\u[^dD]|\\u[dD][^c-fC-F])
    )*""",
    re.VERBOSE,
)


class InputReader(Struct, eq=False):
    """Reads arguments like ``{"input": TEXT}`` in pieces; returns the text as soon as it is known.

    Arguments of another form are one piece at the end: their only text, or they themselves.
    """

    _pending_text: str = ""
    _is_form_known: bool = False
    _has_text_ended: bool = False
    _has_usual_form: bool = False  # they have the usual form

    def feed(self, piece: str) -> str:
        if self._has_text_ended:
            return ""
        self._pending_text += piece
        if not self._is_form_known:
            found = _START.match(self._pending_text)
            self._has_usual_form = found is not None
            self._is_form_known = self._has_usual_form or len(self._pending_text) > _LONGEST_START
            self._pending_text = self._pending_text[0 if found is None else found.end() :]
        return self._decode_pending_text() if self._has_usual_form else ""

    def finish(self) -> str:
        return "" if self._has_usual_form else _extract_input_text(self._pending_text)

    def _decode_pending_text(self) -> str:
        found = _WHOLE_CHARACTERS.match(self._pending_text)
        end = found.end() if found is not None else 0
        raw, self._pending_text = self._pending_text[:end], self._pending_text[end:]
        if self._pending_text.startswith('"'):
            self._has_text_ended = True
            self._pending_text = ""
        text: str = json.loads(f'"{raw}"', strict=False)
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _extract_input_text(arguments: str) -> str:
    try:
        values: Any = msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return arguments
    if not isinstance(values, dict):
        return arguments
    texts = [value for value in values.values() if isinstance(value, str)]
    given = values.get(INPUT)
    if isinstance(given, str):
        return given
    return texts[0] if len(values) == len(texts) == 1 else arguments
