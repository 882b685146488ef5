"""Tools that may be called (interface 2.2, 2.3, T; contract 1)."""

from __future__ import annotations

from causerie.probe.ask import ProbeRequest
from causerie.probe.question import ProbeQuestion, Script
from causerie.probe.questions.toolbox import TOOLS, WEATHER, call_faults
from causerie.probe.reading import answered, joined, refusal, streamed
from causerie.probe.reply import dig
from causerie.probe.subject import Messages, Subject, user
from causerie.probe.verdict import no, partly, unclear, weighed, yes

WANTED = "What is the weather in Paris in celsius? Use the function."
MOST = 128
_CALL = {
    "id": "call_a1",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city": "Paris", "unit": "celsius"}'},
}
_RESULT = {"role": "tool", "tool_call_id": "call_a1", "content": '{"degrees": 31}'}


def may(subject: Subject) -> ProbeRequest:
    """Return a question that a tool answers, with the choice left to the model."""
    return subject.ask(WANTED, MOST, tools=[WEATHER]).once()


def must(subject: Subject) -> ProbeRequest:
    """Return the same with a call forced."""
    return subject.ask(WANTED, MOST, tools=[WEATHER], tool_choice="required").once()


def _tools(subject: Subject) -> Script:
    free = answered((yield may(subject)))
    if free.calls:
        return weighed(call_faults(free), of=4, how="called by itself")
    reply = yield must(subject)
    if refusal(reply) is None and (forced := answered(reply)).calls:
        return weighed(call_faults(forced), of=4, how="called when required, not by itself")
    return no(f"accepted, no call came: {free.text!r:.80}")


def _stream(subject: Subject) -> Script:
    fields = {"tools": [WEATHER], "tool_choice": "required", "stream": True}
    stream = streamed((yield subject.ask(WANTED, MOST, **fields)))
    answer = joined(stream)
    if not answer.calls:
        return no("no call came in the stream")
    pieces = [
        piece
        for delta in stream.deltas()
        if isinstance(calls := delta.get("tool_calls"), list)
        for piece in calls
    ]
    missing = call_faults(answer)
    first = pieces[0]
    if not all(dig(first, *path) is not None for path in (("index",), ("id",), ("type",))):
        missing.append("the first piece lacks index, id or type")
    if dig(first, "function", "arguments") != "":
        missing.append("the first piece's arguments are not empty")
    if len(stream.finishes()) != 1:
        missing.append(f"{len(stream.finishes())} finish reasons")
    return weighed(missing, of=6)


def _exchange(subject: Subject) -> Script:
    said = {"role": "assistant", "content": "", "tool_calls": [_CALL]}
    talk: Messages = [user(WANTED), said, _RESULT]
    answer = answered((yield subject.ask(talk, 48, tools=[WEATHER])))
    if answer.calls:
        return partly("taken, and answered with another call")
    if not answer.text.strip():
        return partly("taken, and answered with nothing")
    return yes("it uses the result" if "31" in answer.text else "taken; the result is not named")


def _history(subject: Subject) -> Script:
    """Old calls as they may lie in a conversation; what is past is taken as it is."""
    broken = _CALL | {"function": {"name": "get_weather", "arguments": '{"city": '}}
    stray = _RESULT | {"tool_call_id": "call_nobody"}
    missing = []
    for name, fields, result in (
        ("null content", {"content": None, "tool_calls": [_CALL]}, _RESULT),
        ("no content", {"tool_calls": [_CALL]}, _RESULT),
        ("broken arguments", {"content": "", "tool_calls": [broken]}, _RESULT),
        ("a result that answers no call", {"content": "", "tool_calls": [_CALL]}, stray),
    ):
        talk: Messages = [user(WANTED), {"role": "assistant", **fields}, result]
        reply = yield subject.ask(talk, 8, tools=[WEATHER])
        if reply.status >= 500:
            missing.append(f"{name}: status {reply.status}")
        elif (refused := refusal(reply)) is not None:
            missing.append(f"{name}: {refused}")
        else:
            answered(reply)
    return weighed(missing, of=4)


def _none(subject: Subject) -> Script:
    free = answered((yield may(subject)))
    answer = answered((yield subject.ask(WANTED, MOST, tools=[WEATHER], tool_choice="none")))
    if answer.calls:
        return no("accepted, no effect: a call came")
    if free.calls:
        return yes()
    if free.prompt != answer.prompt:
        return yes("no call came, and the prompt is another one")
    return unclear("no call came, but none comes without it either")


def _parallel(subject: Subject) -> Script:
    said = "Get the weather in Paris and the weather in Rome. Make two calls."
    fields = {"tools": TOOLS, "tool_choice": "required"}
    many = answered((yield subject.ask(said, 160, **fields, parallel_tool_calls=True)))
    one = answered((yield subject.ask(said, 160, **fields, parallel_tool_calls=False)))
    words = f"{len(many.calls)} calls with it, {len(one.calls)} without"
    if len(one.calls) > 1:
        return no(f"accepted, no effect: {words}")
    if len(many.calls) > 1 and len(one.calls) == 1:
        return yes(words)
    return unclear(f"nothing to tell it by: {words}")


QUESTIONS = (
    ProbeQuestion(
        "tools",
        "2.3, 2.4, T",
        "Are offered tools called, in the right form?",
        _tools,
        decides=("tools",),
        asks=2,
        tokens=360,
    ),
    ProbeQuestion(
        "tools.stream", "2.3, contract 2", "And in a stream, piece by piece?", _stream, tokens=360
    ),
    ProbeQuestion("tools.exchange", "T", "Is a tool's result answered?", _exchange, tokens=360),
    ProbeQuestion(
        "tools.history",
        "2.2, contract 1",
        "Are old calls with null content, broken arguments or no answer taken?",
        _history,
        asks=4,
        tokens=260,
    ),
    ProbeQuestion(
        "tool_choice.none",
        "contract 1",
        "Does `tool_choice: none` keep it from calling?",
        _none,
        asks=2,
        tokens=360,
    ),
    ProbeQuestion(
        "parallel_tool_calls",
        "contract 1",
        "Does `parallel_tool_calls: false` leave one call?",
        _parallel,
        decides=("parallel_tool_calls",),
        asks=2,
        tokens=420,
    ),
)
