"""Engines by name: those of other packages, and the scripted one, which needs no weights.

Another package offers an engine under the entry-point group ``causerie.engines``: a callable
that takes the model's id, its ``ref`` from the configuration and its ``options``, and returns a
managed engine. The scripted engine gives exact streams for tests, demonstrations and
benchmarks.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from llguidance import LLMatcher

from causerie.engines import base
from causerie.engines.grammar_matcher import Spelling, guidance_tokenizer, has_bit
from causerie.engines.prefill import common_tokens, packed
from causerie.engines.weights.vocabulary import TokenTable, TokenType

if TYPE_CHECKING:
    from causerie.engines.fleet import ManagedEngine


FAKE_TEMPLATE = Path(__file__).with_name("fake.jinja").read_text("utf-8").strip()
FAKE_CONTROL = {"<|end|>": 256, "<|im_start|>": 257, "<|im_end|>": 258}
FAKE_END = FAKE_CONTROL["<|im_end|>"]
_MARKS = re.compile("(" + "|".join(map(re.escape, FAKE_CONTROL)) + ")")
_USER = b"user\n"
_ASSISTANT = b"assistant\n"
_START = FAKE_CONTROL["<|im_start|>"]
_BIASED_FOR_SURE = 100.0  # as much as a request may ask for
_YIELD_EVERY = 8  # tokens; between them others get their turn
_PREFERRED = b'"}]{:,0123456789etfnul aeio[<>/'


@dataclass(slots=True)
class FakeScript:
    """Script of the fake engine: its replies, when it fails, and what it waits for."""

    replies: Sequence[str] = ()  # returned in turn (default: the user's last message)
    fail_after: int | None = None  # a generation fails after so many tokens
    gate: asyncio.Semaphore | None = None  # if set, the engine waits for it before each token


@dataclass(slots=True)
class FakeEngine:
    """A scripted engine without weights; ``requests`` are the last hundred that it got.

    A token whose logit is raised by 100 or more is all it says; one that is
    lowered by as much is left out.
    """

    model: str
    script: FakeScript = field(default_factory=FakeScript)
    context_length: int = 8192
    slots: int = 16
    cache_tokens: int | None = None  # tokens of all requests together; `None` for no limit
    memory_bytes: int = 0
    template: str = FAKE_TEMPLATE
    requests: list[base.TextRequest] = field(default_factory=list)
    _engine_state: base.EngineState = base.EngineState.ABSENT
    _busy_slots: int = 0
    _reply_numbers: Iterator[int] = field(default_factory=itertools.count)
    _cached_prompts: dict[str, tuple[int, ...]] = field(default_factory=dict)  # by scope
    _model_facts: base.ModelFacts | None = None

    @classmethod
    def from_options(cls, model: str, ref: str | None, options: Mapping[str, Any]) -> Self:
        """Return a fake engine with these options; raise :class:`EngineFailed` for wrong ones."""
        del ref  # there are no weights
        for name, value in options.items():
            _require_valid_option(name, value)
        of_script = {name: options[name] for name in options if name in ("replies", "fail_after")}
        others = {name: options[name] for name in options if name not in of_script}
        return cls(model, FakeScript(**of_script), **others)

    async def start(self) -> None:
        self._engine_state = base.EngineState.READY

    async def stop(self) -> None:
        self._engine_state = base.EngineState.ABSENT

    def status(self) -> base.EngineStatus:
        return base.EngineStatus(
            self.model,
            self._engine_state,
            self.slots,
            self._busy_slots,
            context=self.context_length,
            cache_tokens=self.cache_tokens,
        )

    async def facts(self) -> base.ModelFacts:
        if self._model_facts is None:
            self._model_facts = base.ModelFacts(
                template=self.template,
                context_length=self.context_length,
                parallel=self.slots,
                control_tokens=FAKE_CONTROL,
                bos_token="",
                eos_token="<|im_end|>",
                end_tokens=(FAKE_END,),
                fingerprint="fake-1",
                words="fake-1",
                size=FAKE_END + 1,
            )
        return self._model_facts

    async def tokenize(self, pieces: Sequence[str | int], *, special: bool) -> list[int]:
        ids: list[int] = []
        for piece in pieces:
            ids += [piece] if isinstance(piece, int) else _fake_token_ids(piece, special=special)
        return ids

    async def texts(self, tokens: Sequence[int], *, visible: Sequence[str] = ()) -> list[str]:
        spelling = Spelling(_VOCABULARY, frozenset(), visible)
        return [spelling(id) for id in tokens]

    @asynccontextmanager
    async def generate(
        self, request: base.TextRequest
    ) -> AsyncIterator[AsyncIterator[base.Output]]:
        """Yield the next reply's tokens; if the prompt ends in its beginning, only the rest."""
        if len(request.prompt) >= self.context_length:
            raise base.PromptTooLong(len(request.prompt), self.context_length)
        if taken := _token_ids_already_accepted(request):
            _grammar_matcher(request, taken)
        self.requests.append(request)
        del self.requests[:-100]
        self._busy_slots += 1
        try:
            async with aclosing(self._generated_outputs(request)) as tokens:
                yield tokens
        finally:
            self._busy_slots -= 1

    async def _generated_outputs(
        self, request: base.TextRequest
    ) -> AsyncGenerator[base.Output, None]:
        prompt = tuple(request.prompt)
        before = self._cached_prompts.get(request.scope, ())
        cached = min(common_tokens(packed(before), packed(prompt)), max(len(prompt) - 1, 0))
        limit = min(request.max_tokens, self.context_length - len(prompt))
        yield base.Started(cached)
        made: list[int] = []
        spelling = Spelling(_VOCABULARY, frozenset(), request.visible)
        # Only a script may contain control tokens; what users wrote stays plain text.
        reply = _fake_token_ids(self.reply(prompt), special=bool(self.script.replies))
        for id in _generated_ids(reply, request, prompt):
            if len(made) == self.script.fail_after:
                raise base.EngineFailed("the script says that the engine fails here")
            if self.script.gate is not None:
                await self.script.gate.acquire()
            elif len(made) % _YIELD_EVERY == 0:
                await asyncio.sleep(0)
            made.append(id)
            yield _fake_token(id, spelling(id), request.logprobs)
            if id == FAKE_END or len(made) == limit:
                break
        self._cached_prompts[request.scope] = (*prompt, *made)
        ended = made[-1:] == [FAKE_END]
        yield base.Stopped("stop" if ended else "length", len(prompt), len(made), cached)

    def reply(self, prompt: Sequence[int]) -> str:
        """Return the script's next reply, or the user's last message without a script."""
        if self.script.replies:
            return self.script.replies[next(self._reply_numbers) % len(self.script.replies)]
        return _last_user_message_bytes(prompt).decode("utf-8", "replace")


def _fake_token_ids(text: str, *, special: bool) -> list[int]:
    if not special:
        return list(text.encode())
    return [
        id
        for part in _MARKS.split(text)
        for id in ([FAKE_CONTROL[part]] if part in FAKE_CONTROL else part.encode())
    ]


def _require_valid_option(name: str, value: object) -> None:
    numbers = ("fail_after", "context_length", "slots", "cache_tokens")
    kind = {"replies": list, "template": str, **dict.fromkeys(numbers, int)}.get(name)
    if kind is None:
        raise base.EngineFailed(
            f"the fake engine has no option {name}; it takes "
            "replies, fail_after, context_length, slots, cache_tokens and template"
        )
    number = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    texts = isinstance(value, list) and all(isinstance(item, str) for item in value)
    if not (number if kind is int else texts if kind is list else isinstance(value, str)):
        wanted = {int: "a number from 1", list: "a list of strings", str: "a string"}[kind]
        raise base.EngineFailed(f"the fake engine's option {name} is {wanted}")


def _last_user_message_bytes(prompt: Sequence[int]) -> bytes:
    turn: list[int] = []
    last = None
    for id in (*prompt, FAKE_END):
        if id < 256:
            turn.append(id)
            continue
        if bytes(turn).startswith(_USER):
            last = bytes(turn[len(_USER) :])
        turn = []
    return (last if last is not None else bytes(id for id in prompt if id < 256)).strip()


def _remaining_reply(reply: Sequence[int], prompt: Sequence[int]) -> Sequence[int]:
    opened = max((at for at, id in enumerate(prompt) if id == _START), default=-1) + 1
    said = list(prompt[opened + len(_ASSISTANT) :])
    resumed = (
        bytes(id for id in prompt[opened : opened + len(_ASSISTANT)] if id < 256) == _ASSISTANT
    )
    return reply[len(said) :] if resumed and list(reply[: len(said)]) == said else reply


def _generated_ids(
    reply: Sequence[int], request: base.TextRequest, prompt: Sequence[int]
) -> Iterator[int]:
    bias = request.sampling.logit_bias
    forced = [id for id, added in bias.items() if added >= _BIASED_FOR_SURE]
    banned = {id for id, added in bias.items() if added <= -_BIASED_FOR_SURE}
    if request.grammar is not None:
        ids = [id for id in forced or reply if id not in banned]
        # The reply may repeat what the grammar has accepted; only the rest is generated then.
        taken = _token_ids_already_accepted(request)
        again = _admitted_reply(ids, _grammar_matcher(request, ()), banned)
        if not all(next(again, FAKE_END) == id for id in taken):
            again = _admitted_reply(ids, _grammar_matcher(request, taken), banned)
        yield from again
        return
    ids = [id for id in forced or _remaining_reply(reply, prompt) if id not in banned]
    if request.ignore_eos or forced or FAKE_END in banned:
        yield from itertools.cycle([id for id in ids if id != FAKE_END] or [ord(".")])
    else:
        yield from (*ids, FAKE_END)


def _token_ids_already_accepted(request: base.TextRequest) -> list[int]:
    return [*request.resumed.encode(), *request.accepted]


# One schema is asked for up to a hundred times while a reply is drawn again.
@lru_cache(maxsize=1)
def _compiled_grammar(grammar: str) -> LLMatcher:
    matcher = LLMatcher(_fake_tokenizer(), grammar, log_level=0)
    if matcher.is_error():
        raise base.EngineFailed("the grammar does not compile")
    return matcher


def _grammar_matcher(request: base.TextRequest, accepted: Sequence[int]) -> LLMatcher:
    matcher = _compiled_grammar(request.grammar or "").deep_copy()
    if matcher.try_consume_tokens(list(accepted)) != len(accepted):
        raise base.NotAdmitted
    return matcher


def _admitted_reply(
    ids: Sequence[int], matcher: LLMatcher, banned: Collection[int]
) -> Iterator[int]:
    # A banned token completes the reply only where no other one is admitted.
    ways = (*_PREFERRED, *range(32, 256), *range(32), *FAKE_CONTROL.values())
    ways = tuple(sorted(ways, key=lambda id: id in banned))
    wanted = iter((*ids, FAKE_END))
    wish = next(wanted)
    while True:
        mask = matcher.compute_bitmask()
        if matcher.is_error():  # beyond the library's limits; llama.cpp goes on without it, too
            yield from (wish, *wanted, FAKE_END)
            return
        if has_bit(mask, wish):
            chosen = wish
            wish = next(wanted, FAKE_END)
        elif has_bit(mask, FAKE_END):
            chosen = FAKE_END
        else:
            chosen = next((id for id in ways if has_bit(mask, id)), FAKE_END)
        yield chosen
        if chosen == FAKE_END:
            return
        matcher.consume_token(chosen)


_VOCABULARY = TokenTable(
    tokens=(*(bytes([byte]) for byte in range(256)), *map(str.encode, FAKE_CONTROL)),
    types=(TokenType.NORMAL,) * 256 + (TokenType.CONTROL,) * len(FAKE_CONTROL),
    bos=None,
    eos=FAKE_END,
    end=(FAKE_END,),
)
_fake_tokenizer = cache(lambda: guidance_tokenizer(_VOCABULARY, lambda text: list(text.encode())))


def _fake_token(id: int, text: str, logprobs: int | None) -> base.Token:
    raw = bytes([id]) if id < 256 else b""
    if logprobs is None:
        return base.Token(id, text, raw)
    others = tuple(
        base.TokenAlternative(65 + n, chr(65 + n), bytes([65 + n]), -1.0 - n) for n in range(26)
    )
    top = (
        base.TokenAlternative(id, text, raw, -0.1),
        *(other for other in others if other.id != id),
    )
    return base.Token(id, text, raw, -0.1, top[:logprobs])


GROUP = "causerie.engines"


EngineFactory = Callable[[str, str | None, Mapping[str, Any]], "ManagedEngine"]
"""Makes an engine of id, reference and options; raises ``EngineFailed`` or ``ValueError``."""


def engine_names() -> list[str]:
    """Return the names of the engines that a model can have, those of other packages too."""
    return sorted({"llamacpp", "openvino", "vllm", "fake", *entry_points(group=GROUP).names})


def engine_factory(name: str) -> EngineFactory:
    """Return the factory of the fake engine or another package's; raise :class:`EngineFailed`."""
    if name == "fake":
        return FakeEngine.from_options
    for entry in entry_points(group=GROUP, name=name):
        try:
            factory: EngineFactory = entry.load()
        except (ImportError, AttributeError) as error:
            raise base.EngineFailed(
                f"the engine {name} of another package ({entry.value}) cannot be loaded: {error}"
            ) from error
        return factory
    raise base.EngineFailed(
        f"there is no engine named {name}; known are {', '.join(engine_names())}"
    )
