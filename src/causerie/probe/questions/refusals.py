"""Errors and keys (interface 5, 7; contract 3): wrong requests get the right status and form."""

from __future__ import annotations

from collections.abc import Callable, Generator

import msgspec

from causerie.probe.question import (
    Credential,
    ProbeQuestion,
    ProbeReply,
    ProbeRequest,
    ProbeVerdict,
    Script,
    Subject,
    dig,
    no,
    partly,
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
    request: Callable[[Subject], ProbeRequest], *statuses: int
) -> Callable[[Subject], Script]:
    def script(subject: Subject) -> Generator[ProbeRequest, ProbeReply, ProbeVerdict]:
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


def _without_messages(subject: Subject) -> ProbeRequest:
    return ProbeRequest("POST", _PATH, msgspec.json.encode({"model": subject.model}))


def _other_model(subject: Subject) -> ProbeRequest:
    return ProbeRequest("POST", _PATH, _say_ok("no-such-model-probe", subject.limit))


def _key(credential: Credential) -> Callable[[Subject], Script]:
    def script(subject: Subject) -> Generator[ProbeRequest, ProbeReply, ProbeVerdict]:
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


def _placeholder(subject: Subject) -> Script:
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


def _names_parameter(subject: Subject) -> Script:
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


def _question(id: str, rule: str, words: str, script: Callable[[Subject], Script]) -> ProbeQuestion:
    return ProbeQuestion(id, rule, words, script, tokens=50, alone=True)


QUESTIONS = (
    _question(
        "errors.json", "7, contract 3", "Is broken JSON refused with 400?", _refused(_broken, 400)
    ),
    _question(
        "errors.missing",
        "7, contract 3",
        "Are missing messages refused with 400?",
        _refused(_without_messages, 400, 422),
    ),
    _question(
        "errors.model",
        "7, contract 3",
        "Is an unknown model refused with 404?",
        _refused(_other_model, 404),
    ),
    _question(
        "errors.value",
        "contract 1",
        "Is a value out of range refused?",
        _refused(lambda subject: subject.ask("Say ok.", 4, temperature=-3), 400, 422),
    ),
    _question("errors.param", "contract 3", "Does a refusal name the parameter?", _names_parameter),
    _question(
        "errors.path",
        "contract 3",
        "Is an unknown path refused with 404?",
        _refused(lambda _: ProbeRequest("GET", "/no/such/path"), 404),
    ),
    _question("key.none", "5 rule 1", "Is a request without a key refused?", _key("none")),
    _question("key.wrong", "5 rule 1", "Is a wrong key refused?", _key("wrong")),
    _question(
        "key.placeholder",
        "5 rule 2",
        "Is a placeholder taken where no key is needed?",
        _placeholder,
    ),
)
