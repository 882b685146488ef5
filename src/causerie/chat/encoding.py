"""From a prompt to token ids that nobody could forge.

A control token's text that touches a character of a user is cut out and read as plain text.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from causerie.chat.template import Rendered
from causerie.chat.token_cache import ControlMatch, EncodedText, PromptEnd, TokenCache, Tokenizer
from causerie.http.event_loop import offload

_LONG = 200_000  # characters; a longer prompt takes milliseconds, so it goes to a thread
_MANY = 400  # texts of users in it, likewise: each stands between control tokens
_TURN = 1_000  # pieces between two turns of other requests
_REMEMBERED = 8192  # forged texts whose ids are kept


@dataclass(frozen=True, slots=True)
class EncodedPiece:
    """Text to be read with control tokens, or (``forged``) as plain text.

    If it is all of a prompt, ``heads`` are these.
    """

    text: str
    forged: bool = False
    heads: tuple[ControlMatch, ...] = field(default=(), compare=False)


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
        """Return every occurrence of every token, overlapping ones too."""
        return [
            _Found(at, at + size)
            for head, sizes in self._lengths.items()
            for at in _places(text, head)
            for size in sizes
            if text[at : at + size] in self.ids and at + size <= len(text)
        ]


def spells(text: str, control_tokens: Iterable[str]) -> bool:
    """Return whether a constraint's text (JSON, or patterns in it) spells a control token.

    A pattern may spell one in other ways than letter by letter. Any angle bracket
    in a pattern therefore counts as one.
    """
    plain = text.replace("\\", "")
    if '"pattern' in plain and "<" in plain:
        return True
    return any(len(token.strip()) > 2 and token in plain for token in control_tokens)


def split(rendered: Rendered, control_tokens: ControlTokens) -> list[EncodedPiece]:
    """Return the prompt in pieces, together its whole text.

    No piece that is read with control tokens has the text of one that touches a user's character.
    If nothing is forged there is one piece.
    """
    text = rendered.text
    if not text:
        return []
    found = sorted(control_tokens.found(text), key=lambda f: (f.start - f.stop, f.start))
    touches = _Touch(rendered.user)
    kept = bytearray(len(text))
    own = _Claims([one for one in found if not touches(one) and _claim(kept, one)])
    cuts: set[int] = set()
    forged: list[_Found] = []
    taken = bytearray(len(text))
    for one in (one for one in found if touches(one)):
        edges = {e for whole in own.overlapping(one) for e in (whole.start, whole.stop)}
        inside = {edge for edge in edges if one.start < edge < one.stop}
        if inside:
            cuts |= inside  # cut alongside the template's own token, which stays whole
        elif _claim(taken, one):
            forged.append(one)
    ids = control_tokens.ids
    heads = [
        ControlMatch(one.start, said := text[one.start : one.stop], ids[said]) for one in own.places
    ]
    return (
        _pieces(text, forged, cuts) if forged or cuts else [EncodedPiece(text, heads=tuple(heads))]
    )


class PromptEncoder:
    """Encodes prompts for one model; ``own`` is the text of its template and markers.

    A vocabulary may hold words that its tokenizer always reads whole (a tag, a
    run of blanks). Such a word counts as a control token only where ``own``
    has it.
    """

    def __init__(self, control_tokens: Mapping[str, int], own: str = "") -> None:
        self._tokens = ControlTokens(control_tokens)
        self._guarded = {id for text, id in self._tokens.ids.items() if text in own}
        self._control = frozenset(self._tokens.ids.values())
        self._plain: OrderedDict[str, tuple[int, ...]] = OrderedDict()
        self._cache = TokenCache()

    async def encode(
        self,
        rendered: Rendered,
        engine: Tokenizer,
        most: int | None = None,
        parting: int = 0,
        scope: str = "",
    ) -> EncodedText:
        """Return the token ids of the prompt; only its new texts are sent to the engine.

        ``shared`` counts the tokens before the message that ``parting`` is in, a place in the
        text; 0 where a user's text looks like a control token. Replies of the same cache ``scope``
        have the tokens that they had. Raises :class:`PromptTooLong` where they are far more than
        ``most``.
        """
        long = len(rendered.text) > _LONG or len(rendered.user) > _MANY
        pieces = (
            await offload(split, rendered, self._tokens) if long else split(rendered, self._tokens)
        )
        if len(pieces) == 1 and not pieces[0].forged:
            only = pieces[0]
            return await self._cache.read(only.text, only.heads, engine, most, parting, scope)
        mixed: list[str | int] = []
        for number, piece in enumerate(pieces):
            if number % _TURN == _TURN - 1:
                await asyncio.sleep(0)
            if piece.forged:
                mixed.extend(await self._as_plain_text(piece.text, engine))
            else:
                mixed.append(piece.text)
        return EncodedText(await engine.tokenize(mixed, special=True) if mixed else [])

    def keep_reply(self, end: PromptEnd, text: str, ids: Sequence[int]) -> None:
        """Keep the ids that a model made of this text, a reply to a prompt with this end.

        They are kept where every control token among them is one in the text, and no text of
        several plain ones looks like one.
        """
        whole = end.text + text
        pieces = split(Rendered(whole, ()), self._tokens)
        heads = pieces[0].heads if pieces else ()
        control = [id for id in (*end.ids, *ids) if id in self._control]
        if control == [head.id for head in heads]:
            self._cache.keep_reply(end, whole, heads, ids)

    async def _as_plain_text(self, text: str, engine: Tokenizer) -> tuple[int, ...]:
        known = self._plain.get(text)
        if known is None:
            known = tuple(await self._tokenize_unguarded(text, engine))
            self._plain[text] = known
            if len(self._plain) > _REMEMBERED:
                self._plain.popitem(last=False)
        return known

    async def _tokenize_unguarded(self, text: str, engine: Tokenizer) -> list[int]:
        # The text is cut behind its first letter where its ids would be guarded ones.
        ids = await engine.tokenize([text], special=False)
        if len(text) < 2 or self._guarded.isdisjoint(ids):
            return ids
        first = await engine.tokenize([text[0]], special=False)
        return first + await self._tokenize_unguarded(text[1:], engine)


class _Touch:
    def __init__(self, spans: Sequence[tuple[int, int]]) -> None:
        self._spans = spans
        self._starts = [start for start, _ in spans]

    def __call__(self, place: _Found) -> bool:
        at = bisect_right(self._starts, place.stop - 1) - 1
        return at >= 0 and self._spans[at][1] > place.start


class _Claims:
    def __init__(self, places: Sequence[_Found]) -> None:
        self.places = sorted(places, key=lambda place: place.start)
        self._stops = [place.stop for place in self.places]

    def overlapping(self, place: _Found) -> list[_Found]:
        at = bisect_right(self._stops, place.start)
        met = []
        while at < len(self.places) and self.places[at].start < place.stop:
            met.append(self.places[at])
            at += 1
        return met


def _claim(taken: bytearray, place: _Found) -> bool:
    if taken.find(1, place.start, place.stop) >= 0:
        return False
    taken[place.start : place.stop] = b"\x01" * (place.stop - place.start)
    return True


def _places(text: str, head: str) -> Iterator[int]:
    at = text.find(head)
    while at >= 0:
        yield at
        at = text.find(head, at + 1)


def _pieces(text: str, forged: Sequence[_Found], cuts: set[int]) -> list[EncodedPiece]:
    pieces: list[EncodedPiece] = []
    at = 0
    ends = [(cut, cut) for cut in cuts] + [(one.start, one.stop) for one in forged]
    for start, stop in [*sorted(ends), (len(text), len(text))]:
        if at < start:
            pieces.append(EncodedPiece(text[at:start]))
        if start < stop:
            pieces.append(EncodedPiece(text[start:stop], forged=True))
        at = max(at, stop)
    return pieces


async def tokens_before_text(engine: Tokenizer, text: str) -> list[int]:
    """Return the tokens of a text of ours that more text is to follow.

    A tokenizer may read white space at the very end otherwise than before a word. The next turn
    sends both in one, and its tokens are to be the same.
    """
    letter = await engine.tokenize(["x"], special=True)
    followed = await engine.tokenize([f"{text}x"], special=True)
    if len(letter) == 1 and followed[-1:] == letter:
        return followed[:-1]
    return await engine.tokenize([text], special=True)
