"""Carries out a plan for one choice: tokens in, events out."""

from __future__ import annotations

import math
import secrets
import string
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager
from dataclasses import dataclass, field
from enum import Enum

import structlog
from msgspec import structs

from causerie import errors
from causerie.chat.backtracking import Backtracking
from causerie.chat.call_syntax.base import text_overlap
from causerie.chat.compiler_worker import TOO_COMPLEX
from causerie.chat.document_watch import WatchedDocuments
from causerie.chat.encoding import tokens_before_text
from causerie.chat.formats.format import CallId
from causerie.chat.parser import Mode, Parser
from causerie.chat.plan import Plan
from causerie.chat.resumed_reply import Diverged, Given, ResumedReply
from causerie.engines import base
from causerie.protocol.events import (
    Batch,
    ContentEvent,
    Finished,
    FinishReason,
    TextDelta,
    TokenLogprob,
    Usage,
)
from causerie.protocol.request import ChatRequest

log = structlog.get_logger(__name__)

_MOST_WORDS = 200


@contextmanager
def engine_failures(*, started: bool, resumed: str = "", begun: bool = True) -> Iterator[None]:
    """Raise failures of an engine as ``ServiceError``; ``started``: in the middle of an answer.

    ``resumed`` is what a client has written of the answer; ``begun``: others began the reply.
    """
    try:
        yield
    except base.PromptTooLong as long:
        raise errors.ContextLengthExceeded(
            prompt_tokens=long.tokens, max_tokens=None, context_length=long.context_length
        ) from None
    except base.NotAdmitted:
        if resumed:
            raise errors.InvalidRequest(
                "The last message is not the beginning of an answer in the form that is asked for, "
                "so it cannot be continued.",
                param="continue_final_message",
            ) from None
        if not begun:  # what it had made itself, when some of it was to be drawn again
            raise given_up() from None
        raise errors.UpstreamFailed(
            "The reply broke off in a form that the constraint here does not admit."
        ) from None
    except base.EngineFailed as failure:
        raise _build_service_error(failure, started) from failure


def given_up() -> errors.ConstraintNotKept:
    return errors.ConstraintNotKept(
        "The answer does not have the form asked for: the engine gave up the constraint in the "
        f"middle of it, because {TOO_COMPLEX}"
    )


def _build_service_error(failure: base.EngineFailed, has_started: bool) -> errors.ServiceError:
    if failure.refused:
        log.warning("engine refused a request", why=str(failure)[:_MOST_WORDS])
        return errors.UpstreamFailed(
            "The engine does not take this request; the service's log says why.",
            metadata={"upstream_status": 400, "retryable": False},
        ).caused_by(errors.ErrorClass.INVALID_REQUEST)
    wait = max(1, math.ceil(failure.retry_after))
    if failure.loading:
        return errors.Overloaded(
            "The model is being loaded; try again shortly.", code="engine_loading", retry_after=wait
        )
    said = "The model's engine is not running; it is being restarted."
    if isinstance(failure, base.LoadFailed):
        said = "The model could not be loaded; the service's log and `/health` say why."
    elif has_started:
        said = "The engine ended before the answer was complete; it is being restarted."
        return errors.EngineLost(said, retry_after=wait)
    lost = errors.Overloaded(said, code="no_endpoint", retry_after=wait)
    return lost.caused_by(errors.ErrorClass.SERVER_ERROR)


class State(Enum):
    """State of a generation: who writes which part of the reply now, or that all is written.

    state      what happens in it                      is left for
    ---------  --------------------------------------  ------------------------------------------
    THINKING   the model writes reasoning              ANSWERING, CALLING: a marker was read
                                                       CLOSING: the budget is used up, or the
                                                       model ended its text without an answer
                                                       FINISHED: a limit or a stop token
    CLOSING    the service ends the reasoning in the   ANSWERING: the closing marker is appended,
               model's stead (re-entry)                the engine goes on from the same tokens
                                                       FINISHED: the marker does not fit
    ANSWERING  the model writes the answer             THINKING, CALLING: a marker was read
                                                       CLOSING: reasoning without a budget began
                                                       FINISHED: end, limit, stop string or token
    CALLING    the model writes tool calls             ANSWERING: the section of calls is complete
                                                       ANSWERING, THINKING, CLOSING: it was none,
                                                       so what came before it goes on
                                                       FINISHED: end, limit, stop token, or a call
                                                       that repeats an earlier one
    FINISHED   nothing more is generated               (never)

    A generation begins in the state that its prompt, or the reply that it resumes, ends in. A new
    run of the engine begins after CLOSING, and where a run ended early, because a minimum length
    bans the end of the text. It goes on from the same tokens, which the engine's cache still holds.
    """

    THINKING = "thinking"
    CLOSING = "closing"
    ANSWERING = "answering"
    CALLING = "calling"
    FINISHED = "finished"


_ANSWER, _REASONING = Mode.ANSWER, Mode.REASONING  # asked at every token
_THINKING, _ANSWERING = State.THINKING, State.ANSWERING  # likewise
_STATES = {Mode.ANSWER: _ANSWERING, Mode.REASONING: _THINKING, Mode.CALLS: State.CALLING}
_WITHOUT_ENGINE = (State.CLOSING, State.FINISHED)
_NEVER = -100.0  # a bias by which no token is drawn
_CHARACTER = 4  # tokens: more than a character has behind its first


class Generation:
    """One choice being generated; its counts of tokens are right at any time.

    With ``resumed`` it goes on with a reply and counts only what is new; raises
    :class:`Diverged` where that, read by the model's parser, is another reply.
    """

    def __init__(
        self,
        engine: base.TextEngine,
        request: ChatRequest,
        plan: Plan,
        choice: int,
        resumed: ResumedReply | None = None,
    ) -> None:
        self.engine, self.request, self.plan = engine, request, plan
        self.choice, self.resumed = choice, resumed
        self.state = State.ANSWERING
        self.reasoning = 0  # tokens of reasoning, which are part of ``completion``
        self.discarded = 0  # generated tokens that were taken back; no part of ``completion``
        self.cached: int | None = None  # prompt tokens that the first run found in the cache
        self.asked = False  # an engine has received the prompt
        self.cut = False  # the reply has ended in the middle of a call
        self.said = 0  # tokens of ``resumed`` whose text had been sent to the client
        self._output_ids: list[int] = []
        self._token_texts: list[str] = []  # of those, as the parser reads them
        # Tokens among them that another has counted, less those that the engine has not reported.
        self._resumed_minus_unreported_token_count = 0
        self._finish_reason_unless_calls: FinishReason = "length"
        self._has_model_ended_text = False  # by the model
        self._is_first_engine_run = True
        self._run_start_index = 0  # of the generated: where the last run did
        self._tokens_allowed_past_minimum = 0  # tokens that a run for ``min_tokens`` goes on
        self._grammar, self._grammar_start_index = plan.grammar, 0  # of generated: where it began
        self._unsent_resumed_events: list[ContentEvent] = []
        self._token_limit, self._reasoning_budget = plan.limit, plan.budget
        self._prior_token_count = self._prior_reasoning_count = 0
        self._parser = self._new_parser()
        logprobs = request.top_logprobs is not None
        self._choice_event_filter = ChoiceOutput(choice, request.stop, logprobs=logprobs)
        self._passes_events_unchanged = self._choice_event_filter.plain
        if resumed is not None:
            self._read_resumed_reply(resumed)
        self._set_state_by_parser_and_budget()
        if resumed is not None:
            self._finish_if_resumed_reply_ended()

    def _new_parser(self) -> Parser:
        plan = self.plan
        known = [call.id for call in self.resumed.partial.calls] if self.resumed else []
        taken = {call.id for message in self.request.messages for call in message.tool_calls}
        short = CallId() in plan.form.calls.call
        parser = Parser(
            plan.form,
            tools=plan.functions.tools or None,
            reasoning_open=plan.reasoning_open,
            call_id=GeneratedCallIds(taken.union(known), short, known),
            leading=plan.leading,
            reasoning_end=plan.reasoning_end,
        )
        text_sent = self.resumed is not None and self.resumed.partial.text
        if plan.unmarked_calls and not text_sent:
            parser.read_unmarked(plan.functions.admits)
        return parser

    @property
    def tokens(self) -> tuple[int, ...]:
        return tuple(self._output_ids)

    @property
    def written(self) -> tuple[str, tuple[int, ...]]:
        """Return text of a reply that is not resumed, and its tokens up to the last with a text."""
        texts = self._token_texts
        last = next((at for at in range(len(texts), 0, -1) if texts[at - 1]), 0)
        return "".join(texts), self.tokens[:last]

    @property
    def stopped(self) -> bool:
        """Return whether a stop string or a stop token has ended the choice, at any place."""
        last = self._output_ids[-1] if self._output_ids else None
        return self._choice_event_filter.stopped or last in self.request.stop_token_ids

    @property
    def constrained(self) -> tuple[str | None, Sequence[int], str]:
        """Return the grammar in force at the end, the tokens that should follow it, their text."""
        ends = (*self.plan.end_tokens, *self.request.stop_token_ids)
        last = len(self._output_ids) - bool(self._output_ids and self._output_ids[-1] in ends)
        kept = slice(self._grammar_start_index, last)
        return self._grammar, self._output_ids[kept], "".join(self._token_texts[kept])

    @property
    def completion(self) -> int:
        return len(self._output_ids) - self._resumed_minus_unreported_token_count

    async def events(self, usage: Callable[[], Usage] | None = None) -> AsyncGenerator[Batch, None]:
        """Yield the events of the choice as they come, ending in ``Finished``.

        With ``usage`` its result comes last, in the same batch. Raises ``ServiceError``.
        """
        if self._unsent_resumed_events:
            yield self._unsent_resumed_events
        resumed = self.plan.resumed if self.resumed is None else ""
        others = self.resumed is not None
        with engine_failures(started=True, resumed=resumed, begun=others):
            while self.state is not State.FINISHED:
                if self.state is State.CLOSING:
                    if events := await self._close_reasoning():
                        yield events
                    continue
                self.asked = True
                async with self._start_engine_run() as outputs:
                    async for output in outputs:
                        if not isinstance(output, base.Token):
                            self._apply_engine_start_or_stop(output)
                            if isinstance(output, base.Stopped):
                                break
                        elif events := self._process_token(output):
                            yield events
                        if self.state in _WITHOUT_ENGINE:
                            break
                self._is_first_engine_run = False
        flushed = self._flush_last_events()
        # A call that was cut never counts as complete.
        called = self._parser.calls and not self._parser.call_open and not self.cut
        reason: FinishReason = "tool_calls" if called else self._finish_reason_unless_calls
        stopped = self._choice_event_filter.stop_sequence
        end = [*flushed, Finished(reason, self.choice, stop_sequence=stopped)]
        yield end if usage is None else [*end, usage()]

    # Transitions.

    def _set_generation_state(self, state: State) -> None:
        self.state = state

    def _set_finished_state_and_reason(self, finish_reason: FinishReason) -> None:
        self._finish_reason_unless_calls = finish_reason
        self._set_generation_state(State.FINISHED)

    def _set_state_by_parser_and_budget(self) -> None:
        parser = self._parser
        if parser.repeated or self._choice_event_filter.stopped:
            self._set_finished_state_and_reason("stop")
            return
        state = _STATES[parser.mode]
        spent = self._prior_reasoning_count + self.reasoning
        if state is _THINKING and spent >= self._reasoning_budget:
            state = State.CLOSING
        if state is not self.state:
            self._set_generation_state(state)

    def _finish_or_close_reasoning_at_end(self) -> None:
        if self._parser.mode is not _REASONING or self.request.ignore_eos:
            self._has_model_ended_text = True
            self._set_finished_state_and_reason("stop")
            return
        if self._output_ids and self._output_ids[-1] in self.plan.end_tokens:
            self._output_ids.pop()
            self._token_texts.pop()
            self._resumed_minus_unreported_token_count -= 1
        self._reasoning_budget = 0  # it does not think again
        self._set_generation_state(State.CLOSING)

    # What is read: a resumed reply, tokens, reports of the engine.

    def _read_resumed_reply(self, resumed: ResumedReply) -> None:
        given = Given(resumed.partial)
        self._prior_token_count = max(resumed.made - len(resumed.tokens), 0)
        for text in resumed.texts:
            self._prior_token_count += 1
            self.said += not given.all_seen
            self._unsent_resumed_events += given.new(self._cut_and_label(self._parser.feed(text)))
        if not given.all_seen and not self._parser.under_way:
            # What looks like the beginning of a marker was none, for it has gone out.
            self._unsent_resumed_events += given.new(self._cut_and_label(self._parser.finish()))
        if not given.all_seen:
            raise Diverged
        self.asked = True  # of whoever began with it
        self._output_ids = list(resumed.tokens)
        # A reply may be given as one text of all its tokens.
        self._token_texts = [*resumed.texts, *[""] * (len(resumed.tokens) - len(resumed.texts))]
        self._resumed_minus_unreported_token_count = len(resumed.tokens)
        self._prior_token_count = resumed.made
        self._prior_reasoning_count = resumed.partial.reasoning_tokens
        room = self.plan.room - len(resumed.tokens)
        self._token_limit = min(self._token_limit, resumed.made + room)

    def _finish_if_resumed_reply_ended(self) -> None:
        last = self._output_ids[-1] if self._output_ids else None
        if self.stopped or self._parser.repeated:
            self._set_finished_state_and_reason("stop")
        elif last in self.plan.end_tokens and not self.request.ignore_eos:
            self._finish_or_close_reasoning_at_end()
        elif self._reply_token_count >= self._token_limit:
            self._set_finished_state_and_reason("length")

    def _process_token(self, token: base.Token) -> list[ContentEvent]:
        self._output_ids.append(token.id)
        self._token_texts.append(token.text)
        if token.id in self.request.stop_token_ids:
            self._set_finished_state_and_reason("stop")
            return []
        parser = self._parser
        if self._passes_events_unchanged and self.state is _ANSWERING:
            events = parser.feed(token.text)
            if parser.mode is _ANSWER and not parser.repeated:
                return events
        else:
            events = self._parse_token(token)
        self._set_state_by_parser_and_budget()
        return events

    def _parse_token(self, token: base.Token) -> list[ContentEvent]:
        output = self._choice_event_filter
        if self.state is _THINKING:
            self.reasoning += 1
            output.forget()
        events = self._parser.feed(token.text)
        if self._passes_events_unchanged:
            return events
        output.note(token)
        placed = self._cut_and_label(events)
        if token.text and not self._parser.holding:
            output.forget()  # a marker, reasoning or a call: no part of the answer
        return placed

    def _cut_and_label(self, parser_events: list[ContentEvent]) -> list[ContentEvent]:
        # The first `min_tokens` are never cut at a stop string.
        if self._passes_events_unchanged:
            return parser_events
        uncut = 0 < self._reply_token_count <= self.request.min_tokens
        return self._choice_event_filter.place(parser_events, uncut=uncut)

    def _apply_engine_start_or_stop(self, report: base.Started | base.Stopped) -> None:
        # Later runs find everything in the cache, so only the first one sets `cached`.
        if self._is_first_engine_run:
            self.cached = report.cached_tokens
        if not isinstance(report, base.Stopped):
            return
        if report.reason == "stop":
            self._finish_or_close_reasoning_at_end()
            return
        # An engine may not report what it generated of a character that it did not complete.
        reported = len(self._output_ids) - self._run_start_index
        unreported = max(report.completion_tokens - reported, 0)
        is_full = self._reply_token_count + unreported >= self._token_limit
        if is_full or not reported + unreported:  # no room for more
            self._resumed_minus_unreported_token_count -= unreported
            self._set_finished_state_and_reason("length")
        self._tokens_allowed_past_minimum = _CHARACTER if unreported else 0

    # What is asked of the engine.

    def _start_engine_run(self) -> AbstractAsyncContextManager[AsyncIterator[base.Output]]:
        request, plan = self._build_text_request(), self.plan
        if not plan.watched:
            return self.engine.generate(request)
        documents = WatchedDocuments(
            self._new_parser(),
            plan.answer.checked if plan.answer else None,
            plan.functions.arguments,
            resumed=plan.resumed,
            texts=tuple(self._token_texts),
        )
        return aclosing(Backtracking(self.engine, request, documents, self._add_discards).outputs())

    def _add_discards(self, token_count: int) -> None:
        self.discarded += token_count

    @property
    def _reply_token_count(self) -> int:
        return self._prior_token_count + self.completion

    def _build_text_request(self) -> base.TextRequest:
        request = self.request
        made, least, grammar = self._reply_token_count, request.min_tokens, self._grammar
        short = made < least
        limit = self._token_limit
        upto = min(least + self._tokens_allowed_past_minimum, limit) if short else limit
        self._run_start_index = len(self._output_ids)
        sampling = self.plan.sampling
        if short and request.stop_token_ids:
            never = dict.fromkeys(request.stop_token_ids, _NEVER)
            sampling = structs.replace(sampling, logit_bias={**sampling.logit_bias, **never})
        if sampling.seed is not None and (self.choice or self._output_ids):
            seed = (sampling.seed + self.choice + len(self._output_ids)) % 2**32
            sampling = structs.replace(sampling, seed=seed)
        return base.TextRequest(
            prompt=(*self.plan.prompt, *self._output_ids) if self._output_ids else self.plan.prompt,
            max_tokens=upto - made,
            sampling=sampling,
            grammar=grammar,
            logprobs=request.top_logprobs,
            visible=self.plan.visible,
            ignore_eos=request.ignore_eos or short,
            accepted=self.tokens[self._grammar_start_index :] if grammar is not None else (),
            resumed=self.plan.resumed,
            shared=self.plan.encoded.shared,
            scope=request.cache_scope,
            pictured=self.plan.encoded.pictured,
        )

    async def _close_reasoning(self) -> list[ContentEvent]:
        marks = self.plan.form.reasoning
        text = marks.before_close + marks.close + marks.after_close
        tokens = await tokens_before_text(self.engine, text)
        room = self._token_limit - self._reply_token_count
        if len(tokens) >= room:
            self._set_finished_state_and_reason("length")
            return []
        self._output_ids += tokens
        self._token_texts += [*[""] * (len(tokens) - 1), text]
        self.reasoning += len(tokens)
        self._grammar, self._grammar_start_index = self.plan.answer_grammar, len(self._output_ids)
        self._choice_event_filter.forget()
        events = self._cut_and_label(self._parser.feed(text))
        self._set_state_by_parser_and_budget()
        return events

    # The end.

    def _flush_last_events(self) -> list[ContentEvent]:
        output = self._choice_event_filter
        if output.stopped:
            return []
        ended = self._cut_and_label(self._parser.end()) if self._has_model_ended_text else []
        # Under a grammar, half a call is a call that was cut and never text that looks like one.
        forced = self.request.tool_choice.mode == "required"
        before_call = forced and self._parser.mode is _ANSWER and not self._parser.calls
        self.cut = (self._parser.under_way or before_call) and self.plan.grammar is not None
        events = [] if self.cut else self._cut_and_label(self._parser.finish())
        if output.stopped:
            self._finish_reason_unless_calls = "stop"  # it was held back: it was perhaps no answer
        return ended + events + output.finish()


@dataclass(slots=True)
class GeneratedCallIds:
    """Gives each call an id: the one that the client knows, the model's own, or a new one."""

    taken: set[str]  # all ids of the conversation
    short: bool  # ids are nine letters and digits: the template of the format accepts no others
    resumed: list[str] = field(default_factory=list)  # ids that the client has, in order

    def __call__(self, name: str, given: str) -> str:
        del name
        if self.resumed:
            return self.resumed.pop(0)
        while not given or given in self.taken:
            nine = (secrets.choice(string.ascii_letters + string.digits) for _ in range(9))
            given = "".join(nine) if self.short else f"call_{secrets.token_hex(12)}"
        self.taken.add(given)
        return given


class ChoiceOutput:
    """Turns the parser's events into those of one choice: cut at stop strings, with logprobs."""

    __slots__ = ("_choice_index", "_held_logprobs", "_stop_filter", "_undecided_logprobs",
                 "plain", "stopped")  # fmt: skip

    def __init__(self, choice: int, stop: Sequence[str], *, logprobs: bool) -> None:
        self._choice_index = choice
        self._stop_filter = StopStrings(stop) if stop else None
        self._held_logprobs: list[TokenLogprob] = []  # of text that is held back for a stop string
        self._undecided_logprobs: list[TokenLogprob] = []  # of tokens that may become answer text
        # Events go out exactly as the parser returns them.
        self.plain = not (choice or stop or logprobs)
        self.stopped = False  # a stop string has ended the choice

    @property
    def stop_sequence(self) -> str | None:
        return self._stop_filter.text if self._stop_filter is not None else None

    def note(self, token: base.Token) -> None:
        """Keep the log-probability of a token until its text is known to be answer text."""
        written = token.text or token.raw.decode("utf-8", "replace")
        if token.logprob is not None and (token.text or written.endswith("\ufffd")):
            top = tuple(TokenLogprob(other.text, other.logprob, other.raw) for other in token.top)
            self._undecided_logprobs.append(TokenLogprob(written, token.logprob, token.raw, top))

    def forget(self) -> None:
        self._undecided_logprobs.clear()

    def place(self, events: list[ContentEvent], *, uncut: bool) -> list[ContentEvent]:
        """Return the events for this choice; ``uncut`` text is not searched for stop strings."""
        out: list[ContentEvent] = []
        for event in events:
            if not isinstance(event, TextDelta):
                self._undecided_logprobs.clear()
                out.append(structs.replace(event, choice=self._choice_index))
                continue
            self._held_logprobs += self._undecided_logprobs
            self._undecided_logprobs.clear()
            text = event.text
            if self._stop_filter is not None and not uncut:
                text = self._stop_filter.feed(text)
                self.stopped = self._stop_filter.text is not None
            if text:
                out.append(self._build_text_delta(text))
            if self.stopped:
                break
        return out

    def finish(self) -> list[ContentEvent]:
        held = self._stop_filter.finish() if self._stop_filter is not None else ""
        return [self._build_text_delta(held)] if held or self._held_logprobs else []

    def _build_text_delta(self, text: str) -> TextDelta:
        logprobs, self._held_logprobs = tuple(self._held_logprobs), []
        return TextDelta(text, logprobs, self._choice_index)


class StopStrings:
    """Passes text on until one of ``texts`` appears; the stop string itself is not passed."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._stop_texts = tuple(texts)
        self._held_text = ""
        self.text: str | None = None  # the one that appeared

    def feed(self, text: str) -> str:
        """Return the part of the text that can no longer belong to a stop string."""
        text = self._held_text + text
        found = [at for at in (text.find(stop) for stop in self._stop_texts) if at >= 0]
        if found:
            self.text = next(one for one in self._stop_texts if text.startswith(one, min(found)))
            self._held_text = ""
            return text[: min(found)]
        ready = len(text) - max(text_overlap(text, stop) for stop in self._stop_texts)
        self._held_text = text[ready:]
        return text[:ready]

    def finish(self) -> str:
        held, self._held_text = self._held_text, ""
        return held
