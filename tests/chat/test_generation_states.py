"""A generation moves between its named states as its table says, whatever the model writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace

import pytest
from casekit import each_of
from hypothesis import given
from hypothesis import strategies as st

from causerie.chat.answer import Functions
from causerie.chat.encoding import EncodedText
from causerie.chat.formats.registry import by_name
from causerie.chat.generation import Generation, State
from causerie.chat.parser import ReasoningEnd
from causerie.chat.plan import Plan
from causerie.chat.resumed_reply import ResumedReply
from causerie.chat.template import Rendered
from causerie.engines.base import ModelFacts, Output, Started, Stopped, TextRequest, Token
from causerie.protocol.events import Batch, Finished, Partial, ReasoningDelta, TextDelta
from causerie.protocol.parameters import SamplingParams
from causerie.protocol.request import ChatRequest, Message

END, CLOSE = 0, 1  # the end of the text; the tokens with which the service closes reasoning
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
TEXTS = (
    "",
    "",
    " word",
    "\n\n",
    "STOP",
    "<think>\n",
    "\n</think>\n\n",
    CALL,
    "<tool_call>",
    '\n{"name": "f", ',
    '"arguments": {"a": 1}}',
    "\n</tool_call>",
    "\nno call",
    "<thi",
)
WORD, BLANK, STOP, OPEN, SHUT, WHOLE = 2, 3, 4, 5, 6, 7
BEGIN, NAME, ARGUMENTS, ENDED, NONE = 8, 9, 10, 11, 12
BANNED = 13  # a stop token, where one is asked for
TOOLS = {"f": {"type": "object", "properties": {"a": {"type": "integer"}}}}
Transition = tuple[State, State]
T, L, A, C, F = (
    State.THINKING,
    State.CLOSING,
    State.ANSWERING,
    State.CALLING,
    State.FINISHED,
)

TRANSITIONS = {T: {A, C, L, F}, L: {A, F}, A: {T, C, L, F}, C: {A, T, L, F}, F: set[State]()}


@dataclass
class ScriptedEngine:
    """Writes these tokens, over all runs; then its text ends, again and again."""

    script: Iterator[int]
    closing: int = 2
    requests: list[TextRequest] = field(default_factory=list)

    async def facts(self) -> ModelFacts:
        raise AssertionError("A generation asks for no facts.")

    async def tokenize(self, pieces: Sequence[str | int], *, special: bool) -> list[int]:
        return [CLOSE] * self.closing

    async def texts(self, tokens: Sequence[int], *, visible: Sequence[str] = ()) -> list[str]:
        return [TEXTS[token] for token in tokens]

    @asynccontextmanager
    async def generate(self, request: TextRequest) -> AsyncIterator[AsyncIterator[Output]]:
        self.requests.append(request)
        yield self._run(request)

    async def _run(self, request: TextRequest) -> AsyncIterator[Output]:
        assert request.max_tokens > 0
        yield Started(3)
        made = 0
        while made < request.max_tokens:
            token = next(self.script, END)
            if token == END and not request.ignore_eos:
                yield Stopped("stop", len(request.prompt), made, 3)
                return
            made += 1
            yield Token(token, TEXTS[token], TEXTS[token].encode(), -0.5)
        yield Stopped("length", len(request.prompt), made, 3)


@dataclass(frozen=True)
class Case:
    """What the model writes, and how far it may go."""

    tokens: tuple[int, ...]
    thinking: bool = False  # the prompt ends inside the reasoning
    budget: int = 100
    limit: int = 200
    closing: int = 2
    least: int = 0
    stop: tuple[str, ...] = ()
    stop_tokens: tuple[int, ...] = ()
    logprobs: int | None = None
    ignore_eos: bool = False
    tools: bool = True
    format: str = "qwen-3"
    resumed: tuple[int, ...] | None = None

    def plan(self) -> Plan:
        return Plan(
            form=by_name(self.format),
            rendered=Rendered("Hi", ()),
            prompt=(70, 71, 72),
            encoded=EncodedText([70, 71, 72]),
            limit=self.limit,
            room=self.limit,
            budget=self.budget,
            reasoning_open=self.thinking,
            reasoning_end=ReasoningEnd.ANY_MARKER,
            leading="",
            functions=Functions(TOOLS if self.tools else {}),
            unmarked_calls=False,
            grammar=None,
            resumed="",
            answer_grammar=None,
            sampling=SamplingParams(seed=7),
            visible=(),
            end_tokens=(END,),
            answer=None,
            changes=(),
        )

    def request(self) -> ChatRequest:
        return ChatRequest(
            model="m",
            messages=(Message("user", "Hi"),),
            stop=self.stop,
            stop_token_ids=self.stop_tokens,
            min_tokens=self.least,
            top_logprobs=self.logprobs,
            ignore_eos=self.ignore_eos,
        )

    def reply(self) -> ResumedReply | None:
        """What is resumed: tokens of which the client has been sent nothing yet."""
        if self.resumed is None:
            return None
        texts = tuple(TEXTS[token] for token in self.resumed)
        return ResumedReply(self.resumed, texts, Partial(), len(self.resumed))


@dataclass(frozen=True)
class Run:
    """A generation that has ended: its batches, its transitions and what the engine was asked."""

    batches: list[Batch]
    transitions: list[Transition]
    requests: list[TextRequest]
    state: State

    @property
    def reason(self) -> str:
        last = self.batches[-1][-1]
        assert isinstance(last, Finished)
        return last.reason


@contextmanager
def recorded() -> Iterator[list[Transition]]:
    """Note all transitions."""
    seen: list[Transition] = []
    enter = Generation._set_generation_state

    def note(self: Generation, state: State) -> None:
        if state is not self.state:
            seen.append((self.state, state))
        enter(self, state)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Generation, "_set_generation_state", note)
        yield seen


def run(case: Case) -> Run:
    engine = ScriptedEngine(iter(case.tokens), case.closing)

    async def whole() -> Run:
        with recorded() as seen:
            made = Generation(engine, case.request(), case.plan(), 0, case.reply())
            seen.clear()  # how it begins is no transition
            batches = [batch async for batch in made.events()]
        return Run(batches, seen, engine.requests, made.state)

    return asyncio.run(whole())


TABLE = {
    (T, A): Case((WORD, SHUT, WORD), thinking=True),
    (T, C): Case((WORD, BEGIN, NAME, ARGUMENTS, ENDED), thinking=True),
    (T, L): Case((WORD, WORD, WORD), thinking=True, budget=2),
    (T, F): Case((WORD, BANNED), thinking=True, stop_tokens=(BANNED,)),
    (L, A): Case((WORD, END, WORD), thinking=True),  # the model forgot the answer
    (L, F): Case((WORD, WORD), thinking=True, budget=2, limit=4, closing=2),
    (A, T): Case((OPEN, WORD, SHUT, WORD)),
    (A, C): Case((WORD, BLANK, BEGIN, NAME, ARGUMENTS, ENDED)),
    (A, L): Case((OPEN, WORD), budget=0),
    (A, F): Case((WORD, END)),
    (C, A): Case((BEGIN, NAME, ARGUMENTS, ENDED, WORD)),
    (C, T): Case((WORD, BEGIN, NONE, WORD, SHUT), thinking=True),
    (C, L): Case((WORD, BEGIN, NONE, WORD), thinking=True, budget=2),
    (C, F): Case((BEGIN, NAME), limit=2),
}


def test_every_transition_of_the_table_has_an_example() -> None:
    listed = {(state, after) for state in State for after in TRANSITIONS[state]}
    assert set(TABLE) == listed


@each_of("transition", TABLE, ids=lambda pair: f"{pair[0].name}-{pair[1].name}")
def test_a_transition_of_the_table(transition: Transition) -> None:
    assert transition in run(TABLE[transition]).transitions


def test_the_docstring_lists_the_states_in_the_order_of_the_table() -> None:
    text = State.__doc__ or ""
    rows = [line.split()[0] for line in text.splitlines() if line.strip()]
    assert [row for row in rows if row in State.__members__] == [
        state.name for state in TRANSITIONS
    ]


def test_a_budget_of_nothing_closes_before_the_first_run() -> None:
    made = run(Case((WORD, END), thinking=True, budget=0))
    assert made.transitions == [(L, A), (A, F)]
    assert len(made.requests) == 1
    assert made.requests[0].prompt == (70, 71, 72, CLOSE, CLOSE)


def test_after_the_budget_the_engine_goes_on_from_the_same_tokens() -> None:
    made = run(Case((WORD, WORD, WORD, END), thinking=True, budget=2))
    assert made.transitions == [(T, L), (L, A), (A, F)]
    assert [request.prompt for request in made.requests] == [
        (70, 71, 72),
        (70, 71, 72, WORD, WORD, CLOSE, CLOSE),
    ]
    events = [event for batch in made.batches for event in batch]
    assert [type(event) for event in events] == [
        ReasoningDelta,
        ReasoningDelta,
        TextDelta,
        Finished,
    ]
    assert made.reason == "stop"


def test_a_minimum_length_is_a_new_run_and_no_new_state() -> None:
    made = run(Case((WORD, WORD, END), least=1))
    assert made.transitions == [(A, F)]
    assert len(made.requests) == 2
    assert made.requests[0].ignore_eos


@each_of(
    ("resumed", "state"),
    [((OPEN, WORD), T), ((WORD,), A), ((BEGIN, NAME), C), ((WORD, END), F), ((OPEN, END), L)],
)
def test_a_resumed_reply_begins_in_the_state_in_which_it_broke_off(
    resumed: tuple[int, ...], state: State
) -> None:
    case = Case((), resumed=resumed)
    made = Generation(ScriptedEngine(iter(())), case.request(), case.plan(), 0, case.reply())
    assert made.state is state


cases = st.builds(
    Case,
    tokens=st.lists(st.sampled_from([END, *range(2, len(TEXTS))]), max_size=40).map(tuple),
    thinking=st.booleans(),
    budget=st.integers(0, 12),
    limit=st.integers(1, 40),
    closing=st.integers(1, 4),
    least=st.integers(0, 12),
    stop=st.sampled_from([(), ("STOP",), ("word", "\n\n")]),
    stop_tokens=st.sampled_from([(), (BANNED,)]),
    logprobs=st.sampled_from([None, 0]),
    ignore_eos=st.booleans(),
    tools=st.booleans(),
    format=st.sampled_from(["qwen-3", "generic", "hermes", "gpt-oss", "kimi-k2", "granite-3.3"]),
    resumed=st.none() | st.lists(st.integers(2, len(TEXTS) - 1), max_size=6).map(tuple),
)


@given(cases)
def test_no_text_leads_out_of_the_table(case: Case) -> None:
    if case.least > case.limit:
        case = replace(case, least=case.limit)
    made = run(case)
    assert {pair for pair in made.transitions if pair[1] not in TRANSITIONS[pair[0]]} == set()
    assert made.state is F
    ends = [event for batch in made.batches for event in batch if isinstance(event, Finished)]
    assert ends == [made.batches[-1][-1]]
