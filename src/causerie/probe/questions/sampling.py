"""Questions on sampling, length, choices, continuation and thinking, each judged by its effect.

They belong to the contract, 1 and 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from operator import itemgetter

from causerie.errors import counted
from causerie.probe.question import (
    SAMPLES,
    Messages,
    ProbeAnswer,
    ProbeRequest,
    ProbeStream,
    Script,
    Steps,
    Subject,
    checked,
    dig,
    no,
    partly,
    script,
    unclear,
    user,
    yes,
)

_OPEN = "Invent a name for a spaceship and for its captain."
_AGAIN = "Write the word ha thirty times, like this: ha ha ha ha"
_HOT = 1.5
_STILL = "the text never varies, so no effect can be seen"


def _build_hot_request(subject: Subject, **fields: object) -> ProbeRequest:
    return subject.ask(_OPEN, 16, **({"temperature": _HOT} | fields))


def _tell_if_repeated_and_text(request: ProbeRequest) -> Steps[tuple[bool, str]]:
    # Up to three texts: the first may be computed otherwise, for its prompt was not cached.
    before = (yield request).answer().text
    for _ in range(2):
        text = (yield request).answer().text
        if text == before:
            return True, text
        before = text
    return False, before


@script("temperature")
def _probe_temperature(subject: Subject) -> Script:
    still, cold = yield from _tell_if_repeated_and_text(subject.ask(_OPEN, 16, temperature=0))
    hot = (yield _build_hot_request(subject)).answer().text
    hotter = (yield _build_hot_request(subject)).answer().text
    moved = len({hot, hotter, cold}) > 1
    if still and moved:
        return yes(f"at 0 it repeats itself, at {_HOT} it does not")
    if still:
        return no(f"the same text at 0 and at {_HOT}")
    return no("the text varies at temperature 0")


@script("narrows")
def _probe_narrowing_parameter(subject: Subject, *, name: str, value: float) -> Script:
    # Texts at a high temperature are equal if only the likeliest token is left.
    same, _ = yield from _tell_if_repeated_and_text(_build_hot_request(subject, **{name: value}))
    if not same:
        return no(f"accepted, no effect: three texts at {value:g} all differ")
    texts = set()
    for _ in range(3):
        texts.add((yield _build_hot_request(subject)).answer().text)
        if len(texts) > 1:
            return yes(f"at {value:g} hot texts are the same, without it they differ")
    return unclear(_STILL)


@script("seed")
def _probe_seed(subject: Subject) -> Script:
    same, text = yield from _tell_if_repeated_and_text(_build_hot_request(subject, seed=7))
    if not same:
        return no("accepted, no effect: three texts with the same seed all differ")
    for other in (8, 9):
        if (yield _build_hot_request(subject, seed=other)).answer().text != text:
            return yes("the same seed gives the same text, another one another text")
    return unclear(_STILL)


@script("penalises")
def _probe_if_penalty_changes_text(subject: Subject, *, name: str, value: float) -> Script:
    # A text that repeats itself must change under a penalty on repetition.
    first = (yield subject.ask(_AGAIN, 32)).answer()
    plain = (yield subject.ask(_AGAIN, 32)).answer()
    changed = (yield subject.ask(_AGAIN, 32, **{name: value})).answer()
    if changed.text == plain.text:
        return no(f"accepted, no effect: the same text at {value:g}")
    if first.text != plain.text:
        again = (yield subject.ask(_AGAIN, 32)).answer()
        if again.text != plain.text:
            return unclear("the text varies by itself")
    return yes(f"{plain.text!r:.40} became {changed.text!r:.40}")


@script("logit_bias")
def _probe_logit_bias(subject: Subject) -> Script:
    refused = ""
    for token in _TOKENS:
        fields: dict[str, object] = {subject.limit: 4, "logit_bias": {str(token): 100}}
        reply = yield subject.ask(_OPEN, 4, **fields)
        refused = reply.refusal or ""
        if refused:
            continue
        answer = reply.answer()
        text = answer.text or answer.reasoning
        for count in (4, 3, 2):
            unit, rest = divmod(len(text), count)
            if unit and not rest and text == text[:unit] * count:
                return yes(f"token {token} at 100 gave {text!r:.40}")
    return no(refused or "accepted, no effect: no token could be forced")


@script("logprobs")
def _probe_logprobs(subject: Subject) -> Script:
    answer = (yield subject.ask(_OPEN, 4, logprobs=True, top_logprobs=2)).answer()
    tokens = answer.at("choices", 0, "logprobs", "content")
    if not isinstance(tokens, list) or not tokens:
        return no("accepted, no effect: no `logprobs.content`")
    numbers, pieces = ([dig(one, name) for one in tokens] for name in ("logprob", "bytes"))
    tops = [dig(one, "top_logprobs") for one in tokens]
    text = "".join(str(dig(one, "token")) for one in tokens)
    return checked(
        (not all(isinstance(one, int | float) for one in numbers), "a token without `logprob`"),
        (
            not all(isinstance(top, list) and len(top) == 2 for top in tops),
            "not two `top_logprobs` a token",
        ),
        (not all(isinstance(one, list) for one in pieces), "a token without `bytes`"),
        (not answer.reasoning and text != answer.text, "the tokens are not the text"),
    )


# Length: output limits, stops, choices, and the continuation of a reply.

COUNT = "Count from 1 to 60, separated by commas."
BRIEF = "Answer with one word: yes"
BRIEF_MOST = 48
_TOKENS = (65, 300, 1000)  # ids that vocabularies of every sort have


@script("output limit")
def _probe_output_limit(subject: Subject, *, name: str) -> Script:
    fields: dict[str, object] = {subject.limit: None, name: 8}
    answer = (yield subject.ask(COUNT, 8, **fields)).answer()
    told = "" if answer.completion is None else f" after {counted(answer.completion, 'token')}"
    if answer.finish == "length":
        if answer.completion is not None and answer.completion > 8:
            return partly(f"asked for 8 tokens, {answer.completion} were counted")
        return yes()
    if answer.completion is not None and answer.completion < 8:
        return unclear(f"it ended by itself{told}")
    return no(f"asked for at most 8 tokens; it ended with {answer.finish!r}{told}")


@script("limits.both")
def _probe_contradicting_limits(subject: Subject) -> Script:
    fields: dict[str, object] = {subject.limit: None, "max_tokens": 8, "max_completion_tokens": 9}
    reply = yield subject.ask(COUNT, 8, **fields)
    if reply.refusal is not None:
        return yes(reply.refusal or "")
    reply.answer()
    return no("two limits that differ are taken, and one is dropped in silence")


@script("longer answer")
def _probe_answer_lengthening(subject: Subject, *, name: str, value: object, least: int) -> Script:
    brief = (yield subject.ask(BRIEF, BRIEF_MOST).with_reuse()).answer()
    if brief.completion is None:
        return unclear("no usage tells how long answers are")
    if brief.completion >= least:
        return unclear("the answer is long by itself")
    grown = (yield subject.ask(BRIEF, BRIEF_MOST, **{name: value})).answer()
    words = f"{counted(brief.completion, 'token')} without, {grown.completion} with it"
    long = (grown.completion or 0) >= least
    return yes(words) if long else no(f"accepted, no effect: {words}")


@script("stop")
def _probe_stop_string(subject: Subject) -> Script:
    whole = (yield subject.ask(COUNT, 40).with_reuse()).answer().text
    middle = len(whole) // 2
    mark = whole[middle : middle + 3]
    if len(mark) < 3 or not mark.strip():
        return unclear("the answer is too short to be cut")
    cut = (yield subject.ask(COUNT, 40, stop=[mark, "\u2603\u2603"])).answer()
    if mark not in cut.text and cut.finish == "stop" and len(cut.text) < len(whole):
        return yes(f"cut before {mark!r}")
    if cut.text.endswith(mark) and len(cut.text) < len(whole):
        return partly("the text ends with the stop string")
    if mark not in cut.text:
        return partly(f"cut, with finish reason {cut.finish!r}")
    return no(f"accepted, no effect: {mark!r} is in the answer")


@script("stop_token_ids")
def _probe_stop_token_ids(subject: Subject) -> Script:
    for token in _TOKENS:
        forced = {subject.limit: 6, "logit_bias": {str(token): 100}}
        reply = yield subject.ask(COUNT, 6, **forced).with_reuse()
        if reply.refusal is not None or reply.answer().finish != "length":
            continue
        stopped = (yield subject.ask(COUNT, 6, stop_token_ids=[token], **forced)).answer()
        if stopped.finish == "stop":
            return yes(f"token {token} ended the answer")
        return no(f"accepted, no effect: token {token} did not end the answer")
    return unclear("no token could be forced, so none could stop the answer")


@script("n")
def _probe_two_choices(subject: Subject) -> Script:
    reply = yield subject.ask("Name an animal.", 8, n=2, temperature=1)
    first = reply.answer()
    found = first.at("choices")
    listed = found if isinstance(found, list) else []
    if len(listed) != 2:
        return no(f"two choices were asked for, {len(listed)} came")
    second: ProbeAnswer = reply.answer(1)
    if [dig(one, "index") for one in listed] != [0, 1]:
        return partly("the choices are not numbered 0 and 1")
    return yes() if second.text else partly("the second choice is empty")


_ASKED = user("What is the capital of France? Answer in one sentence.")
_STARTED = "The capital of France is Par"
_NEXT = "is"
_FEW = 5  # tokens; saying all of it anew takes more
_FIELDS: Mapping[str, object] = {"continue_final_message": True, "add_generation_prompt": False}


def _build_unfinished_talk(**fields: object) -> Messages:
    return [_ASKED, {"role": "assistant", "content": _STARTED} | fields]


def _is_continuation(answer: ProbeAnswer) -> bool:
    # The answer may repeat the sent text if that costs no tokens.
    if answer.text.startswith(_NEXT):
        return True
    repeated = answer.text.startswith(_STARTED + _NEXT)
    return repeated and answer.completion is not None and answer.completion <= _FEW


@script("continue_final_message")
def _probe_continue_final_message(subject: Subject) -> Script:
    answer = (yield subject.ask(_build_unfinished_talk(), 8, **_FIELDS).with_reuse()).answer()
    if _is_continuation(answer):
        if answer.text.startswith(_STARTED):
            return partly("it goes on, and repeats what was sent")
        return yes(f"went on with {answer.text!r:.40}")
    fewer = yield from _count_prompt_tokens_saved(subject, answer)
    if fewer:
        return yes(f"{fewer} tokens between messages are left out")
    return no(f"accepted, began anew: {answer.text!r:.60}")


def _count_prompt_tokens_saved(subject: Subject, answer: ProbeAnswer) -> Steps[int]:
    reply = yield subject.ask(_build_unfinished_talk(), 8).with_reuse()
    if reply.refusal is not None:
        return 0
    other = reply.answer()
    return max(0, (other.prompt or 0) - (answer.prompt or 0)) if answer.prompt else 0


@script("continues")
def _probe_every_way_to_continue(subject: Subject) -> Script:
    # Any of the three ways will do.
    talk = _build_unfinished_talk()
    ways = (
        ("whenever an assistant message is the last one", subject.ask(talk, 8, stream=True)),
        ("by `continue_final_message`", subject.ask(talk, 8, **_FIELDS, stream=True)),
        ("by `prefix`", subject.ask(_build_unfinished_talk(prefix=True), 8, stream=True)),
    )
    for how, ask in ways:
        reply = yield ask
        if reply.refusal is None and reply.stream().answer().text.startswith(_NEXT):
            return yes(how, learned=replace(subject, continues=True))
    marked = yield subject.ask(talk, 8, **_FIELDS).with_reuse()
    if marked.refusal is None and (yield from _count_prompt_tokens_saved(subject, marked.answer())):
        return yes("by `continue_final_message`", learned=replace(subject, continues=True))
    return no("it begins anew", learned=replace(subject, continues=False))


@script("add_generation_prompt")
def _probe_add_generation_prompt(subject: Subject) -> Script:
    # A prompt without the beginning of a new message is shorter.
    bare = (yield subject.ask("Say ok.", 4, add_generation_prompt=False)).answer()
    full = (yield subject.ask("Say ok.", 4)).answer()
    if bare.prompt is None or full.prompt is None:
        return unclear("no usage tells the length of the prompt")
    if bare.prompt < full.prompt:
        return yes(f"{full.prompt - bare.prompt} tokens fewer")
    return no("accepted, no effect: the prompt is as long with it as without")


# Thinking: its switches, its fields, its length (interface 2.2, 2.5, 4.2, S, G; contract 1).

SUM = "What is 17 + 25? Answer with the number."
_LEGS = "How many legs do 3 spiders, 4 dogs and 5 birds have in all? Think about each in turn."
MOST = 96
ROOM = 768
_TAGS = ("<think>", "</think>")
_SWITCHES = SAMPLES["switches"]
_BY_TEMPLATE = _SWITCHES[0]["name"]


def thought(answer: ProbeAnswer) -> bool:
    """Return whether the answer has reasoning, in its own field or in tags inside the text."""
    return bool(answer.reasoning) or any(tag in answer.text for tag in _TAGS)


def _ask_if_thinking(subject: Subject, fields: Mapping[str, object]) -> Steps[bool | None]:
    reply = yield subject.ask(SUM, MOST, **fields).with_reuse()
    return None if reply.refusal is not None else thought(reply.answer())


@script("thinking")
def _probe_thinking_switch(subject: Subject) -> Script:
    thinks = yield from _ask_if_thinking(subject, {})
    ever = bool(thinks)
    for name, on, off in map(itemgetter("name", "on", "off"), _SWITCHES):
        loud = yield from _ask_if_thinking(subject, on)
        ever = ever or bool(loud)
        if not loud:
            continue
        if (yield from _ask_if_thinking(subject, off)) is False:
            known = replace(subject, quiet=off, loud=on, thinking="switch")
            by_default = "on" if thinks else "off"
            how = f"by `{name}`; {by_default} by default"
            return (yes if name == _BY_TEMPLATE else partly)(how, learned=known)
    if ever:
        known = replace(subject, loud={}, thinking="always", room=ROOM)
        return no("it thinks, and no switch turns that off", learned=known)
    return unclear("it never thinks", learned=replace(subject, thinking="never"))


@script("both ways")
def _probe_thinking_on_and_off(subject: Subject, *, switch: int) -> Script:
    bare, replies = replace(subject, quiet={}), []
    for way in ("on", "off"):
        reply = yield bare.ask(SUM, MOST, **_SWITCHES[switch][way]).with_reuse()
        if (refused := reply.refusal) is not None and way == "on":
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


@script("reasoning_content")
def _probe_reasoning_field(subject: Subject) -> Script:
    reply = yield subject.loudly(SUM, MOST).with_reuse()
    answer = reply.answer()
    message = answer.at("choices", 0, "message")
    if dig(message, "reasoning_content"):
        return yes()
    if dig(message, "reasoning"):
        return partly("it comes as `reasoning`")
    if any(tag in answer.text for tag in _TAGS):
        return partly("it comes inside the content, between tags")
    return no("no reasoning came")


@script("stream.reasoning")
def _probe_reasoning_order(subject: Subject) -> Script:
    stream = (yield subject.loudly(SUM, MOST + 64, stream=True)).stream()
    kinds = _list_delta_kinds(stream)
    if "reasoning" not in kinds:
        return no("no reasoning came in the stream")
    if "text" not in kinds:
        return unclear("the answer was cut before its text")
    if kinds.index("text") < len(kinds) - kinds[::-1].index("reasoning") - 1:
        return no("reasoning comes after text")
    return yes()


def _list_delta_kinds(stream: ProbeStream) -> list[str]:
    kinds = []
    for delta in stream.deltas():
        if delta.get("reasoning_content") or delta.get("reasoning"):
            kinds.append("reasoning")
        if delta.get("content"):
            kinds.append("text")
    return kinds


@script("thinking_token_budget")
def _probe_thinking_budget(subject: Subject) -> Script:
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


@script("include_reasoning")
def _probe_include_reasoning(subject: Subject) -> Script:
    free = (yield subject.loudly(SUM, MOST).with_reuse()).answer()
    answer = (yield subject.loudly(SUM, MOST, include_reasoning=False)).answer()
    if not thought(free):
        return unclear("no reasoning comes anyway")
    if thought(answer):
        return no("accepted, no effect: reasoning came")
    return yes()


@script("reasoning.back")
def _probe_reasoning_sent_back(subject: Subject) -> Script:
    asked, said, result = SAMPLES["time"]["messages"]
    counts = []
    for extra in ({}, {"reasoning_content": "The user wants to know the time, so I ask. " * 3}):
        ask = subject.loudly(
            [asked, {**said, **extra}, result], MOST, tools=SAMPLES["time"]["tools"]
        )
        counts.append((yield ask).answer().prompt)
    bare, full = counts
    if bare is None or full is None:
        return partly("accepted; no usage tells whether the model sees it")
    if full > bare:
        return yes(f"the prompt grew from {bare} to {full} tokens")
    return partly("accepted and left out of the prompt")
