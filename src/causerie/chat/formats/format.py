"""The vocabulary that a format is declared in.

A :class:`ModelFormat` says how one model family writes its reasoning, its answer
and its tool calls. It is data: the parser (:mod:`causerie.chat.parser`), the
constraint (:mod:`causerie.chat.constraint`) and the renderer's hints all come
from the one declaration, so they cannot disagree.

A call is a sequence of segments, for instance for Hermes::

    (Literal('<tool_call>\\n{"name": "'), Name(), Literal('", "arguments": '),
     JsonArguments(), Literal('}\\n</tool_call>'))

Whoever reads is lenient where it costs nothing (white space in a literal
matches any white space or none), whoever constrains writes exactly what is
declared. The literal text is the one the model was trained on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal as OneOf


@dataclass(frozen=True, slots=True)
class Literal:
    """Fixed text. Parts of it that are control tokens of the vocabulary are written as those."""

    text: str


@dataclass(frozen=True, slots=True)
class Name:
    """The function's name, ended by the literal that follows."""


@dataclass(frozen=True, slots=True)
class CallId:
    """The call's id, ended by the literal that follows.

    ``pattern`` (a regular expression both dialects know) bounds what is
    written; ``{index}`` in it stands for the call's number, counted over the
    whole conversation where ``continues`` is set (Kimi K2), else in its turn,
    and ``{name}`` for the function's name. Where ``kept`` is False it only numbers
    the calls, and the client is given another id.
    """

    pattern: str = "[a-zA-Z0-9]{9}"
    continues: bool = False
    kept: bool = True


@dataclass(frozen=True, slots=True)
class JsonArguments:
    """The arguments as one JSON object, by the function's schema."""


@dataclass(frozen=True, slots=True)
class ParameterList:
    """Arguments written one by one, strings raw and everything else as JSON.

    Each is ``before`` KEY ``between`` VALUE ``after``. Where strings are
    announced differently from other values, ``between`` is for strings and
    ``between_json`` for the others; ``{type}`` in it stands for the name of
    the value's JSON type. ``constants`` is how true, false and null are written
    where they are a whole value. A string may stand between the two texts of
    ``wrap``, which are no part of it. The list is ended by the literal that
    follows.
    """

    before: str
    between: str
    after: str
    between_json: str | None = None
    constants: OneOf["json", "python"] = "json"
    wrap: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class PythonArguments:
    """Keyword arguments as in a Python call: ``a=1, b="x", c=None``.

    Ended by ``)``, which belongs to the literal that follows.
    """


@dataclass(frozen=True, slots=True)
class LooseArguments:
    """An object with bare keys and strings between ``quote``: ``{a:<|"|>x<|"|>,n:1}``.

    Its braces are part of it.
    """

    quote: str


@dataclass(frozen=True, slots=True)
class ElementArguments:
    """Arguments as nested elements, ``mark`` before every tag: ``<a>x</a>``.

    Lists are ``<item>``s; null is left out. Ended by a closing tag that closes
    none of them, which belongs to the literal that follows.
    """

    mark: str


Segment = (
    Literal
    | Name
    | CallId
    | JsonArguments
    | ParameterList
    | PythonArguments
    | LooseArguments
    | ElementArguments
)


@dataclass(frozen=True, slots=True)
class CallSection:
    """A section of tool calls: ``begin`` call (``separator`` call)* ``end``.

    ``triggers`` are the texts at which a reader knows that the section has
    started; each is a prefix of ``begin`` + the first literal of ``call`` (by
    default that of the canonical writing up to the first place that varies).
    ``lead_ins`` lists other ways to begin that mean the same and are read,
    never written. With ``at_start`` the section is only recognised at the very
    beginning of the answer, and only with a function that was offered
    (families that mark it with nothing but a brace).
    Where ``parallel`` is False the family writes one call a turn.

    ``lead`` is what the family writes before ``begin`` where no answer comes
    first. ``also`` are other ways in which the same models write calls: read,
    held to the schema once started (but not those at the start alongside others
    that are not), never asked for.
    """

    call: tuple[Segment, ...]
    begin: str = ""
    separator: str = ""
    end: str = ""
    triggers: tuple[str, ...] = ()
    lead_ins: tuple[str, ...] = ()
    at_start: bool = False
    parallel: bool = True
    lead: str = ""
    also: tuple[CallSection, ...] = ()


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Text between ``open`` and ``close``; white space at its edges is not part of it.

    ``open`` and ``close`` are the markers without white space; ``after_open``
    and ``before_close`` / ``after_close`` is the white space the family writes
    around them, used when we write them (forced close, rendering a partial
    reply). ``also_open`` are other markers that mean the same.
    """

    open: str = "<think>"
    close: str = "</think>"
    after_open: str = "\n"
    before_close: str = "\n"
    after_close: str = "\n\n"
    also_open: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ThinkingSwitch:
    """Control of thinking in the family's template.

    ``on`` and ``off`` are template keyword arguments. ``effort`` names the
    keyword argument that takes the effort as a word, if there is one, and
    ``efforts`` the words it knows. ``default`` is the model's behaviour without
    any argument. A ``mandatory`` thinker has no ``off``. A family whose template
    reads a word in the system message instead sets ``system_on`` / ``system_off``
    (``/think``, ``/no_think``).
    """

    on: Mapping[str, object] = field(default_factory=dict)
    off: Mapping[str, object] = field(default_factory=dict)
    effort: str | None = None
    efforts: tuple[str, ...] = ()
    default: OneOf["on", "off"] = "on"
    mandatory: bool = False
    system_on: str | None = None
    system_off: str | None = None


@dataclass(frozen=True, slots=True)
class ModelFormat:
    """One model family.

    ``detect`` are sets of substrings; a template that contains all of one set
    is of this family (the registry tries formats in order, the most specific
    first). ``answer_open`` / ``answer_close`` mark the answer where the family
    marks it (``<response>``, ``<|START_RESPONSE|>``, harmony's final channel), with
    ``answer_space`` white space that it writes behind the former,
    ``said_open`` / ``said_close`` a text before calls where it is no answer, but
    a message of its own (harmony's commentary);
    ``skip`` are other markers that carry nothing and are dropped from the
    output. ``arguments`` says what the template wants in
    ``tool_calls[].function.arguments`` of the history. ``reasoning_keys`` are
    the message fields under which the template looks for earlier reasoning.
    ``native_tools`` is False where the template itself cannot show tools, so
    that the fallback's system message does it. ``prompt_end`` is written behind
    a prompt that leaves to the model what could only be this.
    """

    name: str
    detect: tuple[tuple[str, ...], ...] = ()
    reasoning: Reasoning | None = None
    thinking: ThinkingSwitch | None = None
    calls: CallSection | None = None
    answer_open: str = ""
    answer_close: str = ""
    answer_space: str = ""
    said_open: str = ""
    said_close: str = ""
    skip: tuple[str, ...] = ()
    arguments: OneOf["object", "text"] = "object"
    reasoning_keys: tuple[str, ...] = ("reasoning_content",)
    native_tools: bool = True
    prompt_end: str = ""
