"""Encodes prompts as token ids in which no user can forge a control token.

A control token's text that touches a character of a user is cut out and read as plain text.
"""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, pairwise
from typing import TypeVar, cast

from causerie.chat.schema.bounded_cache import BoundedCache
from causerie.chat.template import Rendered
from causerie.engines.base import Image, ImageEngine, PicturedPrompt, PromptTooLong, TextEngine
from causerie.errors import InvalidRequest
from causerie.http.event_loop import Turns, offload

# A tokenizer often reads a text otherwise than a model writes it, above all under a grammar, and
# the engine would compute the reply again from the first token that differs. So a reply that comes
# back behind the very same texts, in the same cache scope, gets the tokens that the model made.


@dataclass(frozen=True, slots=True)
class PromptEnd:
    """The last segment of a prompt, with which a reply goes on.

    ``before`` is a hash of all segments before it. If two collide, a reply has tokens that the
    same text had in another conversation.
    """

    before: int
    text: str
    ids: Sequence[int]


# An engine takes some milliseconds to tokenize a thousand tokens, and a conversation comes back
# with every turn. Tokenizers read what stands between two control tokens by itself; of each control
# token the engine is asked once whether that is so.

_MOST = 4_000_000  # characters, of a model; two to four times as many bytes
# Around a control token, where some tokenizers take away or add blanks.
_BEFORE, _BEHIND = "x \n", " \nx"
_NONE = -1  # no token
_AT_ONCE = 200_000  # characters of a question; the ids of many more take long to decode
_MANY_TOKENS = 200_000  # tokens; up to here a prompt that does not fit is counted to its end
_FEW = 50_000  # tokens; to look through more takes milliseconds, so it goes to a thread


_T = TypeVar("_T")
_BREAK = "\u2060"  # word joiner: nobody sees it, and no control token has one
_ROUNDS = 8  # one control token may begin within another


@dataclass(frozen=True, slots=True)
class ControlMatch:
    """A control token in a text: where it begins, what it says, and its id."""

    at: int
    text: str
    id: int


@dataclass(frozen=True, slots=True)
class EncodedText:
    """Token ids of a text, and its last segment where it was read in segments."""

    ids: list[int]
    end: PromptEnd | None = None
    shared: int = 0
    """Tokens of the segments before the one that was asked for; 0 where it was not so read.

    Conversations with the same instructions share them.
    """
    pictured: PicturedPrompt | None = None  # for a prompt with images


class TokenCache:
    """Caches token ids of prompt texts and of replies, for up to ``most`` characters of either."""

    def __init__(self, most: int = _MOST) -> None:
        self._ids_by_text: BoundedCache[str, array[int]] = BoundedCache(most)
        self._ids_by_hash_and_reply: BoundedCache[tuple[int, str], array[int]] = BoundedCache(most)
        self._may_cut_by_token: dict[str, bool] = {}  # by control token

    async def read(
        self,
        text: str,
        heads: Sequence[ControlMatch],
        engine: TextEngine,
        most: int | None = None,
        parting: int = 0,
        scope: str = "",
    ) -> EncodedText:
        """Return the ids of a text whose only control tokens are ``heads``, in order.

        ``shared`` counts those before the segment of the character at ``parting``. Replies have
        the tokens that the model made of them if they were made in this cache ``scope``.
        Asks the engine for what is new. Raises :class:`PromptTooLong` where far more than ``most``
        ids come: millions of them take long to put together.
        """
        if not await self._may_cut_before(heads, engine):
            return EncodedText(await engine.tokenize([text], special=True))
        turns = Turns()
        segments = _split_before_matches(text, heads)
        segment_ids = dict(zip(segments, _list_first_segment_ids(heads), strict=True))
        await turns.pause()
        replies, before = self._find_reply_ids_and_hash(segments, scope)
        asked = {one for at, one in enumerate(segments) if one and at not in replies}
        found = {one: self._ids_by_text.get(one) for one in segment_ids if one in asked}
        new = [one for one, ids in found.items() if ids is None]
        if new:
            read = await _tokenize_segments(new, engine, most)
            divide = partial(_split_if_ids_match, read, [segment_ids[one] for one in new])
            parts = await offload(divide) if len(read) > _FEW else divide()
            if parts is None:
                return EncodedText(await engine.tokenize([text], special=True))
            for one, ids in zip(new, parts, strict=True):
                found[one] = ids
                self._ids_by_text.keep(one, ids, len(one))
        await turns.pause()
        every = [replies.get(at) or found.get(one) or () for at, one in enumerate(segments)]
        end = PromptEnd(before, segments[-1], every[-1])
        count = sum(map(len, every))
        _refuse_far_too_many(count, most)
        before = bisect_right(heads, parting, key=lambda head: head.at)
        shared = sum(map(len, every[:before]))
        joined = chain.from_iterable(every)
        whole = await offload(list, joined) if count > _FEW else list(joined)
        return EncodedText(whole, end, shared)

    def keep_reply(
        self, end: PromptEnd, text: str, heads: Sequence[ControlMatch], ids: Sequence[int]
    ) -> None:
        """Keep the ids of a reply to a prompt with this end.

        ``text`` is that of the end and the reply, with these control tokens.
        """
        named = zip(_split_before_matches(text, heads), _list_first_segment_ids(heads), strict=True)
        segments = [(segment, first) for segment, first in named if segment]
        parts = _split_if_ids_match([*end.ids, *ids], [first for _, first in segments])
        before = end.before
        for (segment, _), made in zip(segments, parts or (), strict=parts is not None):
            self._ids_by_hash_and_reply.keep((before, segment), made, len(segment))
            before = hash((before, segment))

    async def _may_cut_before(self, matches: Iterable[ControlMatch], engine: TextEngine) -> bool:
        new = {head.text for head in matches}.difference(self._may_cut_by_token)
        if new:
            whole = [_BEFORE + head + _BEHIND for head in new]
            cut = [part for head in new for part in (_BEFORE, head + _BEHIND)]
            read = await engine.tokenize(whole, special=True)
            same = read == await engine.tokenize(cut, special=True)
            self._may_cut_by_token |= dict.fromkeys(new, same)
        return all(self._may_cut_by_token[head.text] for head in matches)

    def _find_reply_ids_and_hash(
        self, segments: Iterable[str], cache_scope: str
    ) -> tuple[dict[int, array[int]], int]:
        # What a model made of the prompt, by position, and a hash of all segments but the last.
        found: dict[int, array[int]] = {}
        before = following = hash(cache_scope) if cache_scope else 0
        for at, segment in enumerate(segments):
            before, key = following, (following, segment)
            following = hash(key)
            ids = self._ids_by_hash_and_reply.get(key)
            if ids is not None:
                found[at] = ids
        return found, before


def _split_before_matches(text: str, matches: Iterable[ControlMatch]) -> list[str]:
    cuts = [0, *(head.at for head in matches), len(text)]
    return [text[start:stop] for start, stop in pairwise(cuts)]


def _list_first_segment_ids(matches: Iterable[ControlMatch]) -> list[int]:
    return [_NONE, *(head.id for head in matches)]


def _refuse_far_too_many(count: int, max_tokens: int | None) -> None:
    if max_tokens is not None and count > max(max_tokens, _MANY_TOKENS):
        raise PromptTooLong(count, max_tokens)


async def _tokenize_segments(
    segments: Sequence[str], engine: TextEngine, max_tokens: int | None
) -> list[int]:
    read: list[int] = []
    part: list[str] = []
    characters = 0
    for segment in segments:
        if part and characters + len(segment) > _AT_ONCE:
            read += await engine.tokenize(part, special=True)
            _refuse_far_too_many(len(read), max_tokens)
            part, characters = [], 0
        part.append(segment)
        characters += len(segment)
    return read + await engine.tokenize(part, special=True)


def _split_if_ids_match(ids: Sequence[int], first_ids: Sequence[int]) -> list[array[int]] | None:
    heads = set(first_ids)
    cuts = [at for at, id in enumerate(ids) if id in heads]
    if first_ids[0] == _NONE:
        cuts, first_ids = [0, *cuts], [ids[0], *first_ids[1:]]
    if cuts[:1] != [0] or [ids[at] for at in cuts] != list(first_ids):
        return None
    return [array("i", ids[start:stop]) for start, stop in pairwise([*cuts, len(ids)])]


_LONG = 200_000  # characters; a longer prompt takes milliseconds, so it goes to a thread
_MANY = 400  # texts of users in it, likewise: each stands between control tokens
_TURN = 1_000  # pieces between two turns of other requests
_REMEMBERED = 8192  # forged texts whose ids are kept


@dataclass(frozen=True, slots=True)
class EncodedPiece:
    """A piece of a prompt, to be read with control tokens or (``forged``) as plain text.

    If it is all of a prompt, ``heads`` are these.
    """

    text: str
    forged: bool = False
    heads: tuple[ControlMatch, ...] = field(default=(), compare=False)


class ControlTokens:
    """The texts of a vocabulary's control tokens, arranged for finding them."""

    def __init__(self, ids: Mapping[str, int]) -> None:
        self.ids = {text: id for text, id in ids.items() if text.strip()}
        self._token_lengths_by_prefix: dict[str, set[int]] = {}  # by the first two letters
        for text in self.ids:
            self._token_lengths_by_prefix.setdefault(text[:2], set()).add(len(text))

    def found(self, text: str) -> list[tuple[int, int]]:
        return [
            (at, at + size)
            for head, sizes in self._token_lengths_by_prefix.items()
            for at in _find_positions(text, head)
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
    """Return the pieces of a prompt in order, with forged control tokens as pieces of their own.

    No piece that is read with control tokens has the text of one that touches a user's character.
    If nothing is forged there is one piece.
    """
    text = rendered.text
    if not text:
        return []
    starts = [start for start, _ in rendered.user]

    def touches(place: tuple[int, int]) -> bool:
        at = bisect_left(starts, place[1]) - 1
        return at >= 0 and rendered.user[at][1] > place[0]

    found = sorted(control_tokens.found(text), key=lambda place: (place[0] - place[1], place[0]))
    kept = bytearray(len(text))
    own = sorted(place for place in found if not touches(place) and _claim_span(kept, place))
    edges = [edge for place in own for edge in place]
    cuts: set[int] = set()
    forged: list[tuple[int, int]] = []
    taken = bytearray(len(text))
    for place in filter(touches, found):
        inside = edges[bisect_right(edges, place[0]) : bisect_left(edges, place[1])]
        if inside:
            cuts.update(inside)  # cut alongside the template's own token, which stays whole
        elif _claim_span(taken, place):
            forged.append(place)
    if forged or cuts:
        return _cut_pieces(text, forged, cuts)
    ids = control_tokens.ids
    heads = (ControlMatch(at, said := text[at:stop], ids[said]) for at, stop in own)
    return [EncodedPiece(text, heads=tuple(heads))]


class PromptEncoder:
    """Encodes prompts for one model; ``own`` is the text of its template and markers.

    A vocabulary may hold words that its tokenizer always reads whole (a tag, a run of blanks). Such
    a word counts as a control token only where ``own`` has it.
    """

    def __init__(self, control_tokens: Mapping[str, int], own: str = "") -> None:
        self._control_tokens = ControlTokens(control_tokens)
        self._template_control_ids = {
            id for text, id in self._control_tokens.ids.items() if text in own
        }
        self._control_ids = frozenset(self._control_tokens.ids.values())
        self._plain_ids_by_text = BoundedCache[str, tuple[int, ...]](_REMEMBERED)
        self._needs_break_by_text: dict[str, bool] = {}  # whether one is needed, by control token
        self._token_cache = TokenCache()

    async def encode(
        self,
        rendered: Rendered,
        engine: TextEngine,
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
        pieces = await _maybe_offload(rendered, partial(split, rendered, self._control_tokens))
        if len(pieces) == 1 and not pieces[0].forged:
            only = pieces[0]
            return await self._token_cache.read(only.text, only.heads, engine, most, parting, scope)
        mixed: list[str | int] = []
        for number, piece in enumerate(pieces):
            if number % _TURN == _TURN - 1:
                _refuse_far_too_many(len(mixed), most)
                await asyncio.sleep(0)
            if not piece.forged:
                mixed.append(piece.text)
                continue
            ids = self._plain_ids_by_text.get(piece.text)
            if ids is None:
                ids = tuple(await self._tokenize_as_plain_text(piece.text, engine))
                self._plain_ids_by_text.keep(piece.text, ids, 1)
            mixed.extend(ids)
        _refuse_far_too_many(len(mixed), most)
        return EncodedText(await engine.tokenize(mixed, special=True) if mixed else [])

    async def encode_pictured(
        self, parts: Sequence[Rendered | Image], engine: TextEngine
    ) -> EncodedText:
        """Return the token ids of a prompt with images, and the prompt as the engine takes it.

        Such an engine reads texts alone, each part with all of its control tokens. So where a user
        wrote one's text, a character that nobody sees is put into it. Raises ``InvalidRequest``
        where that does not help.
        """
        pieces: list[str | Image] = []
        expected: list[int] | None = []
        for part in parts:
            if isinstance(part, Image):
                pieces.append(part)
                continue
            text, heads = await self._break_forged_and_list_control_ids(part, engine)
            pieces.append(text)
            expected = None if heads is None or expected is None else [*expected, *heads]
        ids = await cast(ImageEngine, engine).pictured_tokens(pieces)
        # Read once more: no other control token than the template's may be among them.
        if expected is not None:
            read = [id for id in ids if id in self._control_ids]
            if read != expected and read[1:] != expected:  # the engine may add the first
                raise _build_forged_token_error()
        return EncodedText(ids, pictured=PicturedPrompt(tuple(pieces), len(ids)))

    async def _break_forged_and_list_control_ids(
        self, rendered: Rendered, engine: TextEngine
    ) -> tuple[str, list[int] | None]:
        # Returns also the control tokens, or `None` where a user wrote words that the tokenizer
        # always reads whole.
        for _ in range(_ROUNDS):
            pieces = await _maybe_offload(rendered, partial(split, rendered, self._control_tokens))
            if not pieces or (len(pieces) == 1 and not pieces[0].forged):
                return rendered.text, [head.id for piece in pieces for head in piece.heads]
            forged = {piece.text for piece in pieces if piece.forged}
            for text in forged - self._needs_break_by_text.keys():
                self._needs_break_by_text[text] = await self._needs_break_if_forged(text, engine)
            work = partial(_insert_breaks, rendered, pieces, self._needs_break_by_text)
            broken = await _maybe_offload(rendered, work)
            if broken is rendered:
                return rendered.text, None
            rendered = broken
        raise _build_forged_token_error()

    async def _needs_break_if_forged(self, token_text: str, engine: TextEngine) -> bool:
        if len(token_text) < 2:
            return False
        id = self._control_tokens.ids[token_text]
        return id in self._template_control_ids or id not in await engine.tokenize(
            [token_text], special=False
        )

    def keep_reply(self, end: PromptEnd, text: str, ids: Sequence[int]) -> None:
        """Keep the ids that a model made of this text, a reply to a prompt with this end.

        They are kept where every control token among them is one in the text, and no text of
        several plain ones looks like one.
        """
        whole = end.text + text
        pieces = split(Rendered(whole, ()), self._control_tokens)
        heads = pieces[0].heads if pieces else ()
        control = [id for id in (*end.ids, *ids) if id in self._control_ids]
        if control == [head.id for head in heads]:
            self._token_cache.keep_reply(end, whole, heads, ids)

    async def _tokenize_as_plain_text(self, text: str, engine: TextEngine) -> list[int]:
        # The text is cut behind its first letter where its ids would be guarded ones.
        ids = await engine.tokenize([text], special=False)
        if len(text) < 2 or self._template_control_ids.isdisjoint(ids):
            return ids
        first = await engine.tokenize([text[0]], special=False)
        return first + await self._tokenize_as_plain_text(text[1:], engine)


async def _maybe_offload(rendered: Rendered, work: Callable[[], _T]) -> _T:
    long = len(rendered.text) > _LONG or len(rendered.user) > _MANY
    return await offload(work) if long else work()


def _insert_breaks(
    rendered: Rendered, pieces: Sequence[EncodedPiece], needs_break: Mapping[str, bool]
) -> Rendered:
    places: list[int] = []
    at = 0
    for before, piece in pairwise([EncodedPiece("", forged=True), *pieces]):
        if piece.forged:
            if needs_break[piece.text]:
                places.append(at + 1)
        elif not before.forged:
            places.append(at)
        at += len(piece.text)
    if not places:
        return rendered
    text, cuts = rendered.text, [0, *places, len(rendered.text)]
    spans = (
        (start + bisect_left(places, start), stop + bisect_right(places, stop))
        for start, stop in rendered.user
    )
    return Rendered(_BREAK.join(text[a:b] for a, b in pairwise(cuts)), tuple(spans))


def _build_forged_token_error() -> InvalidRequest:
    return InvalidRequest(
        "The messages hold the text of a control token of this model, which cannot stand in a "
        "prompt with images; leave it out.",
        param="messages",
    )


def _claim_span(taken_mask: bytearray, span: tuple[int, int]) -> bool:
    start, stop = span
    if taken_mask.find(1, start, stop) >= 0:
        return False
    taken_mask[start:stop] = b"\x01" * (stop - start)
    return True


def _find_positions(text: str, prefix: str) -> Iterator[int]:
    at = text.find(prefix)
    while at >= 0:
        yield at
        at = text.find(prefix, at + 1)


def _cut_pieces(text: str, forged: Sequence[tuple[int, int]], cuts: set[int]) -> list[EncodedPiece]:
    pieces: list[EncodedPiece] = []
    at = 0
    ends = [*((cut, cut) for cut in cuts), *forged]
    for start, stop in [*sorted(ends), (len(text), len(text))]:
        if at < start:
            pieces.append(EncodedPiece(text[at:start]))
        if start < stop:
            pieces.append(EncodedPiece(text[start:stop], forged=True))
        at = max(at, stop)
    return pieces


async def tokens_before_text(engine: TextEngine, text: str) -> list[int]:
    """Return the tokens that a text has when more text follows it.

    A tokenizer may read white space at the very end otherwise than before a word. The next turn
    sends both in one, and its tokens are to be the same.
    """
    letter = await engine.tokenize(["x"], special=True)
    followed = await engine.tokenize([f"{text}x"], special=True)
    if len(letter) == 1 and followed[-1:] == letter:
        return followed[:-1]
    return await engine.tokenize([text], special=True)
