"""Translate the items of an input into messages of chat completions.

What the model said in one turn (reasoning, text, calls) are several items and one message. Items
before the last one of a user or a tool are past: a client cannot repair them, so what is wrong
there is dropped and named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import field

from causerie.errors import InvalidRequest
from causerie.protocol.body import ObjectReader, as_object, unsupported, wrong_type
from causerie.protocol.reasoning import text_of
from causerie.shapes.chat_completions.messages import read_part
from causerie.shapes.responses.tools import INPUT, SEARCH, ToolReader, flat_name
from causerie.shapes.sealed_reasoning import SealedReasoning, unseal
from causerie.shapes.translation import Translation

_TEXTS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output", "tool_search_output"})
_ITEM = frozenset({"type", "id", "status", "created_by", "caller", "phase"})
_IMAGE_ADVICE = (
    "Images are not kept here; send the image itself as a `data:` address, in `image_url`."
)

Entry = dict[str, Any]


class ItemReader(Translation, eq=False):
    """Makes messages of items; ``places`` and ``names`` tell where each of them stood."""

    tools: ToolReader = field(default_factory=ToolReader)
    _turn: Entry | None = None  # the message of the model that further items add to
    _turn_place: str = ""
    _last: str = ""  # type of the item before
    _images: list[Entry] = field(default_factory=list)  # results that messages of tools cannot hold

    def __post_init__(self) -> None:
        self.tools.changes = self.changes

    def read_input(self, value: object) -> None:
        """Read a text or a list of items; raise for what is wrong in the newest ones."""
        if isinstance(value, str):
            self.add({"role": "user", "content": value}, "input")
        elif isinstance(value, list):
            newest = max((at for at, item in enumerate(value) if _is_news(item)), default=0)
            for at, item in enumerate(value):
                self._item(as_object(item, f"input[{at}]", "an object with a `type`"), at < newest)
            self._close_turn()
            self._add_images()
        elif value is not None:
            raise wrong_type("input", "a string or an array of items", value)

    def add(self, message: Entry, place: str) -> None:
        self.messages.append(message)
        self.places.append(place)

    def _item(self, item: ObjectReader, past: bool) -> None:
        sort = item.get("type") or ("message" if item.has("role") else None)
        if not isinstance(sort, str):
            item.required_string("type", expected="the type of an item, like message")
        sort = str(sort)
        if sort == "item_reference":
            raise unsupported(
                item.param("type"),
                "Nothing is stored here; send the item itself in place of its reference, as "
                "many clients do with `store: false`.",
            )
        if sort not in _OUTPUTS and self._last in _OUTPUTS:
            self._add_images()
        if sort not in _READERS:
            self._note(item.path, sort, "dropped")
            return
        reader, fields = _READERS[sort]
        if fields:
            self.changes.note_others(item, _ITEM | fields)
        reader(self, item, past)
        self._last = sort

    def _note(self, place: str, sort: str, what: str) -> None:
        shown = f" {quote(sort[:64], safe='')}" if sort else ""
        self.changes.note(f"{place}{shown} {what}")

    def _message(self, item: ObjectReader, past: bool) -> None:
        role = item.get("role")
        if role == "assistant":
            self._said(item)
            return
        self._close_turn()
        content = item.get("content")
        if isinstance(content, list):
            place = item.param("content")
            parts = [self._part(part, f"{place}[{at}]", past) for at, part in enumerate(content)]
            content = [part for part in parts if part is not None]
            if content == [] and parts:
                content = ""
        self.add({"role": role, "content": content}, item.path)

    def _part(self, part: object, place: str, past: bool) -> object:
        if not isinstance(part, dict):
            return part
        sort = part.get("type")
        if (field := _text_field(sort)) is not None:
            for name in part.keys() - {"type", "text", "refusal", "annotations", "logprobs"}:
                if part[name]:
                    self._note(f"{place}.{quote(name[:64], safe='')}", "", "dropped")
            return {"type": field, field: part.get(field)}
        if sort == "input_image" and isinstance(part.get("image_url"), str):
            at = f"messages[{len(self.messages)}]" + place[place.index(".content[") :]
            self.names[f"{at}.image_url.url"] = f"{place}.image_url"
            return _image(part)
        if past:
            self._note(place, str(sort), "dropped")
            return None
        if sort == "input_image":
            raise unsupported(
                f"{place}.{'file_id' if part.get('file_id') else 'type'}", _IMAGE_ADVICE
            )
        if sort == "input_file":
            raise unsupported(
                f"{place}.type",
                "Files are not read here; send their text in a part of type `input_text`.",
            )
        return part

    def _said(self, item: ObjectReader) -> None:
        if self._turn is not None and self._last == "message":
            self._close_turn()
        turn, content = self._open_turn(item), item.get("content")
        if isinstance(content, list):
            texts = [_text_of_part(part) for part in content]
            for at, text in enumerate(texts):
                if text is None:
                    self._note(f"{item.param('content')}[{at}]", "", "dropped")
            content = "".join(text for text in texts if text is not None)
        if isinstance(content, str):
            content = (turn["content"] or "") + content
        turn["content"] = content

    def _reasoning(self, item: ObjectReader, _: bool) -> None:
        sealed, found = item.get("encrypted_content"), None
        if sealed is not None:
            found = unseal(sealed)
            if found is None:
                self._note(item.param("encrypted_content"), "", "dropped")
        if found is None:
            text = text_of(item.get("content")) or text_of(item.get("summary"))
            found = SealedReasoning(text)
        if not found.text and not found.blocks:
            return
        turn = self._open_turn(item)
        if found.text:
            turn["reasoning_content"] = turn.get("reasoning_content", "") + found.text
        if found.blocks:
            turn["reasoning_details"] = [*turn.get("reasoning_details", ()), *found.blocks]

    def _call(self, item: ObjectReader, _: bool) -> None:
        turn = self._open_turn(item)
        name, arguments = item.get("name"), item.get("arguments")
        match item.get("type"):
            case "custom_tool_call":
                arguments = msgspec.json.encode({INPUT: item.get("input")}).decode()
            case "tool_search_call":
                name = SEARCH
                if not isinstance(arguments, str):
                    arguments = msgspec.json.encode(arguments or {}).decode()
        if isinstance(name, str):
            name = flat_name(name, item.get("namespace"))
        function = {"name": name, "arguments": arguments}
        calls = turn.setdefault("tool_calls", [])
        place = f"messages[{len(self.messages)}].tool_calls[{len(calls)}]"
        self.names[place] = self.names[f"{place}.function"] = item.path
        self.names[f"{place}.id"] = item.param("call_id")
        calls.append({"id": item.get("call_id"), "type": "function", "function": function})

    def _output(self, item: ObjectReader, _: bool) -> None:
        output = item.get("output")
        if isinstance(output, list):
            output = self._texts(output, item.param("output"))
        self._result(item, output)

    def _result(self, item: ObjectReader, content: object) -> None:
        self._close_turn()
        self.names[f"messages[{len(self.messages)}].tool_call_id"] = item.param("call_id")
        self.names[f"messages[{len(self.messages)}].content"] = item.param("output")
        message = {"role": "tool", "tool_call_id": item.get("call_id"), "content": content}
        self.add(message, item.path)

    def _texts(self, parts: Sequence[object], place: str) -> object:
        texts = []
        for at, part in enumerate(parts):
            text = _text_of_part(part)
            if text is not None:
                texts.append({"type": "text", "text": text})
            elif (image := _valid_image(part)) is not None:
                self._images.append(image)
                self.returned_images.add(image["image_url"]["url"])
                self._note(f"{place}[{at}]", "", "moved to a message of the user")
            else:
                self._note(f"{place}[{at}]", "", "dropped")
        return texts[0]["text"] if len(texts) == 1 else texts or ""

    def _add_images(self) -> None:
        # A message of a tool is text; a model sees an image in a message of the user.
        if self._images:
            text = {"type": "text", "text": "Images that the tools returned:"}
            self.add({"role": "user", "content": [text, *self._images]}, self.places[-1])
            self._images = []

    def _more_tools(self, item: ObjectReader, _: bool) -> None:
        self.tools.read(item.get("tools"), item.param("tools"), repeated=True)
        if item.get("type") == "tool_search_output":
            found: Any = item.get("tools") or ()
            names = [tool.get("name") for tool in found if isinstance(tool, dict)]
            self._result(item, msgspec.json.encode({"tools": names}).decode())

    def _open_turn(self, item: ObjectReader) -> Entry:
        if self._turn is None:
            self._turn = {"role": "assistant", "content": None}
            self._turn_place = item.path
        return self._turn

    def _close_turn(self) -> None:
        if self._turn is None:
            return
        if self._turn["content"] is None and not self._turn.get("tool_calls"):
            self._turn["content"] = ""
        self.add(self._turn, self._turn_place)
        self._turn = None


def _is_news(item: object) -> bool:
    if not isinstance(item, dict):
        return False
    sort = item.get("type") or "message"
    if isinstance(sort, str) and sort in _OUTPUTS:
        return True
    return sort == "message" and item.get("role") == "user"


def _text_of_part(part: object) -> str | None:
    if isinstance(part, str):
        return part
    field = _text_field(part.get("type")) if isinstance(part, dict) else None
    text = part.get(field) if isinstance(part, dict) and field else None
    return text if isinstance(text, str) else None


def _text_field(sort: object) -> str | None:
    return _TEXTS.get(sort) if isinstance(sort, str) else None


def _image(part: Mapping[str, Any]) -> Entry:
    image = {"url": part["image_url"]}
    if isinstance(part.get("detail"), str):
        image["detail"] = part["detail"]
    return {"type": "image_url", "image_url": image}


def _valid_image(part: object) -> Entry | None:
    if not isinstance(part, dict) or part.get("type") != "input_image":
        return None
    if not isinstance(part.get("image_url"), str):
        return None
    image = _image(part)
    try:
        read_part(ObjectReader(image), "user")
    except InvalidRequest:
        return None
    return image


_Read = Callable[[ItemReader, ObjectReader, bool], None]
_READERS: Mapping[str, tuple[_Read, frozenset[str]]] = {
    name: (read, frozenset(fields.split()))
    for name, read, fields in (
        ("message", ItemReader._message, "role content name"),
        ("reasoning", ItemReader._reasoning, "summary content encrypted_content"),
        ("function_call", ItemReader._call, "call_id name arguments namespace"),
        ("custom_tool_call", ItemReader._call, "call_id name input namespace"),
        ("tool_search_call", ItemReader._call, "call_id arguments execution"),
        ("function_call_output", ItemReader._output, "call_id output"),
        ("custom_tool_call_output", ItemReader._output, "call_id output"),
        ("tool_search_output", ItemReader._more_tools, "call_id tools execution"),
        ("additional_tools", ItemReader._more_tools, ""),
    )
}
"""How items are read by their types, and the fields of theirs that are known."""
