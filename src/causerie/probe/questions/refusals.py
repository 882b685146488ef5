"""Errors and keys (interface 5, 7; contract 3): wrong requests get the right status and form."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from causerie.probe.question import (
    Credential,
    ProbeQuestion,
    ProbeReply,
    ProbeRequest,
    Script,
    Subject,
    dig,
    no,
    partly,
    question,
    unclear,
    user,
    weighed,
    yes,
)
from causerie.probe.reading import message_of

_PATH = "/chat/completions"


def _say_ok(model: str, limit: str) -> bytes:
    return msgspec.json.encode({"model": model, "messages": [user("Say ok.")], limit: 4})


def _faults(reply: ProbeReply, statuses: tuple[int, ...]) -> list[str]:
    missing = []
    if reply.status not in statuses:
        wanted = " or ".join(map(str, statuses))
        missing.append(f"status {reply.status} instead of {wanted}: {message_of(reply)}")
    error = dig(reply.document(), "error")
    if not isinstance(error, dict):
        missing.append("no object `error`")
    else:
        lacks = [name for name in ("message", "type", "param", "code") if name not in error]
        if lacks:
            missing.append("`error` lacks " + ", ".join(lacks))
    return missing


def _refused(
    id: str, rule: str, words: str, request: Callable[[Subject], ProbeRequest], *statuses: int
) -> ProbeQuestion:
    @question(id, rule, words, tokens=50, alone=True)
    def script(subject: Subject) -> Script:
        reply = yield request(subject)
        if not reply.status:
            return unclear(reply.trouble)
        if reply.status == 200:
            return no("taken: status 200")
        return weighed(_faults(reply, statuses), of=2)

    return script


def _broken(subject: Subject) -> ProbeRequest:
    return ProbeRequest(
        "POST", _PATH, b'{"model": "' + subject.model.encode() + b'", "messages": ['
    )


def _key(credential: Credential, words: str) -> ProbeQuestion:
    @question(f"key.{credential}", "5 rule 1", words, tokens=50, alone=True)
    def script(subject: Subject) -> Script:
        if not subject.keyed:
            return unclear("asked without a key anyway")
        body = _say_ok(subject.model, subject.limit)
        reply = yield ProbeRequest("POST", _PATH, body, credential=credential)
        if reply.status == 200:
            return partly("no key is needed")
        missing = _faults(reply, (401,)) if reply.status else [reply.trouble]
        if "www-authenticate" not in reply.headers:
            missing.append("no header WWW-Authenticate")
        return weighed(missing, of=3)

    return script


@question("key.placeholder", "5 rule 2", tokens=50, alone=True)
def _placeholder(subject: Subject) -> Script:
    """Is a placeholder taken where no key is needed?"""
    # Clients that insist on a key send any, where none is needed.
    if subject.keyed:
        return unclear("asked with a key")
    body = _say_ok(subject.model, subject.limit)
    reply = yield ProbeRequest("POST", _PATH, body, credential="wrong")
    if reply.status == 200:
        return yes()
    if not reply.status:
        return unclear(reply.trouble)
    return no(f"status {reply.status}: {message_of(reply)}")


@question("errors.param", "contract 3", tokens=50, alone=True)
def _names_parameter(subject: Subject) -> Script:
    """Does a refusal name the parameter?"""
    reply = yield subject.ask("Say ok.", 4, temperature="hot")
    if reply.status == 200:
        return no("taken: status 200")
    if not reply.status:
        return unclear(reply.trouble)
    param = dig(reply.document(), "error", "param")
    if param == "temperature":
        return yes()
    if "temperature" in message_of(reply):
        return partly("in words, not as `param`")
    return no(message_of(reply))


QUESTIONS = (
    _refused("errors.json", "7, contract 3", "Is broken JSON refused with 400?", _broken, 400),
    _refused(
        "errors.missing",
        "7, contract 3",
        "Are missing messages refused with 400?",
        lambda one: ProbeRequest("POST", _PATH, msgspec.json.encode({"model": one.model})),
        *(400, 422),
    ),
    _refused(
        "errors.model",
        "7, contract 3",
        "Is an unknown model refused with 404?",
        lambda one: ProbeRequest("POST", _PATH, _say_ok("no-such-model-probe", one.limit)),
        404,
    ),
    _refused(
        "errors.value",
        "contract 1",
        "Is a value out of range refused?",
        lambda one: one.ask("Say ok.", 4, temperature=-3),
        *(400, 422),
    ),
    _names_parameter,
    _refused(
        "errors.path",
        "contract 3",
        "Is an unknown path refused with 404?",
        lambda _: ProbeRequest("GET", "/no/such/path"),
        404,
    ),
    _key("none", "Is a request without a key refused?"),
    _key("wrong", "Is a wrong key refused?"),
    _placeholder,
)
