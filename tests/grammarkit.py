"""Grammars tried out on a vocabulary of single bytes and a format's control tokens."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
from msgspec import structs

from causerie.chat.formats.format import CallSection, ModelFormat
from causerie.chat.schema.compiled import Work
from causerie.chat.validation import MOST_STEPS, CheckedSchema

_END = 256
_PLAIN = 'abc xyz019.,"\\{}[]<>\n'
_MARK = re.compile(r"</?[\w:|▁｜.\"-]+[|｜>]+>?|<\|\"\|>|\[/?[A-Z_]+\]|\]<\]minimax\[>\[")


def texts(form: ModelFormat) -> list[str]:
    """Every fixed text of a format."""
    found = [form.answer_open, form.answer_close, *form.skip]
    found += [form.reasoning.open, form.reasoning.close, form.reasoning.after_close]
    for calls in ways(form):
        found += [calls.lead, calls.begin, calls.separator, calls.end, *calls.lead_ins]
        for segment in calls.call:
            found += [value for value in structs.astuple(segment) if isinstance(value, str)]
    return [text for text in found if text]


def ways(form: ModelFormat) -> tuple[CallSection, ...]:
    return (form.calls, *form.calls.also)


def control_tokens(form: ModelFormat) -> Mapping[str, int]:
    """Return texts of a format that look like control tokens, with ids behind the bytes."""
    found = dict.fromkeys(mark for text in texts(form) for mark in _MARK.findall(text))
    return {mark: _END + 1 + at for at, mark in enumerate(found)}


class _Bytes:
    """The vocabulary in the words of the library."""

    def __init__(self, control: Mapping[str, int], special: bool) -> None:
        self.tokens = [bytes([value]) for value in range(256)]
        self.tokens += [b"<END>", *(mark.encode() for mark in control)]
        self.special_token_ids = [_END, *(control.values() if special else ())]
        self.eos_token_id = self.bos_token_id = _END

    def __call__(self, text: bytes | str) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """``control`` are read whole; ``special`` ones no text can be made of."""

    control: tuple[tuple[str, int], ...]
    special: bool

    def matcher(self, grammar: str) -> LLMatcher:
        return _matcher(self, grammar).deep_copy()

    def tokens(self, text: str) -> list[int]:
        ids = dict(self.control)
        if not ids:
            return list(text.encode())
        marks = "|".join(map(re.escape, sorted(ids, key=len, reverse=True)))
        out: list[int] = []
        for part in re.split(f"({marks})", text):
            out += [ids[part]] if part in ids else list(part.encode())
        return out

    def raw(self, tokens: Sequence[int]) -> bytes:
        names = {number: mark.encode() for mark, number in self.control}
        return b"".join(names.get(token) or bytes([token]) for token in tokens)

    def text(self, tokens: Sequence[int]) -> str:
        return self.raw(tokens).decode("utf-8", "replace")

    def refused_at(self, grammar: str, text: str) -> str | None:
        """The text up to where the grammar refuses it, ``None`` if it is a whole reply."""
        matcher = self.matcher(grammar)
        tokens = self.tokens(text)
        taken = matcher.try_consume_tokens(tokens)
        if taken < len(tokens):
            return self.text(tokens[: taken + 1])
        return None if matcher.is_accepting() else text + "…"

    def walk(self, grammar: str, markers: Sequence[str], seed: int) -> str:
        """A reply that the grammar admits, drawn at random but drawn to its end."""
        draw = random.Random(seed)
        matcher = self.matcher(grammar)
        out: list[int] = []
        while not matcher.is_stopped() and len(out) < 20_000:
            allowed = _numbers(matcher.compute_bitmask())
            if not allowed or (_END in allowed and draw.random() < 0.7):
                break
            token = self._drawn([each for each in allowed if each != _END], out, markers, draw)
            assert matcher.consume_token(token), matcher.get_error()
            out.append(token)
        else:
            assert matcher.is_stopped(), self.text(out)
        return self.text(out)

    def _drawn(
        self,
        allowed: Sequence[int],
        out: Sequence[int],
        markers: Sequence[str],
        draw: random.Random,
    ) -> int:
        if len(allowed) < 40:
            small = [each for each in allowed if chr(each) not in "eE" or ord("0") not in allowed]
            return draw.choice(small or list(allowed))  # no number is too large for a float
        control = [each for each in allowed if each > _END]
        if control and draw.random() < 0.4:
            return draw.choice(control)
        tail = self.raw(out[-40:])
        ends = [marker.encode() for marker in markers]
        for end in ends:
            for size in range(len(end) - 1, 0, -1):
                if tail.endswith(end[:size]) and end[size] in allowed:
                    return end[size]
        starts = [end[0] for end in ends if end[0] in allowed]
        if starts and draw.random() < 0.5:
            return draw.choice(starts)
        plain = [each for each in allowed if each < _END and chr(each) in _PLAIN]
        return draw.choice(plain or list(allowed))


@lru_cache(maxsize=256)
def _tokenizer(vocabulary: Vocabulary) -> LLTokenizer:
    return LLTokenizer(TokenizerWrapper(_Bytes(dict(vocabulary.control), vocabulary.special)))


@lru_cache(maxsize=32)
def _matcher(vocabulary: Vocabulary, grammar: str) -> LLMatcher:
    matcher = LLMatcher(_tokenizer(vocabulary), grammar, log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    return matcher


@lru_cache(maxsize=4096)
def _numbers(mask: bytes) -> Sequence[int]:
    """Return the tokens whose bits are set; inside a text they are mostly the same ones."""
    return [at for at in range(len(mask) * 8) if mask[at // 8] >> at % 8 & 1]


def vocabularies(form: ModelFormat) -> list[tuple[Mapping[str, int], Vocabulary]]:
    """The same format in three models: markers as text, as control tokens, as tokens of text."""
    control = control_tokens(form)
    given = tuple(control.items())
    return [
        ({}, Vocabulary((), False)),
        (control, Vocabulary(given, True)),
        (control, Vocabulary(given, False)),
    ]


def closers(form: ModelFormat) -> list[str]:
    """The texts that end a value: drawn at random they would not come about."""
    found = ['"']
    for calls in ways(form):
        for segment in calls.call:
            for name in ("after", "quote", "mark"):
                text = getattr(segment, name, "").strip()
                found += [text] if text else []
    return found


def fault_in(text: str, rules: Mapping[str, object]) -> str | None:
    """Return what a document breaks of a rewritten schema, or ``None``."""
    return CheckedSchema(rules).fault_of_text(text, Work(MOST_STEPS))
