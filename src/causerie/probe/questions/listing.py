"""Questions on what a server has: models, address, context length, operations besides chat."""

from __future__ import annotations

import re
from dataclasses import replace

import msgspec

from causerie.errors import counted
from causerie.probe.question import (
    SAMPLES,
    ProbeReply,
    ProbeRequest,
    ProbeVerdict,
    Script,
    Steps,
    Subject,
    dig,
    no,
    partly,
    script,
    unclear,
    yes,
)

LIST = ProbeRequest("GET", "/models")
_VERSION = re.compile(r"/v[0-9]+[a-z0-9]*/?\Z")


def entries(reply: ProbeReply) -> list[object]:
    """Return the entries of a reply that is a list of models; empty for any other reply."""
    data = reply.at("data")
    return (
        [one for one in data if isinstance(dig(one, "id"), str)] if isinstance(data, list) else []
    )


def entry_of(reply: ProbeReply, model: str) -> object:
    """Return the entry of one model, ``None`` if it is not listed."""
    return next((one for one in entries(reply) if dig(one, "id") == model), None)


def listed_length(entry: object) -> int | None:
    """Return the context length that an entry tells, in tokens."""
    for path in SAMPLES["lengths"]:
        value = dig(entry, *path)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


@script("base")
def _judge_version_in_base_url(subject: Subject) -> Script:
    yield from ()
    if _VERSION.search(subject.base_url):
        return yes()
    return partly("the base URL does not end with a version like /v1")


@script("models")
def _probe_model_list(subject: Subject) -> Script:
    reply = yield LIST
    reply.settle()
    if not isinstance(reply.at("data"), list):
        return no("the reply has no array `data`")
    entry, count = entry_of(reply, subject.model), len(entries(reply))
    if entry is None:
        return partly(f"the list has {counted(count, 'model')}, but not this one")
    known = replace(subject, entry=entry, context_length=listed_length(entry))
    return yes(counted(count, "model"), learned=known)


@script("models.parameters")
def _probe_if_parameters_are_listed(subject: Subject) -> Script:
    yield from ()
    claimed = dig(subject.entry, "supported_parameters")
    if isinstance(claimed, list):
        return yes(f"claims {len(claimed)} parameters")
    return no("the entry has no `supported_parameters`")


@script("models.open")
def _probe_if_model_list_is_public(subject: Subject) -> Script:
    if not subject.keyed:
        return unclear("asked without a key anyway")
    reply = yield ProbeRequest("GET", "/models", credential="none")
    if reply.status == 200 and entries(reply):
        return yes()
    return no(f"without a key: status {reply.status}") if reply.status else unclear(reply.trouble)


LONGEST_ASKED = 32_768  # tokens; a longer prompt would cost too much if it were not refused
TOO_LONG = "context.exceeded"  # the one question that may send such a prompt
_HUGE = 100_000_000
_TOLD = re.compile(
    r"(?:maximum context length is|context length (?:is|of)|context window (?:is|of)|"
    r"context (?:size|holds)|n_ctx)\D{0,20}([0-9][0-9,_]{2,})",
    re.IGNORECASE,
)


def longest_prompt(length: int) -> int:
    """Return how many words (about as many tokens) make a prompt too long for this context."""
    return length + length // 8


def _read_refusal_context_length(reply: ProbeReply) -> int | None:
    told = reply.at("error", "metadata", "context_length")
    if not isinstance(told, int):
        told = reply.at("error", "n_ctx")
    if isinstance(told, int):
        return told
    found = _TOLD.search(reply.message)
    return int(re.sub("[,_]", "", found[1])) if found else None


@script("context_length")
def _probe_context_length(subject: Subject) -> Script:
    if subject.context_length is not None:
        return yes(f"{subject.context_length} tokens, by the list of models")
    again = entry_of((yield LIST), subject.model)
    if (length := listed_length(again)) is not None:  # known once the model has been loaded
        return _build_length_verdict(subject, length, "by the list of models", whole=True)
    reply = yield ProbeRequest("GET", "/props", at_root=True)
    slot = reply.at("default_generation_settings", "n_ctx")
    if isinstance(slot, int) and slot > 0:
        return _build_length_verdict(subject, slot, "by GET /props")
    limit = subject.limit
    reply = yield subject.ask("Say ok.", 4, **{limit: _HUGE})
    length = _read_refusal_context_length(reply) if reply.refusal is not None else None
    if length is not None:
        return _build_length_verdict(subject, length, "by the refusal of a huge output limit")
    return unclear("nothing tells it")


def _build_length_verdict(
    subject: Subject, context_length: int, source: str, *, whole: bool = False
) -> ProbeVerdict:
    words = f"{context_length} tokens, {source}"
    known = replace(subject, context_length=context_length)
    return (yes if whole else partly)(words, learned=known)


@script(TOO_LONG)
def _probe_refusal_of_too_long_prompt(subject: Subject) -> Script:
    length = subject.context_length
    if length is None:
        return unclear("not asked: the context length is not known")
    if length > LONGEST_ASKED:
        return unclear(f"not asked: a prompt of more than {length} tokens might cost as much")
    reply = yield subject.ask("hi " * longest_prompt(length), 1)
    if reply.status == 200:
        answer = reply.answer()
        return no(f"taken, with a prompt of {answer.prompt} tokens: it was cut in silence")
    if reply.refusal is None:
        if not reply.status:
            return unclear(reply.trouble)
        return no(f"status {reply.status}: {reply.message}")
    if reply.at("error", "code") == "context_length_exceeded":
        return yes(reply.message)
    return partly(f"refused under another code: {reply.message}")


# Operations besides chat.

_QUERY, _NEAR, _FAR = "Which animal barks?", "A dog barks.", "Iron is a metal."


def _send_and_settle(subject: Subject, operation: str, **fields: object) -> Steps[ProbeReply]:
    body = msgspec.json.encode({"model": subject.model, **fields})
    reply = yield ProbeRequest("POST", f"/{operation}", body)
    reply.settle()
    return reply


@script("embeddings")
def _probe_embeddings(subject: Subject) -> Script:
    reply = yield from _send_and_settle(subject, "embeddings", input=[_NEAR, _FAR])
    first, second = (reply.at("data", index, "embedding") for index in range(2))
    if not (isinstance(first, list) and first and isinstance(second, list) and second):
        return no("the reply has no vector for each text")
    if first == second:
        return no("two texts have the same vector")
    tokens = reply.at("usage", "prompt_tokens")
    if not isinstance(tokens, int) or not tokens:
        return partly("no usage tells the tokens, which are estimated then")
    return yes(f"vectors of {len(first)} numbers")


@script("rerank")
def _probe_rerank(subject: Subject) -> Script:
    reply = yield from _send_and_settle(subject, "rerank", query=_QUERY, documents=[_FAR, _NEAR])
    results = reply.at("results") or reply.at("data")
    if not isinstance(dig(results, 0, "relevance_score"), int | float):
        return no("the reply has no `relevance_score`")
    if dig(results, 0, "index") != 1:
        return partly("the document that does not answer comes first")
    return yes()


@script("completions")
def _probe_completions(subject: Subject) -> Script:
    reply = yield from _send_and_settle(
        subject, "completions", prompt="One, two, three,", max_tokens=4
    )
    if not isinstance(reply.at("choices", 0, "text"), str):
        return no("the reply has no `text`")
    return yes()
