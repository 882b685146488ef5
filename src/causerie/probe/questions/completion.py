"""The plain completion and its fields (interface 2.5, contract 2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from causerie.probe.question import Learned, ProbeQuestion, Script
from causerie.probe.reading import answered, refusal
from causerie.probe.reply import dig
from causerie.probe.subject import Subject
from causerie.probe.verdict import weighed

HELLO = "Say hello in one short sentence."
MOST = 24


def _is(kind: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, kind) and not isinstance(value, bool)


_FIELDS: tuple[tuple[tuple[str | int, ...], Callable[[object], bool]], ...] = (
    (("id",), _is(str)),
    (("model",), _is(str)),
    (("created",), _is(int)),
    (("object",), lambda value: value == "chat.completion"),
    (("choices", 0, "index"), lambda value: value == 0),
    (("choices", 0, "message", "role"), lambda value: value == "assistant"),
    (("choices", 0, "message", "content"), _is(str)),
    (("choices", 0, "finish_reason"), lambda value: value in ("stop", "length")),
    (("usage", "prompt_tokens"), _is(int)),
    (("usage", "completion_tokens"), _is(int)),
    (("usage", "total_tokens"), _is(int)),
)


def _completion(subject: Subject) -> Script:
    """Judge a completion; find the name of the output limit and whether temperature 0 works."""
    reply = yield subject.ask(HELLO, MOST).once()
    tried = [
        replace(subject, limit="max_completion_tokens"),
        replace(subject, steady={}),
        replace(subject, limit="max_completion_tokens", steady={}),
    ]
    while refusal(reply) is not None and reply.status in (400, 422) and tried:
        subject = tried.pop(0)
        reply = yield subject.ask(HELLO, MOST).once()
    answer = answered(reply)
    missing = [
        f"`{_named(path)}` is {_seen(dig(answer.document, *path))}"
        for path, holds in _FIELDS
        if not holds(dig(answer.document, *path))
    ]
    return Learned(weighed(missing, of=len(_FIELDS)), subject)


def _named(path: tuple[str | int, ...]) -> str:
    return ".".join(str(part) for part in path)


def _seen(value: object) -> str:
    return "missing" if value is None else f"{value!r:.40}"


def _usage(subject: Subject) -> Script:
    answer = answered((yield subject.ask(HELLO, MOST).once()))
    usage = dig(answer.document, "usage")
    missing = []
    parts, total = (answer.prompt or 0) + (answer.completion or 0), dig(usage, "total_tokens")
    if not answer.prompt or not answer.completion:
        missing.append("no counts of prompt and completion")
    if total != parts:
        missing.append(f"total_tokens is {total}, the sum is {parts}")
    for path in (
        ("prompt_tokens_details", "cached_tokens"),
        ("completion_tokens_details", "reasoning_tokens"),
    ):
        if not isinstance(dig(usage, *path), int):
            missing.append(f"no `{'.'.join(path)}`")
    return weighed(missing, of=4)


def _identity(subject: Subject) -> Script:
    reply = yield subject.ask(HELLO, MOST).once()
    answer = answered(reply)
    missing = []
    if not str(dig(answer.document, "id") or "").startswith("chatcmpl-"):
        missing.append("`id` does not begin with chatcmpl-")
    if not dig(answer.document, "system_fingerprint"):
        missing.append("no `system_fingerprint`")
    if (named := dig(answer.document, "model")) != subject.model:
        missing.append(f"`model` is {named!r:.60}, not what was asked for")
    if "x-request-id" not in reply.headers:
        missing.append("no header x-request-id")
    return weighed(missing, of=4)


QUESTIONS = (
    ProbeQuestion(
        "completion",
        "2.5, 4.2",
        "Does a plain completion come, with all its fields?",
        _completion,
        asks=4,
        tokens=80,
        alone=True,
    ),
    ProbeQuestion("usage", "2.5", "Does the usage add up, with its details?", _usage, tokens=80),
    ProbeQuestion(
        "identity", "contract 2", "Are id, fingerprint and model told?", _identity, tokens=80
    ),
)
