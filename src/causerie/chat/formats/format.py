r"""The classes that declare a format: how one model family writes its replies.

The parser, the grammar and the renderer's hints all come from the one declaration, a table in
``formats.toml``. A call is a sequence of segments, for instance for Hermes::

    segments('<tool_call>\n{"name": "$NAME", "arguments": $JSON}\n</tool_call>')

Readers are lenient where it costs nothing; constraints produce exactly the declared text, which is
the one the model was trained on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal as OneOf

from msgspec import Struct

# Segments have tags because ``convert``, which reads the tables, demands them in a union.


class Literal(Struct, frozen=True, tag=True):
    """Fixed text, in which control tokens of the vocabulary are written as those tokens."""

    text: str
    also: tuple[str, ...] = ()
    """Other texts with the same meaning: admitted by the constraint and read, never asked for."""


class Name(Struct, frozen=True, tag=True):
    """The function's name, ended by the literal that follows."""


class CallId(Struct, frozen=True, tag=True):
    """The call's id, ended by the literal that follows."""

    pattern: str = "[a-zA-Z0-9]{9}"
    """Bounds the text of the id: a regular expression that both dialects know. ``{index}`` stands
    for the call's number, ``{name}`` for the function's name.
    """
    continues: bool = False  # count calls over the whole conversation (Kimi K2), else in their turn
    kept: bool = True
    """If False, the id only numbers the calls, and the client is given another one."""


class JsonArguments(Struct, frozen=True, tag=True):
    """The arguments as one JSON object, by the function's schema."""


class ParameterList(Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Arguments written one by one, strings raw and everything else as JSON.

    Each is ``before`` KEY ``between`` VALUE ``after``. The literal behind ends the list.
    """

    before: str
    between: str
    after: str
    between_json: str | None = None
    """Stands between KEY and a value that is no string, if strings are announced differently;
    ``{type}`` stands for the name of the value's JSON type.
    """
    constants: OneOf["json", "python"] = "json"  # texts of true, false and null as a whole value
    wrap: tuple[str, str] | None = None  # two texts that may enclose a string and are no part of it
    apart: str = ""  # white space that may stand before each: admitted and read, never asked for
    open_ended: bool = False  # if True, a value also ends at a line that begins with ``before``


class PythonArguments(Struct, frozen=True, tag=True):
    """Keyword arguments as in a Python call: ``a=1, b="x"``; the next literal begins with ``)``."""


class LooseArguments(Struct, frozen=True, tag=True):
    """An object in braces, with bare keys, strings between ``quote``: ``{a:<|"|>x<|"|>,n:1}``."""

    quote: str


class ElementArguments(Struct, frozen=True, tag=True):
    """Arguments as nested elements, ``mark`` before every tag: ``<a>x</a>``.

    Lists are ``<item>``s; null is left out. The literal behind begins with another closing tag.
    """

    mark: str


Segment = (Literal | Name | CallId | JsonArguments | ParameterList | PythonArguments
           | LooseArguments | ElementArguments)  # fmt: skip


_PLACEHOLDERS: Mapping[str, Segment] = {
    "$NAME": Name(),
    "$ID": CallId(),
    "$JSON": JsonArguments(),
    "$PYTHON": PythonArguments(),
}


def segments(*parts: str | Segment) -> tuple[Segment, ...]:
    """Return the segments of a call; a text is split into literals and placeholders."""
    found: list[Segment] = []
    for part in parts:
        texts = re.split(r"(\$[A-Z]+)", part) if isinstance(part, str) else [part]
        found += [
            _PLACEHOLDERS.get(each) or Literal(each) if isinstance(each, str) else each
            for each in texts
            if each
        ]
    return tuple(found)


class CallSection(Struct, frozen=True, forbid_unknown_fields=True):
    """A section of tool calls: ``begin`` call (``separator`` call)* ``end``."""

    call: tuple[Segment, ...]
    begin: str = ""
    separator: str = ""
    end: str = ""
    optional_end: bool = False  # if True, ``end`` may be missing
    triggers: tuple[str, ...] = ()
    """Texts at which a reader knows that the section has started; each is a prefix of ``begin`` +
    the first literal of ``call`` (by default the first word of it, without a bracket behind a
    marker).
    """
    holds_at: str = ""
    """Text within the first call at which a constraint takes hold, where what stands before may be
    something else than a call.
    """
    lead_ins: tuple[str, ...] = ()  # other beginnings with the same meaning: read, never written
    at_start: bool = False
    """Recognise the section only at the very beginning of the answer, and only with an offered
    function (families that mark it with nothing but a brace).
    """
    addressed: bool = False
    """The first text of a call, at the beginning of a message, is what tells it from other text."""
    parallel: bool = True  # if False, the family writes one call a turn
    lead: str = ""  # text before ``begin`` if no answer comes first
    also: tuple[CallSection, ...] = ()
    """Other syntaxes in which the same models write calls: read, held to the schema once started
    (but not those at the start alongside others that are not), never asked for.
    """

    @property
    def starts(self) -> tuple[str, ...]:
        """Return the texts at which the section has started, as declared or derived."""
        first = self.call[0]
        text = first.text if isinstance(first, Literal) else ""
        if self.triggers:
            return self.triggers
        if self.at_start:
            return (self.begin + text,)
        words = (self.begin or text).split()[:1]
        return tuple(re.sub(r"(?<=[>\]])[\[{].*", "", word) for word in words)

    @property
    def writes_json(self) -> bool:
        return JsonArguments() in self.call

    @property
    def is_named(self) -> bool:
        """Return whether the section begins with the name of its first function, unmarked.

        Then an offered function and the marker behind it, at the answer's beginning, are a call.
        """
        marked = self.begin or self.triggers or self.at_start
        return isinstance(self.call[0], Name) and not marked


class Reasoning(Struct, frozen=True, forbid_unknown_fields=True):
    """The markers around reasoning; white space at the edges of the text is not part of it."""

    open: str = "<think>"  # marker without white space
    close: str = "</think>"  # marker without white space
    after_open: str = "\n"
    """White space that the family writes there; used when we write the marker (forced close,
    rendering a partial reply). So are ``before_close`` and ``after_close``.
    """
    before_close: str = "\n"
    after_close: str = "\n\n"
    also_open: tuple[str, ...] = ()
    """Other markers that mean the same; read, never written. So are ``also_close``."""
    also_close: tuple[str, ...] = ()

    @property
    def opens(self) -> tuple[str, ...]:
        return (self.open, *self.also_open)

    @property
    def closes(self) -> tuple[str, ...]:
        return (self.close, *self.also_close)


class MessageHeader(Struct, frozen=True, forbid_unknown_fields=True):
    """Header of each message, for families that write a reply as several messages.

    It holds the role, the recipient (``to=NAME``) and the channel, in any order.
    """

    opens: tuple[str, ...]  # markers that begin a header
    close: str  # marker between the header and the text of the message
    ends: tuple[str, ...]  # markers that end a message
    channel: str = ""  # marker before the name of a channel
    within: tuple[str, ...] = ()  # markers without meaning that a header may hold
    reasoning_close: str = ""  # another such marker, which says that the message is reasoning
    call_close: str = ""
    """Another one, for a call: its header is the name of a function, which may be missing."""
    functions: str = ""
    """Text before the name of a function that is the recipient, which may be missing."""
    reasoning: tuple[str, ...] = ()  # channels and recipients whose messages are reasoning
    readers: tuple[str, ...] = ("user", "assistant")
    """Recipients that are no tools: the channel decides what a message to them is."""
    call: CallSection = CallSection((JsonArguments(),), parallel=False)
    """Text of a message to a function."""

    @property
    def closes(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.close, self.reasoning_close, self.call_close)))

    @property
    def recipients(self) -> tuple[str, ...]:
        """Return texts that begin a header where its first marker is missing or came already."""
        if self.call_close:
            return ()
        return ("to=", f"to={self.functions}") if self.functions else ("to=",)


class ThinkingSwitch(Struct, frozen=True, forbid_unknown_fields=True):
    on: Mapping[str, object] = {}  # template keyword arguments
    off: Mapping[str, object] = {}
    """Template keyword arguments; a ``mandatory`` thinker has none."""
    effort: str | None = None  # keyword argument that takes the effort as a word, if there is one
    efforts: tuple[str, ...] = ()  # words that ``effort`` knows
    default: OneOf["on", "off"] = "on"  # the model's behaviour without any argument
    mandatory: bool = False
    system_on: str | None = None
    """Word in the system message (``/think``), for a template that reads it there."""
    system_off: str | None = None
    """Word in the system message (``/no_think``), for a template that reads it there."""


HERMES_CALLS = CallSection(
    segments('<tool_call>\n{"name": "$NAME", "arguments": $JSON}\n</tool_call>'), separator="\n"
)


class ModelFormat(Struct, frozen=True, forbid_unknown_fields=True):
    """How one model family writes reasoning, calls and answers; the registry names it."""

    name: str = ""
    reasoning: Reasoning = Reasoning()
    thinking: ThinkingSwitch | None = None
    calls: CallSection = HERMES_CALLS
    answer_open: str = ""
    """Marker of the answer, if the family has one (``<response>``, ``<|START_RESPONSE|>``,
    harmony's final channel).
    """
    answer_close: str = ""
    answer_space: str = ""  # white space that the family writes behind ``answer_open``
    said_open: str = ""
    """Marker of a text before calls that is no answer, but a message of its own (harmony's
    commentary).
    """
    said_close: str = ""
    header: MessageHeader | None = None
    """Header by which messages are read; other fields then only say how they are written."""
    skip: tuple[str, ...] = ()  # other markers, without meaning, which are dropped from the output
    arguments: OneOf["object", "text"] = "object"
    """Type that the template expects of ``tool_calls[].function.arguments`` in the history."""
    reasoning_keys: tuple[str, ...] = ("reasoning_content",)
    """Message fields under which the template looks for earlier reasoning."""
    native_tools: bool = True
    """False if the template itself cannot show tools, so that the fallback's system message does
    it.
    """
    prompt_end: str = ""
    """Written behind a prompt that leaves to the model a text with only one possible form."""
