"""Carries out a plan for one choice: tokens in, events out.

Usually one run of the engine. Where something changes on the way that the
engine cannot do by itself (the budget of the reasoning is used up, a minimum
length is reached), the run ends and the next goes on from the very same
tokens, which the engine's prefix cache still holds.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field

from msgspec import structs

from causerie.chat.failures import engine_failures
from causerie.chat.formats.format import CallId
from causerie.chat.parser import Mode, Parser
from causerie.chat.plan import Plan
from causerie.chat.resumed_reply import Diverged, Given, ResumedReply
from causerie.chat.stops import StopStrings
from causerie.engines.base import Started, Stopped, TextEngine, TextRequest, Token
from causerie.protocol.events import (
    Batch,
    ContentEvent,
    Finished,
    FinishReason,
    TextDelta,
    TokenLogprob,
    Usage,
)
from causerie.protocol.parameters import SamplingParams
from causerie.protocol.request import ChatRequest

_ANSWER, _REASONING = Mode.ANSWER, Mode.REASONING  # asked at every token
_ALPHANUMERIC = string.ascii_letters + string.digits
_NEVER = -100.0  # a bias by which no token is drawn
_CHARACTER = 4  # tokens: more than a character has behind its first


@dataclass(slots=True)
class GeneratedCallIds:
    """Ids of calls: the model's own where they are new, else made here.

    ``taken`` are all ids of the conversation; nine letters and digits where
    the format writes such ids, for its template accepts no others. ``resumed``
    are those of calls that have gone out.
    """

    taken: set[str]
    short: bool
    resumed: list[str] = field(default_factory=list)

    def __call__(self, name: str, given: str) -> str:
        del name
        if self.resumed:
            return self.resumed.pop(0)
        if given and given not in self.taken:
            self.taken.add(given)
            return given
        while True:
            made = (
                "".join(secrets.choice(_ALPHANUMERIC) for _ in range(9))
                if self.short
                else f"call_{secrets.token_hex(12)}"
            )
            if made not in self.taken:
                self.taken.add(made)
                return made


def call_ids(
    request: ChatRequest, plan: Plan, resumed: ResumedReply | None = None
) -> GeneratedCallIds:
    """Return the ids for one choice of a request."""
    known = [call.id for call in resumed.partial.calls] if resumed else []
    taken = {call.id for message in request.messages for call in message.tool_calls}
    segments = plan.form.calls.call if plan.form.calls else ()
    short = any(
        isinstance(segment, CallId) and segment.pattern == CallId().pattern for segment in segments
    )
    return GeneratedCallIds(taken.union(known), short, known)


@dataclass(slots=True)
class Generation:
    """One choice being generated. Its counts of tokens (``completion``, ``reasoning`` of these,
    ``cached`` of the prompt) are right at any time, also when it is cut off.

    With ``resumed`` it goes on with a reply and counts only what is new; raises
    :class:`Diverged` where that, read by the model's parser, is another reply.
    """

    engine: TextEngine
    request: ChatRequest
    plan: Plan
    choice: int
    resumed: ResumedReply | None = None
    reasoning: int = field(init=False, default=0)
    cached: int = field(init=False, default=0)
    asked: bool = field(init=False, default=False)  # whether an engine has had the prompt
    said: int = field(init=False, default=0)  # tokens started with that said what has gone out
    _parser: Parser = field(init=False)
    _stops: StopStrings | None = field(init=False)
    _logprobs: list[TokenLogprob] = field(init=False, default_factory=list)
    _unread: list[TokenLogprob] = field(init=False, default_factory=list)  # may become answer yet
    _generated: list[int] = field(init=False, default_factory=list)
    # Tokens among them that another has counted, less those that the engine has not told of.
    _uncounted: int = field(init=False, default=0)
    _plain: bool = field(init=False)  # events of the answer go out as they are read
    _ended: FinishReason | None = field(init=False, default=None)
    _cut: bool = field(init=False, default=False)
    _forgot: bool = field(init=False, default=False)
    _first_run: bool = field(init=False, default=True)
    _run_over: bool = field(init=False, default=False)
    _run_began: int = field(init=False, default=0)  # of the generated: where the last run did
    _beyond: int = field(init=False, default=0)  # tokens that a run for ``min_tokens`` goes on
    _since: int = field(init=False, default=0)  # of the generated: where the grammar began
    _unsaid: list[ContentEvent] = field(init=False, default_factory=list)
    _limit: int = field(init=False)
    _made_before: int = field(init=False, default=0)
    _thought_before: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._parser = Parser(
            self.plan.form,
            tools=self.plan.functions.tools or None,
            reasoning_open=self.plan.reasoning_open,
            call_id=call_ids(self.request, self.plan, self.resumed),
            leading=self.plan.leading,
            whole_reasoning=self.plan.whole_reasoning,
        )
        self._stops = StopStrings(self.request.stop) if self.request.stop else None
        self._plain = not (self.choice or self._stops or self.request.top_logprobs is not None)
        self._limit = self.plan.limit
        if self.resumed is not None:
            self._begin_with(self.resumed)

    @property
    def tokens(self) -> tuple[int, ...]:
        """Return all tokens of the reply so far, those started with too."""
        return tuple(self._generated)

    @property
    def stopped(self) -> bool:
        """Return whether a stop string or a stop token has ended it, at any place."""
        last = self._generated[-1] if self._generated else None
        met = self._stops is not None and self._stops.met
        return met or last in self.request.stop_token_ids

    @property
    def completion(self) -> int:
        """Return the number of tokens that were generated here."""
        return len(self._generated) - self._uncounted

    async def events(self, usage: Callable[[], Usage] | None = None) -> AsyncGenerator[Batch, None]:
        """All events of the choice as they come, ending in ``Finished``, and in ``usage`` if given.

        Raises ``ServiceError``.
        """
        grammar = self.plan.grammar
        if self._unsaid:
            yield self._unsaid
        resumed = self.plan.resumed if self.resumed is None else ""
        with engine_failures(started=True, resumed=resumed):
            while self._ended is None:
                if self._out_of_thought():
                    grammar = self.plan.answer_grammar
                    if events := await self._close_reasoning():
                        yield events
                    self._since = len(self._generated)
                    continue
                # One run of the engine, to its end or to where it has to be done differently.
                self._run_over, self.asked = False, True
                async with self.engine.generate(self._text_request(grammar)) as outputs:
                    async for output in outputs:
                        if not isinstance(output, Token):
                            self._note(output)
                        elif events := self._take(output):
                            yield events
                        if self._run_over:
                            break
                self._first_run = False
        end = [*self._finish(), Finished(self._reason(), choice=self.choice)]
        yield end if usage is None else [*end, usage()]

    def _begin_with(self, resumed: ResumedReply) -> None:
        """Read what there is; what of it has not gone out comes first."""
        given = Given(resumed.partial)
        self._made_before = max(resumed.made - len(resumed.tokens), 0)
        for text in resumed.texts:
            self._made_before += 1
            self.said += not given.all_seen
            self._unsaid += given.new(self._placed(self._parser.feed(text)))
        if not given.all_seen and not self._parser.under_way:
            # What looks like the beginning of a marker was none, for it has gone out.
            self._unsaid += given.new(self._placed(self._parser.finish()))
        if not given.all_seen:
            raise Diverged
        self.asked = True  # of whoever began with it
        self._generated = list(resumed.tokens)
        self._uncounted = len(resumed.tokens)
        self._made_before = resumed.made
        self._thought_before = resumed.partial.reasoning_tokens
        self._limit = min(self._limit, resumed.made + self.plan.room - len(resumed.tokens))
        last = self._generated[-1] if self._generated else None
        if self.stopped or self._parser.repeated:
            self._ended = "stop"
        elif last in self.plan.end_tokens and not self.request.ignore_eos:
            self._end_of_text()
        elif self._made >= self._limit:
            self._ended = "length"

    @property
    def _made(self) -> int:
        return self._made_before + self.completion

    @property
    def _of_the_least(self) -> bool:
        """Return whether the last token is one of the first ``min_tokens``, which nothing cuts."""
        return 0 < self._made <= self.request.min_tokens

    @property
    def _thought(self) -> int:
        return self._thought_before + self.reasoning

    def _take(self, token: Token) -> list[ContentEvent]:
        """Return the events of a token."""
        self._generated.append(token.id)
        if token.id in self.request.stop_token_ids:
            self._ended = "stop"
            self._run_over = True
            return []
        parser = self._parser
        if self._plain and parser.mode is _ANSWER:
            events = parser.feed(token.text)
        else:
            events = self._read(token)
        if parser.repeated:
            self._ended = "stop"
            self._run_over = True
        elif parser.mode is _REASONING and self._out_of_thought():
            self._run_over = True
        return events

    def _note(self, output: Started | Stopped) -> None:
        """Record the engine's report of its run.

        Only the first run of the choice sets ``cached``: later runs find everything in the cache.
        """
        if self._first_run:
            self.cached = output.cached_tokens
        if not isinstance(output, Stopped):
            return
        self._run_over = True
        if output.reason == "stop":
            self._end_of_text()
            return
        # An engine may keep to itself what it made of a character that it did not come to end.
        told = len(self._generated) - self._run_began
        untold = max(output.completion_tokens - told, 0)
        if self._made + untold >= self._limit or not told + untold:  # it has no room for more
            self._uncounted -= untold
            self._ended = "length"
        self._beyond = _CHARACTER if untold else 0

    def _text_request(self, grammar: str | None) -> TextRequest:
        made, least = self._made, self.request.min_tokens
        short = made < least
        upto = min(least + self._beyond, self._limit) if short else self._limit
        self._run_began = len(self._generated)
        return TextRequest(
            prompt=(*self.plan.prompt, *self._generated) if self._generated else self.plan.prompt,
            max_tokens=upto - made,
            sampling=self._sampling(short=short),
            grammar=grammar,
            logprobs=self.request.top_logprobs,
            visible=self.plan.visible,
            ignore_eos=self.request.ignore_eos or short,
            accepted=tuple(self._generated[self._since :]) if grammar is not None else (),
            resumed=self.plan.resumed,
        )

    def _sampling(self, *, short: bool) -> SamplingParams:
        """Return the sampling of a run, which has a seed of its own; ``short`` bans stop tokens."""
        sampling = self.plan.sampling
        if short and self.request.stop_token_ids:
            never = dict.fromkeys(self.request.stop_token_ids, _NEVER)
            sampling = structs.replace(sampling, logit_bias={**sampling.logit_bias, **never})
        seed = sampling.seed
        if seed is None or (not self.choice and not self._generated):
            return sampling
        return structs.replace(sampling, seed=(seed + self.choice + len(self._generated)) % 2**32)

    def _end_of_text(self) -> None:
        """The model has ended its text; where it forgot the answer, that still comes."""
        if self._parser.mode is not _REASONING or self.request.ignore_eos:
            self._ended = "stop"
            return
        if self._generated and self._generated[-1] in self.plan.end_tokens:
            self._generated.pop()
            self._uncounted -= 1
        self._forgot = True

    def _read(self, token: Token) -> list[ContentEvent]:
        """Return the events of a token that is more than text of the answer."""
        if self._parser.mode is _REASONING:
            self.reasoning += 1
            self._unread.clear()
        events = self._parser.feed(token.text)
        if self._plain:
            return events
        if token.logprob is not None and _is_written(token):
            self._unread.append(_logprob(token))
        placed = self._placed(events)
        if token.text and not self._parser.holding:
            self._unread.clear()  # a marker, reasoning or a call: no part of the answer
        if self._stops is not None and self._stops.met:
            self._ended = "stop"
            self._run_over = True
        return placed

    def _placed(self, events: list[ContentEvent]) -> list[ContentEvent]:
        """Return the events for this choice: cut at a stop string, with their log-probabilities."""
        if self._plain:
            return events
        out: list[ContentEvent] = []
        for event in events:
            if isinstance(event, TextDelta):
                self._logprobs += self._unread
                self._unread.clear()
                stops = None if self._of_the_least else self._stops
                text = event.text if stops is None else stops.feed(event.text)
                if text:
                    out.append(TextDelta(text, tuple(self._logprobs), self.choice))
                    self._logprobs.clear()
                if self._stops is not None and self._stops.met:
                    break
            else:
                self._unread.clear()
                out.append(structs.replace(event, choice=self.choice))
        return out

    def _out_of_thought(self) -> bool:
        return (
            self._ended is None
            and self._parser.mode is _REASONING
            and (self._forgot or self._thought >= self.plan.budget)
        )

    async def _close_reasoning(self) -> list[ContentEvent]:
        """End the reasoning in the model's stead, with the tokens it would have written."""
        marks = self.plan.form.reasoning
        assert marks is not None
        text = marks.before_close + marks.close + marks.after_close
        tokens = await self.engine.tokenize([text], special=True)
        room = self._limit - self._made
        if len(tokens) >= room:
            self._ended = "length"
            return []
        self._generated += tokens
        self.reasoning += len(tokens)
        self._unread.clear()
        return self._placed(self._parser.feed(text))

    def _finish(self) -> list[ContentEvent]:
        if self._stops is not None and self._stops.met:
            return []
        # Under a grammar, half a call is a call that was cut and never text that looks like one.
        half = self._parser.under_way or self._before_forced_call
        self._cut = half and self.plan.grammar is not None
        events = [] if self._cut else self._placed(self._parser.finish())
        if self._stops is not None and self._stops.met:
            self._ended = "stop"  # it was held back, for it might not have been part of the answer
        held = self._stops.finish() if self._stops is not None else ""
        if held or self._logprobs:
            events.append(TextDelta(held, tuple(self._logprobs), self.choice))
        return events

    @property
    def _before_forced_call(self) -> bool:
        forced = self.request.tool_choice.mode == "required"
        return forced and self._parser.mode is _ANSWER and not self._parser.calls

    def _reason(self) -> FinishReason:
        """``length`` wins over a call that was cut; complete calls over everything else."""
        if self._parser.calls and not self._parser.call_open and not self._cut:
            return "tool_calls"
        return self._ended or "length"


def _is_written(token: Token) -> bool:
    """Return whether it is text or the beginning of a character, and no hidden control token."""
    return bool(token.text) or token.raw.decode("utf-8", "replace").endswith("\ufffd")


def _logprob(token: Token) -> TokenLogprob:
    return TokenLogprob(
        text=token.text or token.raw.decode("utf-8", "replace"),
        logprob=token.logprob or 0.0,
        raw=token.raw,
        top=tuple(TokenLogprob(other.text, other.logprob, other.raw) for other in token.top),
    )
