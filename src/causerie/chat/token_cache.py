"""Token ids of texts that were read before, and of replies as the model made them."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Protocol

from causerie.engines.base import PromptTooLong
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


@dataclass(slots=True)
class ReplyTokens:
    """The segments of replies; at most so many characters, the last used last to go."""

    most: int
    _kept: OrderedDict[tuple[int, str], array[int]] = field(default_factory=OrderedDict)
    _characters: int = 0

    def of(self, segments: Iterable[str], scope: str = "") -> tuple[dict[int, array[int]], int]:
        """Return the tokens of what a model made of a prompt, by position; hash all but the last.

        The positions are those of the segments.
        """
        found: dict[int, array[int]] = {}
        before = following = hash(scope) if scope else 0
        for at, segment in enumerate(segments):
            before, key = following, (following, segment)
            following = hash(key)
            ids = self._kept.get(key)
            if ids is not None:
                found[at] = ids
                self._kept.move_to_end(key)
        return found, before

    def keep(self, before: int, segments: Sequence[str], ids: Sequence[array[int]]) -> None:
        """Keep the tokens of segments that follow each other, the first behind ``before``."""
        for segment, made in zip(segments, ids, strict=True):
            key = (before, segment)
            before = hash(key)
            if key not in self._kept:
                self._characters += len(segment)
            self._kept[key] = made
        while self._characters > self.most:
            (_, oldest), _ = self._kept.popitem(last=False)
            self._characters -= len(oldest)


# An engine takes some milliseconds to tokenize a thousand tokens, and a conversation comes back
# with every turn. Tokenizers read what stands between two control tokens by itself; of each control
# token the engine is asked once whether that is so.

_MOST = 4_000_000  # characters, of a model; two to four times as many bytes
# Around a control token, where some tokenizers take away or add blanks.
_BEFORE, _BEHIND = "x \n", " \nx"
_NONE = -1  # no token
_AT_ONCE = 200_000  # characters of a question; the ids of many more take long to decode
_MANY = 200_000  # tokens; up to here a prompt that does not fit is counted to its end
_FEW = 50_000  # tokens; to look through more takes milliseconds, so it goes to a thread


class Tokenizer(Protocol):
    """Interface to the tokenizer of a text engine."""

    async def tokenize(self, pieces: Sequence[str | int], *, special: bool) -> list[int]: ...


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
    """Tokens of the segments before the one that was asked for; 0 where it was not so read."""


@dataclass(slots=True)
class TokenCache:
    """Cache of the tokens of texts of one model; evicts the oldest first."""

    most: int = _MOST
    _known: OrderedDict[str, array[int]] = field(default_factory=OrderedDict)
    _characters: int = 0
    _apart: dict[str, bool] = field(default_factory=dict)  # by control token
    _replies: ReplyTokens = field(init=False)

    def __post_init__(self) -> None:
        self._replies = ReplyTokens(self.most)

    async def read(
        self,
        text: str,
        heads: Sequence[ControlMatch],
        engine: Tokenizer,
        most: int | None = None,
        parting: int = 0,
        scope: str = "",
    ) -> EncodedText:
        """Return the ids of the text, which has these control tokens, in order, and no others.

        ``shared`` counts those before the segment of the character at ``parting``. Replies have
        the tokens that the model made of them if they were made in this cache ``scope``.
        Asks the engine for what is new. Raises :class:`PromptTooLong` where far more than ``most``
        ids come: millions of them take long to put together.
        """
        if not await self._may_cut_before(heads, engine):
            return EncodedText(await engine.tokenize([text], special=True))
        turns = Turns()
        segments = _segments(text, heads)
        segment_ids = dict(zip(segments, _first_ids(heads), strict=True))
        await turns.pause()
        replies, before = self._replies.of(segments, scope)
        asked = {one for at, one in enumerate(segments) if one and at not in replies}
        found = {one: self._recalled(one) for one in segment_ids if one in asked}
        new = [one for one, ids in found.items() if ids is None]
        if new:
            read = await _tokenized(new, engine, most)
            first = [segment_ids[one] for one in new]
            few = len(read) <= _FEW
            parts = (
                _split_by_first_ids(read, first)
                if few
                else await offload(_split_by_first_ids, read, first)
            )
            if parts is None:
                return EncodedText(await engine.tokenize([text], special=True))
            found |= {one: self._remembered(one, ids) for one, ids in zip(new, parts, strict=True)}
        await turns.pause()
        every = [replies.get(at) or found.get(one) or () for at, one in enumerate(segments)]
        end = PromptEnd(before, segments[-1], every[-1])
        count = sum(map(len, every))
        _check(count, most)
        few = count <= _FEW
        before = bisect_right(heads, parting, key=lambda head: head.at)
        shared = sum(map(len, every[:before]))
        return EncodedText(_joined(every) if few else await offload(_joined, every), end, shared)

    def keep_reply(
        self, end: PromptEnd, text: str, heads: Sequence[ControlMatch], ids: Sequence[int]
    ) -> None:
        """Keep the ids of a reply to a prompt with this end.

        ``text`` is that of the end and the reply, with these control tokens.
        """
        named = zip(_segments(text, heads), _first_ids(heads), strict=True)
        segments = [(segment, first) for segment, first in named if segment]
        parts = _split_by_first_ids([*end.ids, *ids], [first for _, first in segments])
        if parts is not None:
            self._replies.keep(end.before, [segment for segment, _ in segments], parts)

    async def _may_cut_before(self, heads: Iterable[ControlMatch], engine: Tokenizer) -> bool:
        new = {head.text for head in heads}.difference(self._apart)
        if new:
            whole = [_BEFORE + head + _BEHIND for head in new]
            cut = [part for head in new for part in (_BEFORE, head + _BEHIND)]
            read = await engine.tokenize(whole, special=True)
            self._apart |= dict.fromkeys(new, read == await engine.tokenize(cut, special=True))
        return all(self._apart[head.text] for head in heads)

    def _recalled(self, text: str) -> array[int] | None:
        ids = self._known.get(text)
        if ids is not None:
            self._known.move_to_end(text)
        return ids

    def _remembered(self, text: str, kept: array[int]) -> array[int]:
        if text not in self._known:
            self._characters += len(text)
        self._known[text] = kept
        while self._characters > self.most:
            oldest, _ = self._known.popitem(last=False)
            self._characters -= len(oldest)
        return kept


def _segments(text: str, heads: Iterable[ControlMatch]) -> list[str]:
    cuts = [0, *(head.at for head in heads), len(text)]
    return [text[start:stop] for start, stop in pairwise(cuts)]


def _first_ids(heads: Iterable[ControlMatch]) -> list[int]:
    return [_NONE, *(head.id for head in heads)]


def _check(count: int, most: int | None) -> None:
    if most is not None and count > max(most, _MANY):
        raise PromptTooLong(count, most)


async def _tokenized(segments: Sequence[str], engine: Tokenizer, most: int | None) -> list[int]:
    read: list[int] = []
    part: list[str] = []
    characters = 0
    for segment in segments:
        if part and characters + len(segment) > _AT_ONCE:
            read += await engine.tokenize(part, special=True)
            _check(len(read), most)
            part, characters = [], 0
        part.append(segment)
        characters += len(segment)
    return read + await engine.tokenize(part, special=True)


def _joined(parts: Iterable[Sequence[int]]) -> list[int]:
    return list(chain.from_iterable(parts))


def _split_by_first_ids(ids: Sequence[int], segment_ids: Sequence[int]) -> list[array[int]] | None:
    heads = set(segment_ids)
    cuts = [at for at, id in enumerate(ids) if id in heads]
    if segment_ids[0] == _NONE:
        cuts, segment_ids = [0, *cuts], [ids[0], *segment_ids[1:]]
    if cuts[:1] != [0] or [ids[at] for at in cuts] != list(segment_ids):
        return None
    return [array("i", ids[start:stop]) for start, stop in pairwise([*cuts, len(ids)])]
