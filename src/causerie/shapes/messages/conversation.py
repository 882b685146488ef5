"""Turns of the Messages API as messages of chat completions, with the place of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import field

from causerie.protocol.body import missing, shown, unsupported, wrong_type, wrong_value
from causerie.shapes.sealed_reasoning import reasoning_of
from causerie.shapes.translation import Translation

_ROLES = ("user", "assistant", "system")
_KINDS = "text, image, document (of text), tool_use, tool_result, thinking and redacted_thinking"
_NOT_PASSED: Mapping[str, frozenset[str]] = {
    "text": frozenset({"type", "text"}),
    "image": frozenset({"type", "source"}),
    "document": frozenset({"type", "source", "title", "context"}),
    "tool_use": frozenset({"type", "id", "name", "input"}),
    "tool_result": frozenset({"type", "tool_use_id", "content"}),
}
"""Fields of a block that take another form; all others are passed on under their names."""

Entry = dict[str, Any]


class MessagesTranslation(Translation, eq=False):
    """Makes messages of turns, with the place of each; ``called`` are the named functions."""

    called: set[str] = field(default_factory=set)
    omits_thinking: bool = False
    decided: bool = True  # the request itself says whether the model thinks

    def note(self, change: str) -> None:
        self.changes.note(change)

    def add_system(self, system: object) -> None:
        if system in (None, "", []):
            return
        if not isinstance(system, str | list):
            raise wrong_type("system", "a string or an array of text blocks", system)
        content = system
        if isinstance(system, list):
            content = self._parts(system, "system", new=True, only_text=True)
        self._add({"role": "system", "content": content}, "system", "system")

    def add_turns(self, turns: object) -> None:
        """Add all turns; drop unsupported blocks before the last user turn, refuse later ones."""
        if not isinstance(turns, list):
            if turns is None:
                raise missing("messages", "an array of at least one message")
            raise wrong_type("messages", "an array of messages", turns)
        roles = [turn.get("role") if isinstance(turn, dict) else None for turn in turns]
        last = max((at for at, role in enumerate(roles) if role == "user"), default=0)
        for index, turn in enumerate(turns):
            self._add_turn(turn, f"messages[{index}]", new=index >= last)

    def _add_turn(self, turn: object, place: str, *, new: bool) -> None:
        if not isinstance(turn, dict):
            raise wrong_type(place, "an object with `role` and `content`", turn)
        role = turn.get("role")
        if role not in _ROLES:
            if role is None:
                raise missing(f"{place}.role", f"one of {', '.join(_ROLES)}")
            raise wrong_value(
                f"{place}.role", f"must be one of {', '.join(_ROLES)}, not {shown(role)}."
            )
        content = turn.get("content")
        others = {name: value for name, value in turn.items() if name not in ("role", "content")}
        if not isinstance(content, list):
            self._add({"role": role, "content": content, **others}, place, f"{place}.content")
        elif role == "assistant":
            self._add_answer(content, place, others)
        elif role == "system":
            parts = self._parts(content, f"{place}.content", new=new, only_text=True)
            self._add({"role": role, "content": parts, **others}, place, f"{place}.content")
        else:
            self._add_user(content, place, others, new=new)

    def _add(self, message: Entry, place: str, content: str) -> None:
        index = len(self.messages)
        if isinstance(message.get("content"), list):
            sources = message["content"]
            parts = message["content"] = [part for part, _ in sources]
            for at, (part, source) in enumerate(sources):
                here = f"messages[{index}].content[{at}]"
                self.names[here] = source
                if part["type"] == "image_url":
                    self.names[f"{here}.image_url"] = f"{source}.source"
                    self.names[f"{here}.image_url.url"] = f"{source}.source"
            first = parts[0] if len(parts) == 1 else {}
            if first.keys() == {"type", "text"} and isinstance(first["text"], str):
                message["content"] = first["text"]
        if content != f"{place}.content":
            self.names[f"messages[{index}].content"] = content
        self.messages.append(message)
        self.places.append(place)

    def _add_user(self, blocks: list[Any], place: str, others: Entry, *, new: bool) -> None:
        # Results come first, as their calls were just before; images in them follow, since a
        # message with a result is text alone.
        said: list[tuple[Entry, str]] = []
        shown_images: list[tuple[Entry, str]] = []
        results = 0
        for at, block in enumerate(blocks):
            where = f"{place}.content[{at}]"
            if isinstance(block, dict) and block.get("type") == "tool_result":
                results += 1
                shown_images += self._add_result(block, where)
                if said:
                    self.note(f"{where} moved")
            else:
                said += self._block(block, where, new=new)
        parts = shown_images + said
        if parts or not results:
            message: Entry = {"role": "user", "content": parts, **others}
            self._add(message, place, f"{place}.content")

    def _add_result(self, block: Entry, where: str) -> list[tuple[Entry, str]]:
        content = block.get("content")
        images: list[tuple[Entry, str]] = []
        if isinstance(content, list):
            parts = self._parts(content, f"{where}.content", new=False)
            images = [each for each in parts if each[0]["type"] == "image_url"]
            content = [each for each in parts if each[0]["type"] != "image_url"]
            for image, source in images:
                self.returned_images.add(image["image_url"]["url"])
                self.note(f"{source} moved")
        # A result without content says that it worked.
        message = {
            "role": "tool",
            "tool_call_id": block.get("tool_use_id"),
            "content": content or "",
            **_others(block),
        }
        if message.get("is_error") is False:
            del message["is_error"]
        self.names[f"messages[{len(self.messages)}].tool_call_id"] = f"{where}.tool_use_id"
        self._add(message, where, f"{where}.content")
        return images

    def _add_answer(self, blocks: list[Any], place: str, others: Entry) -> None:
        index = len(self.messages)
        said: list[tuple[Entry, str]] = []
        calls: list[Entry] = []
        thoughts: list[Entry] = []
        for at, block in enumerate(blocks):
            where = f"{place}.content[{at}]"
            kind = block.get("type") if isinstance(block, dict) else None
            if kind in ("thinking", "redacted_thinking"):
                found = reasoning_of(block, len(thoughts) + len(said) + len(calls))
                if not found:
                    self.note(f"{where} dropped")
                thoughts += found
                if found and found[-1].keys() != {"text"}:
                    self.names.setdefault(f"messages[{index}].reasoning_details", where)
            elif kind == "tool_use":
                here = f"messages[{index}].tool_calls[{len(calls)}]"
                self.names[here] = self.names[f"{here}.function"] = where
                self.names[f"{here}.function.arguments"] = f"{where}.input"
                calls.append(_call(block))
                self.called.add(str(block.get("name")))
            else:
                said += self._block(block, where, new=False)
        message: Entry = {"role": "assistant", "content": said or None, **others}
        if said == [] and not calls:
            message["content"] = ""
        if calls:
            message["tool_calls"] = calls
        if plain := [block["text"] for block in thoughts if block.keys() == {"text"}]:
            message["reasoning_content"] = "".join(plain)
        if signed := [block for block in thoughts if block.keys() != {"text"}]:
            message["reasoning_details"] = signed
        self._add(message, place, f"{place}.content")

    def _parts(
        self, blocks: Sequence[Any], place: str, *, new: bool, only_text: bool = False
    ) -> list[tuple[Entry, str]]:
        parts: list[tuple[Entry, str]] = []
        for at, block in enumerate(blocks):
            where = f"{place}[{at}]"
            made = self._block(block, where, new=new)
            if only_text and any(part.get("type") == "image_url" for part, _ in made):
                raise unsupported(f"{where}.type", "The system prompt is text.")
            parts += made
        return parts

    def _block(self, block: object, where: str, *, new: bool) -> Iterable[tuple[Entry, str]]:
        if not isinstance(block, dict):
            if new:
                raise wrong_type(where, "an object with a `type`", block)
            self.note(f"{where} dropped")
            return ()
        match block.get("type"):
            case "text":
                return (({"type": "text", "text": block.get("text"), **_others(block)}, where),)
            case "image" if (url := _address(block.get("source"))) is not None:
                image = {"type": "image_url", "image_url": {"url": url}, **_others(block)}
                return ((image, where),)
            case "document":
                parts = list(_document(block, self))
                if parts:
                    return [(part, where) for part in parts]
                what = f"{where}.source"
                advice = "Documents are texts here: send a `source` of type text or content."
            case "tool_reference" if not new:
                self.called.add(str(block.get("tool_name")))
                words = f"The tool {block.get('tool_name')} can be called now."
                return (({"type": "text", "text": words}, where),)
            case "image":
                what = f"{where}.source"
                advice = "Send the image itself (base64) or its `https` address (url)."
            case _:
                what, advice = f"{where}.type", f"Blocks are {_KINDS}."
        if new:
            raise unsupported(what, advice)
        self.note(f"{where} dropped")
        return ()


def _others(block: Entry) -> Entry:
    known = _NOT_PASSED[block["type"]]
    return {name: value for name, value in block.items() if name not in known}


def _call(block: Entry) -> Entry:
    given = block.get("input")
    arguments = given if isinstance(given, str) else msgspec.json.encode(given or {}).decode()
    function = {"name": block.get("name"), "arguments": arguments}
    return {"id": block.get("id"), "type": "function", "function": function, **_others(block)}


def _address(source: object) -> str | None:
    if not isinstance(source, dict):
        return None
    url = source.get("url")
    if source.get("type") == "url" and isinstance(url, str):
        return url
    media, data = source.get("media_type"), source.get("data")
    if source.get("type") == "base64" and isinstance(media, str) and isinstance(data, str):
        return f"data:{media};base64,{data}"
    return None


def _document(block: Entry, made: MessagesTranslation) -> Iterable[Entry]:
    source = block.get("source")
    content: object = None
    if isinstance(source, dict):
        content = source.get("data" if source.get("type") == "text" else "content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list) or not content:
        return
    head = [f"{name}: {block[name]}" for name in ("title", "context") if block.get(name)]
    yield {"type": "text", "text": "<document>\n" + "".join(f"{line}\n" for line in head)}
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text":
            yield {"type": "text", "text": part.get("text")}
        elif kind == "image" and (url := _address(part.get("source"))) is not None:
            yield {"type": "image_url", "image_url": {"url": url}}
        else:
            made.note("a part of a document dropped")
    yield {"type": "text", "text": "\n</document>", **_others(block)}
