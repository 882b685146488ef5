"""The last requests of conversations, to say why one reuses less of the cache than it could."""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import msgspec

from causerie.engines.prefill import common_tokens, packed, token_count
from causerie.protocol.events import CacheMiss, CacheReport
from causerie.protocol.request import ChatRequest, Message

# Clients write the date, or the id of a session, at the head of a system prompt, and the whole
# prompt is computed again whenever it changes.

_MOST_LINES = 64
_MOST_CHARACTERS = 10_000  # of a line that are looked at
_DATE = re.compile(
    r"\b\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\b\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}\b|\b\d{1,2}:\d{2}\b"
    r"|\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?\s+\d|\b(?:mon|tues|wednes|thurs"
    r"|fri|satur|sun)day\b",
    re.IGNORECASE,
)
_ID = re.compile(r"\b(?=[a-f]*\d)[0-9a-f]{6,}\b", re.IGNORECASE)  # of a UUID, its first part


def line_hashes(text: str) -> tuple[int, ...]:
    """Return a hash of each of the first lines; it means nothing in another process."""
    return tuple(map(hash, text.split("\n", _MOST_LINES)[:_MOST_LINES]))


def changed_line(before: Sequence[int], text: str) -> str:
    """Return the number of the first line that differs, and what it seems to hold; or nothing."""
    lines = text.split("\n", _MOST_LINES)[:_MOST_LINES]
    pairs = enumerate(zip(before, map(hash, lines), strict=False))
    at = next((at for at, (old, new) in pairs if old != new), None)
    if at is None:
        return ""
    kinds = (("a date or time", _DATE), ("an id", _ID))
    line = lines[at][:_MOST_CHARACTERS]
    held = next((kind for kind, pattern in kinds if pattern.search(line)), None)
    return f"line {at + 1}" + (f", {held}" if held else "")


# A conversation is known by its caller and its first message that is no instruction, so that it is
# found under new instructions, too, and nobody learns of the conversations of others. Tokens and
# digests are kept in memory alone.

_MOST_BYTES = 16 * 2**20  # of tokens and digests
_MOST_REQUESTS = 4096
_DIGEST_BYTES = 16
_SLACK = 16  # tokens: fewer are no miss
_SHARE = 20  # nor is a twentieth of what could be reused

_encode = msgspec.msgpack.Encoder(enc_hook=repr).encode


@dataclass(frozen=True, slots=True)
class AskedBefore:
    """One request: digests of its messages and tools, and the tokens of its prompt."""

    messages: tuple[bytes, ...]
    instructing: tuple[bool, ...]
    tools: tuple[bytes, ...]
    settings: bytes
    prompt: bytes  # packed tokens
    has_reasoning: bool  # a message holds reasoning
    lines: tuple[tuple[int, ...], ...] = ()  # hashes of the first ones of leading system messages

    def conversation(self, caller: str) -> tuple[bytes, ...]:
        """Return digests of all messages but the system's; the first depends on the caller too."""
        both = zip(self.messages, self.instructing, strict=True)
        said = [digest for digest, instructs in both if not instructs]
        return (_compute_digest((caller, said[0])), *said[1:]) if said else ()


@dataclass(slots=True)
class _Answered:
    """A request whose reply has ended; ``computed`` are its packed tokens and those of the reply.

    The last token that was generated is not among them. ``reasoning`` tokens of the reply are
    reasoning. A reply that was ``cut`` ended in the middle of a call.
    """

    asked: AskedBefore
    computed: bytes
    reasoning: int
    cut: bool

    @property
    def size(self) -> int:
        lines = sum(map(len, self.asked.lines))
        return len(self.computed) + _DIGEST_BYTES * (len(self.asked.messages) + lines)


@dataclass(slots=True)
class Conversations:
    """The requests that were answered, the oldest first."""

    _answered: OrderedDict[tuple[bytes, ...], _Answered] = field(default_factory=OrderedDict)
    _by_first: dict[bytes, list[tuple[bytes, ...]]] = field(default_factory=dict)
    _stored_byte_count: int = 0

    def report(
        self, caller: str, request: ChatRequest, asked: AskedBefore, reused: int
    ) -> CacheReport:
        """Return how many tokens of a prompt were reused, and why not more where that is known."""
        said = asked.conversation(caller)
        keys = self._by_first.get(said[0], ()) if said else ()
        alike = max(reversed(keys), key=lambda key: _count_common_prefix(key, said), default=None)
        last = None if alike is None else self._answered[alike]
        miss = None if last is None else _find_cache_miss(last, asked, request.messages, reused)
        return CacheReport(token_count(asked.prompt), reused, miss)

    def answered(
        self, caller: str, asked: AskedBefore, ids: Sequence[int], reasoning: int, cut: bool = False
    ) -> None:
        """Keep a request whose reply has ended; it replaces the one that it continues."""
        said = asked.conversation(caller)
        if not said:
            return
        for key in list(self._by_first.get(said[0], ())):
            if said[: len(key)] == key:
                self._forget_conversation(key)
        kept = _Answered(asked, asked.prompt + packed(ids[:-1]), reasoning, cut)
        self._answered[said] = kept
        self._by_first.setdefault(said[0], []).append(said)
        self._stored_byte_count += kept.size
        while self._stored_byte_count > _MOST_BYTES or len(self._answered) > _MOST_REQUESTS:
            self._forget_conversation(next(iter(self._answered)))

    def _forget_conversation(self, message_digests: tuple[bytes, ...]) -> None:
        self._stored_byte_count -= self._answered.pop(message_digests).size
        alike = self._by_first[message_digests[0]]
        alike.remove(message_digests)
        if not alike:
            del self._by_first[message_digests[0]]


def asked_before(request: ChatRequest, prompt: Sequence[int]) -> AskedBefore:
    settings = (request.template_kwargs, request.thinking.enabled, request.thinking.effort)
    return AskedBefore(
        tuple(map(_compute_digest, request.messages)),
        tuple(message.role == "system" for message in request.messages),
        tuple(map(_compute_digest, request.tools)),
        _compute_digest((settings, request.documents)),
        packed(prompt),
        any(message.reasoning_content for message in request.messages),
        tuple(
            line_hashes(message.text)
            for message in takewhile(lambda one: one.role == "system", request.messages)
        ),
    )


def _compute_digest(content: object) -> bytes:
    return hashlib.blake2b(_encode(content), digest_size=_DIGEST_BYTES).digest()


def _count_common_prefix(digests: Sequence[bytes], other_digests: Sequence[bytes]) -> int:
    pairs = zip(digests, other_digests, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _is_reuse_short(reused_count: int, reusable_count: int) -> bool:
    return reusable_count - reused_count > max(reusable_count // _SHARE, _SLACK)


def _find_cache_miss(
    earlier: _Answered, current: AskedBefore, messages: Sequence[Message], reused_count: int
) -> CacheMiss | None:
    reusable = token_count(earlier.computed)
    if not _is_reuse_short(reused_count, reusable):
        return None
    common = common_tokens(earlier.computed, current.prompt)
    if _is_reuse_short(reused_count, common):
        return CacheMiss("evicted from the cache", reusable)
    before = earlier.asked
    if before.tools != current.tools:
        reordered = sorted(before.tools) == sorted(current.tools)
        return CacheMiss("tools reordered" if reordered else "tools changed", reusable)
    if before.settings != current.settings:
        return CacheMiss("thinking or template settings changed", reusable)
    at = _count_common_prefix(before.messages, current.messages)
    if at < len(before.messages):
        line, reason = "", "message edited" if at < len(current.messages) else "messages removed"
        if any((*before.instructing[at : at + 1], *current.instructing[at : at + 1])):
            reason = "system prompt changed"
        if at < min(len(before.lines), len(messages)) and messages[at].role == "system":
            line = changed_line(before.lines[at], messages[at].text)
        return CacheMiss(reason, reusable, at, line)
    reason = _explain_prompt_change(earlier, messages[at:], common)
    return CacheMiss(reason, reusable, at if common >= token_count(before.prompt) else None)


def _explain_prompt_change(earlier: _Answered, added: Iterable[Message], common_count: int) -> str:
    asked = token_count(earlier.asked.prompt)
    if common_count < asked:
        if earlier.asked.has_reasoning:
            return "template dropped reasoning"
        return "template wrote earlier messages differently"
    # Without its call a reply ends in another white space, which may belong to the last of these.
    thought = earlier.reasoning // 2 if earlier.cut else earlier.reasoning
    if common_count >= asked + thought:
        return "reply not sent back as it was"
    reply = next(iter(added), None)
    sent = reply is not None and reply.reasoning_content
    return "template dropped reasoning" if sent else "reasoning not sent back"
