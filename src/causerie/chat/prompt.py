"""From a request to a prompt, and from a prompt to token ids nobody could forge.

:func:`render` puts the request in front of the model's template.
:class:`PromptEncoder` turns the result into ids: a control token's text that
touches a character of a user is cut out and read as plain text, and all the
rest is read in one piece, so that an honest prompt has exactly the ids it
always had.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from causerie.chat import beside, fallback, history
from causerie.chat.formats.format import Calls, Format, Reasoning, ThinkingSwitch
from causerie.chat.parser import call_triggers
from causerie.chat.taint import Traced, authored
from causerie.chat.template import ChatTemplate, Rendered
from causerie.chat.traits import Entry, Traits, traits_of
from causerie.errors import InvalidRequest
from causerie.protocol.request import ChatRequest

_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
# What templates call it that the reasoning of earlier turns is shown too. Whoever sends it back
# wants that; most leave it out unless they are told, and the prompt is not the one in the cache.
_RECALL: dict[str, object] = {
    "clear_thinking": False,
    "drop_thinking": False,
    "keep_past_thinking": True,
    "preserve_thinking": True,
    "preserved_thinking": True,
    "truncate_history_thinking": False,
}
_LONG = 200_000  # characters; a longer conversation takes milliseconds, so it goes to a thread
_MANY = 200  # messages, likewise
_REMEMBERED = 8192  # forged texts whose ids are kept


def render(
    template: ChatTemplate,
    format: Format,
    request: ChatRequest,
    *,
    thinking_on: bool | None,
    effort: str | None,
) -> Rendered:
    """The prompt of a request; ``thinking_on`` ``None`` leaves thinking to the model.

    Raises :class:`InvalidRequest` where the template refuses the messages.
    """
    if request.documents and "documents" not in template.source:
        raise InvalidRequest(
            "This model's chat template shows no `documents`; put them into a message.",
            code="unsupported_parameter",
            param="documents",
        )
    thought = format.reasoning or Reasoning()
    traits = traits_of(
        template,
        format.arguments,
        format.reasoning_keys,
        (thought.open, thought.close),
        tuple((_RECALL | thinking_kwargs(format.thinking, True, None)).items()),
    )
    continued = request.continue_final_message
    conversation = _conversation(format, request, traits, thinking_on)
    tools = history.tool_entries(request.tools, traits)
    shows_tools = format.native_tools and traits.tools
    if tools and not shows_tools:
        conversation = history.with_system(conversation, fallback.tools_text(tools, _calls(format)))
    conversation = history.arranged(conversation, traits)
    said: list[Traced] = []
    if not traits.text_before_calls:
        conversation, said = beside.taken_out(conversation, format, traits)
    rendered = template.render(
        history.in_parts(conversation) if traits.parts else conversation,
        tools=tools if tools and shows_tools else traits.empty_tools,
        documents=request.documents or None,
        add_generation_prompt=request.add_generation_prompt and not continued,
        kwargs={
            **_RECALL,
            **request.template_kwargs,
            **thinking_kwargs(format.thinking, thinking_on, effort),
        },
        amended=partial(beside.put_back, texts=said, begin=call_triggers(_calls(format))[0]),
    )
    return _ended(rendered, request, format) if continued else rendered


async def render_aside(
    template: ChatTemplate,
    format: Format,
    request: ChatRequest,
    *,
    thinking_on: bool | None,
    effort: str | None,
) -> Rendered:
    """As :func:`render`; a long conversation is rendered in a thread, so nobody else waits."""
    work = partial(render, template, format, request, thinking_on=thinking_on, effort=effort)
    size = sum(len(message.text) for message in request.messages)
    small = size <= _LONG and len(request.messages) <= _MANY
    return work() if small else await asyncio.to_thread(work)


def thinking_kwargs(
    switch: ThinkingSwitch | None, on: bool | None, effort: str | None
) -> dict[str, object]:
    """The template's keyword arguments for a setting; an effort becomes the nearest it knows."""
    if switch is None:
        return {}
    chosen = {} if on is None else switch.on if on else switch.off
    kwargs = {name: authored(v) if isinstance(v, str) else v for name, v in chosen.items()}
    if switch.effort and effort and on is not False:
        kwargs[switch.effort] = authored(_nearest(effort, switch.efforts))
    return kwargs


def _nearest(effort: str, known: Sequence[str]) -> str:
    ranked = [word for word in known if word in _EFFORTS]
    if effort in known or effort not in _EFFORTS or not ranked:
        return effort
    rank = _EFFORTS.index(effort)
    return min(ranked, key=lambda word: (abs(_EFFORTS.index(word) - rank), _EFFORTS.index(word)))


def _conversation(
    format: Format, request: ChatRequest, traits: Traits, thinking_on: bool | None
) -> list[Entry]:
    """The messages with calls, reasoning and wishes in a form that the template shows."""
    keys = format.reasoning_keys
    told = history.entries(request.messages, traits, keys)
    if request.continue_final_message:
        told[-1] = history.with_final(told[-1], keys)
    calls = _calls(format)
    shows_calls = format.native_tools and traits.calls
    in_messages = format.answer_open and not format.answer_close  # texts and calls are
    told = (
        history.one_call_each(told, traits) if shows_calls else fallback.without_calls(told, calls)
    )
    if format.reasoning is not None and traits.marked and not traits.reasoning:
        reasoning = format.reasoning
        told = [fallback.with_reasoning(entry, reasoning, keys, traits.gap) for entry in told]
    told = history.in_turns(told, traits)
    if shows_calls and not traits.calls_beside_text:
        told = [fallback.said_calls(entry, calls) if entry["content"] else entry for entry in told]
    elif shows_calls and not (traits.together and (traits.text_before_calls or not in_messages)):
        told = [part for entry in told for part in history.apart(entry, traits, keys)]
    elif shows_calls and not traits.text_before_calls and traits.told and not format.answer_open:
        told = [fallback.said_beside(entry, calls, keys) for entry in told]
    switch = format.thinking
    if switch is not None and thinking_on is not None:
        word = switch.system_on if thinking_on else switch.system_off
        if word:
            told = history.with_system(told, authored(word))
    if switch is None and thinking_on and format.reasoning is not None:
        told = history.with_system(told, fallback.thinking_text(format.reasoning))
    return told


def _calls(format: Format) -> Calls:
    return format.calls or fallback.PLAIN_CALLS


def _ended(rendered: Rendered, request: ChatRequest, format: Format) -> Rendered:
    """The prompt up to the end of the message that is to be continued."""
    if rendered.final_end is None:
        raise InvalidRequest(
            "The model's chat template does not show the last message, so it cannot be continued.",
            param="continue_final_message",
        )
    last = request.messages[-1]
    empty = not last.text and not (last.reasoning_content and format.reasoning_keys)
    return rendered.upto(rendered.final_end - (len(history.PLACEHOLDER) if empty else 0))


class Tokenizer(Protocol):
    """What is needed of a text engine here."""

    async def tokenize(self, pieces: Sequence[str | int], *, special: bool) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class Piece:
    """Text to be read in one go: with control tokens, or (``forged``) as plain text."""

    text: str
    forged: bool = False


@dataclass(frozen=True, slots=True)
class _Found:
    start: int
    stop: int


class ControlTokens:
    """The texts of a vocabulary's control tokens, arranged for finding them."""

    def __init__(self, ids: Mapping[str, int]) -> None:
        self.ids = {text: id for text, id in ids.items() if text.strip()}
        self._lengths: dict[str, set[int]] = {}  # by the first two letters
        for text in self.ids:
            self._lengths.setdefault(text[:2], set()).add(len(text))

    def found(self, text: str) -> list[_Found]:
        """Every occurrence of every token, overlapping ones too."""
        return [
            _Found(at, at + size)
            for head, sizes in self._lengths.items()
            for at in _places(text, head)
            for size in sizes
            if text[at : at + size] in self.ids and at + size <= len(text)
        ]


def spells(text: str, control_tokens: Iterable[str]) -> bool:
    """Whether a constraint's text (JSON, or patterns in it) spells a control token.

    A pattern may spell one in other ways than letter by letter; an angle
    bracket in one is taken for that.
    """
    plain = text.replace("\\", "")
    if '"pattern' in plain and "<" in plain:
        return True
    return any(len(token.strip()) > 2 and token in plain for token in control_tokens)


def split(rendered: Rendered, control_tokens: ControlTokens | Mapping[str, int]) -> list[Piece]:
    """The prompt in pieces, together its whole text.

    No piece that is read with control tokens has the text of one that touches
    a user's character. Where nothing is forged there is one piece.
    """
    if not isinstance(control_tokens, ControlTokens):
        control_tokens = ControlTokens(control_tokens)
    text = rendered.text
    if not text:
        return []
    found = sorted(control_tokens.found(text), key=lambda f: (f.start - f.stop, f.start))
    touches = _Touch(rendered.user)
    kept = bytearray(len(text))
    own = _Claims([one for one in found if not touches(one) and _take(kept, one)])
    cuts: set[int] = set()
    forged: list[_Found] = []
    taken = bytearray(len(text))
    for one in (one for one in found if touches(one)):
        edges = {e for whole in own.overlapping(one) for e in (whole.start, whole.stop)}
        inside = {edge for edge in edges if one.start < edge < one.stop}
        if inside:
            cuts |= inside  # cut beside the template's own token, which stays whole
        elif _take(taken, one):
            forged.append(one)
    return _pieces(text, forged, cuts)


class PromptEncoder:
    """Encodes prompts for one model; ``own`` is the text of its template and markers.

    A vocabulary may hold words that its tokenizer always reads whole (a tag, a
    run of blanks). Such a word counts as a control token only where ``own``
    has it.
    """

    def __init__(self, control_tokens: Mapping[str, int], own: str = "") -> None:
        self._tokens = ControlTokens(control_tokens)
        self._guarded = {id for text, id in self._tokens.ids.items() if text in own}
        self._plain: OrderedDict[str, tuple[int, ...]] = OrderedDict()

    async def encode(self, rendered: Rendered, engine: Tokenizer) -> list[int]:
        """Token ids of the prompt; the engine is asked once, and once more a new forgery."""
        mixed: list[str | int] = []
        long = len(rendered.text) > _LONG
        pieces = (
            await asyncio.to_thread(split, rendered, self._tokens)
            if long
            else split(rendered, self._tokens)
        )
        for piece in pieces:
            if piece.forged:
                mixed.extend(await self._as_plain_text(piece.text, engine))
            else:
                mixed.append(piece.text)
        return await engine.tokenize(mixed, special=True) if mixed else []

    async def _as_plain_text(self, text: str, engine: Tokenizer) -> tuple[int, ...]:
        known = self._plain.get(text)
        if known is None:
            known = tuple(await self._taken_apart(text, engine))
            self._plain[text] = known
            if len(self._plain) > _REMEMBERED:
                self._plain.popitem(last=False)
        return known

    async def _taken_apart(self, text: str, engine: Tokenizer) -> list[int]:
        """Ids without a guarded one, the text cut after its first letter where it must be."""
        ids = await engine.tokenize([text], special=False)
        if len(text) < 2 or self._guarded.isdisjoint(ids):
            return ids
        first = await engine.tokenize([text[0]], special=False)
        return first + await self._taken_apart(text[1:], engine)


class _Touch:
    """Whether a place has a character of a user."""

    def __init__(self, spans: Sequence[tuple[int, int]]) -> None:
        self._spans = spans
        self._starts = [start for start, _ in spans]

    def __call__(self, place: _Found) -> bool:
        at = bisect_right(self._starts, place.stop - 1) - 1
        return at >= 0 and self._spans[at][1] > place.start


class _Claims:
    """Places that do not overlap, in order."""

    def __init__(self, places: Sequence[_Found]) -> None:
        self._places = sorted(places, key=lambda place: place.start)
        self._stops = [place.stop for place in self._places]

    def overlapping(self, place: _Found) -> list[_Found]:
        at = bisect_right(self._stops, place.start)
        met = []
        while at < len(self._places) and self._places[at].start < place.stop:
            met.append(self._places[at])
            at += 1
        return met


def _take(taken: bytearray, place: _Found) -> bool:
    """Claim a place; False where a part of it is another's already."""
    if taken.find(1, place.start, place.stop) >= 0:
        return False
    taken[place.start : place.stop] = b"\x01" * (place.stop - place.start)
    return True


def _places(text: str, head: str) -> Iterator[int]:
    at = text.find(head)
    while at >= 0:
        yield at
        at = text.find(head, at + 1)


def _pieces(text: str, forged: Sequence[_Found], cuts: set[int]) -> list[Piece]:
    pieces: list[Piece] = []
    at = 0
    ends = [(cut, cut) for cut in cuts] + [(one.start, one.stop) for one in forged]
    for start, stop in [*sorted(ends), (len(text), len(text))]:
        if at < start:
            pieces.append(Piece(text[at:start]))
        if start < stop:
            pieces.append(Piece(text[start:stop], forged=True))
        at = max(at, stop)
    return pieces
