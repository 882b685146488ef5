"""The list of models, and the address it stands at (interface 1, 2.1, 4.1, 5.5, 9)."""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import replace

from causerie.errors import counted
from causerie.probe.ask import ProbeRequest
from causerie.probe.question import Learned, ProbeQuestion, Script
from causerie.probe.reading import settle
from causerie.probe.reply import ProbeReply, dig
from causerie.probe.subject import Subject
from causerie.probe.verdict import ProbeVerdict, no, partly, unclear, yes

LIST = ProbeRequest("GET", "/models")
_VERSION = re.compile(r"/v[0-9]+[a-z0-9]*/?\Z")
_LENGTHS = (
    ("context_length",),
    ("max_model_len",),
    ("context_window",),
    ("loaded_context_length",),
    ("max_context_length",),
    ("meta", "n_ctx"),
    ("top_provider", "context_length"),
)


def entries(reply: ProbeReply) -> list[object]:
    """Return the entries of a list of models, empty where the reply is none."""
    data = dig(reply.document(), "data")
    return (
        [one for one in data if isinstance(dig(one, "id"), str)] if isinstance(data, list) else []
    )


def entry_of(reply: ProbeReply, model: str) -> object:
    """Return the entry of one model, ``None`` if it is not listed."""
    return next((one for one in entries(reply) if dig(one, "id") == model), None)


def listed_length(entry: object) -> int | None:
    """Return the context length that an entry tells, in tokens."""
    for path in _LENGTHS:
        value = dig(entry, *path)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def _base(subject: Subject) -> Script:
    yield from ()
    if _VERSION.search(subject.base_url):
        return yes()
    return partly("the base URL does not end with a version like /v1")


def _models(subject: Subject) -> Script:
    reply = yield LIST
    settle(reply)
    if not isinstance(dig(reply.document(), "data"), list):
        return no("the reply has no array `data`")
    entry, count = entry_of(reply, subject.model), len(entries(reply))
    if entry is None:
        return partly(f"the list has {counted(count, 'model')}, but not this one")
    known = replace(subject, entry=entry, context_length=listed_length(entry))
    return Learned(yes(counted(count, "model")), known)


def _claims(subject: Subject) -> Script:
    yield from ()
    claimed = dig(subject.entry, "supported_parameters")
    if isinstance(claimed, list):
        return yes(f"claims {len(claimed)} parameters")
    return no("the entry has no `supported_parameters`")


def _open(subject: Subject) -> Generator[ProbeRequest, ProbeReply, ProbeVerdict]:
    if not subject.keyed:
        return unclear("asked without a key anyway")
    reply = yield ProbeRequest("GET", "/models", credential="none")
    if reply.status == 200 and entries(reply):
        return yes()
    return no(f"without a key: status {reply.status}") if reply.status else unclear(reply.trouble)


QUESTIONS = (
    ProbeQuestion(
        "base", "1, 9", "Does the base URL end with a version?", _base, alone=True, asks=0
    ),
    ProbeQuestion("models", "2.1, 4.1", "Are models listed by id?", _models, alone=True),
    ProbeQuestion(
        "models.parameters",
        "1 rule 3",
        "Does the model's entry say which parameters it supports?",
        _claims,
        alone=True,
        asks=0,
    ),
    ProbeQuestion("models.open", "5 rule 5", "Are models listed without a key?", _open, alone=True),
)
