"""Thinking: its switches, its fields, its length (interface 2.2, 2.5, 4.2, S, G; contract 1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from operator import itemgetter

from causerie.probe.question import (
    SAMPLES,
    Messages,
    ProbeAnswer,
    ProbeQuestion,
    ProbeStream,
    Script,
    Steps,
    Subject,
    dig,
    no,
    of_parameter,
    partly,
    question,
    unclear,
    user,
    yes,
)

SUM = "What is 17 + 25? Answer with the number."
_LEGS = "How many legs do 3 spiders, 4 dogs and 5 birds have in all? Think about each in turn."
MOST = 96
ROOM = 768
_TAGS = ("<think>", "</think>")
_SWITCHES = SAMPLES["switches"]
_BY_TEMPLATE = _SWITCHES[0]["name"]


def thought(answer: ProbeAnswer) -> bool:
    """Return whether there is reasoning, in its field or in tags inside the text."""
    return bool(answer.reasoning) or any(tag in answer.text for tag in _TAGS)


def _with(subject: Subject, fields: Mapping[str, object]) -> Steps[bool | None]:
    reply = yield subject.ask(SUM, MOST, **fields).once()
    return None if reply.refusal is not None else thought(reply.answer())


@question("thinking", "2.5, 4.2", asks=9, tokens=140)
def _switch(subject: Subject) -> Script:
    """Can thinking be turned on and off?"""
    thinks = yield from _with(subject, {})
    ever = bool(thinks)
    for name, on, off in map(itemgetter("name", "on", "off"), _SWITCHES):
        loud = yield from _with(subject, on)
        ever = ever or bool(loud)
        if not loud:
            continue
        if (yield from _with(subject, off)) is False:
            known = replace(subject, quiet=off, loud=on, thinking="switch")
            by_default = "on" if thinks else "off"
            how = f"by `{name}`; {by_default} by default"
            return (yes if name == _BY_TEMPLATE else partly)(how, learned=known)
    if ever:
        known = replace(subject, loud={}, thinking="always", room=ROOM)
        return no("it thinks, and no switch turns that off", learned=known)
    return unclear("it never thinks", learned=replace(subject, thinking="never"))


def _both_ways(name: str, rule: str, words: str, switch: int) -> ProbeQuestion:
    on, off = _SWITCHES[switch]["on"], _SWITCHES[switch]["off"]

    @question(name, rule, f"Does {words} do it?", decides=(name,), asks=2, tokens=140)
    def script(subject: Subject) -> Script:
        bare = replace(subject, quiet={})
        replies = []
        for fields in (on, off):
            reply = yield bare.ask(SUM, MOST, **fields).once()
            if (refused := reply.refusal) is not None and fields is on:
                return no(refused)
            replies.append(reply)
        loud = thought(replies[0].answer())
        if (refused := replies[1].refusal) is not None:
            return partly(f"on; off is {refused}") if loud else no(refused)
        quiet = not thought(replies[1].answer())
        if loud and quiet:
            return yes("on and off")
        if subject.thinking == "never":
            return unclear("accepted, but it never thinks")
        how = "all the same" if loud else "in neither case"
        return no(f"accepted, no effect: it thinks {how}")

    return script


@question("reasoning_content", "2.5", tokens=140, loud=True)
def _fields(subject: Subject) -> Script:
    """Does reasoning come as `reasoning_content`?"""
    reply = yield subject.loudly(SUM, MOST).once()
    answer = reply.answer()
    message = answer.at("choices", 0, "message")
    if dig(message, "reasoning_content"):
        return yes()
    if dig(message, "reasoning"):
        return partly("it comes as `reasoning`")
    if any(tag in answer.text for tag in _TAGS):
        return partly("it comes inside the content, between tags")
    return no("no reasoning came")


@question("stream.reasoning", "S", tokens=210, loud=True)
def _order(subject: Subject) -> Script:
    """Does reasoning come before content in streams?"""
    stream = (yield subject.loudly(SUM, MOST + 64, stream=True)).stream()
    kinds = _kinds(stream)
    if "reasoning" not in kinds:
        return no("no reasoning came in the stream")
    if "text" not in kinds:
        return unclear("the answer was cut before its text")
    if kinds.index("text") < len(kinds) - kinds[::-1].index("reasoning") - 1:
        return no("reasoning comes after text")
    return yes()


def _kinds(stream: ProbeStream) -> list[str]:
    kinds = []
    for delta in stream.deltas():
        if delta.get("reasoning_content") or delta.get("reasoning"):
            kinds.append("reasoning")
        if delta.get("content"):
            kinds.append("text")
    return kinds


@of_parameter("thinking_token_budget", asks=2, tokens=140, loud=True)
def _budget(subject: Subject) -> Script:
    """Does `thinking_token_budget` shorten it?"""
    free = (yield subject.loudly(_LEGS, MOST)).answer()
    if len(free.reasoning.split()) < 12:
        return unclear("it thinks too briefly for a budget to show")
    short = (yield subject.loudly(_LEGS, MOST, thinking_token_budget=8)).answer()
    words = f"{len(free.reasoning)} characters without, {len(short.reasoning)} with a budget of 8"
    spent = short.at("usage", "completion_tokens_details", "reasoning_tokens")
    told = isinstance(spent, int) and 0 < spent <= 16
    if len(short.reasoning) < len(free.reasoning) and (told or len(short.reasoning) <= 80):
        return yes(words)
    return no(f"accepted, no effect: {words}")


@of_parameter("include_reasoning", asks=2, tokens=140, loud=True)
def _hidden(subject: Subject) -> Script:
    """Does `include_reasoning: false` hide it?"""
    free = (yield subject.loudly(SUM, MOST).once()).answer()
    answer = (yield subject.loudly(SUM, MOST, include_reasoning=False)).answer()
    if not thought(free):
        return unclear("no reasoning comes anyway")
    if thought(answer):
        return no("accepted, no effect: reasoning came")
    return yes()


@question("reasoning.back", "2.2", asks=2, tokens=300, loud=True)
def _reasoning_sent_back(subject: Subject) -> Script:
    """Does reasoning that is sent back reach the model?"""
    call = {"id": "call_1", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    said = {"role": "assistant", "content": "", "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "call_1", "content": '{"time": "12:30"}'}
    tool = {"name": "now", "description": "The time.", "parameters": {"type": "object"}}
    tools = [{"type": "function", "function": tool}]
    counts = []
    for extra in ({}, {"reasoning_content": "The user wants to know the time, so I ask. " * 3}):
        talk: Messages = [user("What time is it?"), {**said, **extra}, result]
        counts.append((yield subject.loudly(talk, MOST, tools=tools)).answer().prompt)
    bare, full = counts
    if bare is None or full is None:
        return partly("accepted; no usage tells whether the model sees it")
    if full > bare:
        return yes(f"the prompt grew from {bare} to {full} tokens")
    return partly("accepted and left out of the prompt")


QUESTIONS = (
    _switch,
    _both_ways("chat_template_kwargs", "4.2", f"`{_BY_TEMPLATE}`", 0),
    _both_ways("reasoning_effort", "contract 1", "`reasoning_effort`", 1),
    _both_ways("reasoning", "G", "the `reasoning` object of routers", 2),
    *(_fields, _order, _budget, _hidden, _reasoning_sent_back),
)
