"""A question of the probe: its request, its replies, what is known so far, and its verdict.

Replies are read as completions; evidence of requests and replies is shortened for people.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from causerie.protocol import bounded_json
from causerie.protocol.sse import EventDecoder, LineTooLong

SAMPLES: Mapping[str, Any] = tomllib.loads(
    Path(__file__).with_name("samples.toml").read_text("utf-8")
)
"""What questions send, by its kind."""
Ended = Literal["whole", "left", "late", "broken", "large"]
BUSY = (429, 503)
_WORDS = 160


def dig(value: object, *path: str | int) -> object:
    """Return the value at the path in decoded JSON; ``None`` if there is none."""
    for step in path:
        if isinstance(step, str) and isinstance(value, dict):
            value = value.get(step)
        elif isinstance(step, int) and isinstance(value, list) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return None
    return value


@dataclass(frozen=True, slots=True)
class ProbeReply:
    """One reply of a server, with methods that read it as completion, stream or refusal."""

    status: int = 0  # 0 if none came
    headers: Mapping[str, str] = field(default_factory=dict)  # by lower-case name
    body: bytes = b""
    ended: Ended = "whole"
    """Whole; left by us; ``late`` (over the time limit), ``broken`` (the connection) or ``large``
    (over the size limit).
    """
    trouble: str = ""  # text of the failure
    seconds: float = 0.0  # time that it took

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def document(self) -> object:
        try:
            return bounded_json.decode(self.body, Any, bounded_json.REPLY)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    def at(self, *path: str | int) -> object:
        return dig(self.document(), *path)

    @property
    def message(self) -> str:
        """Return the reply's error message, or the start of its body, shortened."""
        document = self.document()
        for path in (("error", "message"), ("message",), ("detail",), ("error",)):
            found = dig(document, *path)
            if isinstance(found, str) and found:
                return _shorten(found)
        return _shorten(self.body[: 4 * _WORDS].decode("utf-8", "replace")) or "no words"

    @property
    def refusal(self) -> str | None:
        """Return why the request was refused (a 4xx other than *busy*); ``None`` if it was not."""
        if 400 <= self.status < 500 and self.status not in BUSY:
            return f"refused with {self.status}: {self.message}"
        return None

    @property
    def failure(self) -> ProbeVerdict | None:
        if self.ended == "large":
            return no(self.trouble)
        if self.ended in ("late", "broken"):
            return unclear(self.trouble)
        if self.refusal is not None:
            return no(self.refusal)
        if self.status in BUSY:
            return unclear(f"the server was busy: {self.status} {self.message}")
        if self.status >= 500:
            return no(f"failed with {self.status}: {self.message}")
        return None if self.status == 200 else no(f"answered with status {self.status}")

    def settle(self) -> None:
        """Raise :class:`Settled` for a reply that has failed."""
        if self.failure is not None:
            raise Settled(self.failure)

    def answer(self, choice: int = 0) -> ProbeAnswer:
        """Return the choice of a plain completion; raise :class:`Settled` if there is none."""
        self.settle()
        document = self.document()
        if document is None:
            kind = self.content_type or "no content type"
            raise Settled(no(f"the reply is not JSON ({kind}): {self.message}"))
        if dig(document, "error") is not None:
            raise Settled(no(f"status 200 with an error: {self.message}"))
        if not isinstance(dig(document, "choices", choice, "message"), dict):
            raise Settled(no("the reply has no `choices[].message`"))
        return _parse_answer(document, choice)

    def stream(self) -> ProbeStream:
        """Return the chunks of a stream; raise :class:`Settled` if there are none."""
        self.settle()
        if self.content_type != "text/event-stream":
            kind = self.content_type or "no content type"
            raise Settled(no(f"a stream was asked for and {kind} came: {self.message}"))
        decoder = EventDecoder(max_bytes=max(len(self.body), 1))
        try:
            events = [*decoder.feed(self.body), *decoder.close()]
        except LineTooLong as error:
            raise Settled(no(str(error))) from error
        faults = _find_stream_faults(self.body, events)
        chunks = []
        for event in events:
            if event.strip() == b"[DONE]":
                continue
            chunk = ProbeReply(body=event).document()
            if not isinstance(chunk, dict):
                words = _shorten(event.decode("utf-8", "replace"))
                faults.append(f"an event that is no JSON object: {words}")
                continue
            chunks.append(chunk)
        errors = [dig(chunk, "error") for chunk in chunks if dig(chunk, "error") is not None]
        if errors:
            raise Settled(no(f"an error inside the stream: {_shorten(str(errors[0]))}"))
        if not chunks:
            raise Settled(no("the stream has no chunks"))
        return ProbeStream(tuple(chunks), tuple(faults))

    def plain(self) -> ProbeReply:
        """Return a stream as the plain reply that it stands for; any other reply as it is."""
        if self.content_type != "text/event-stream" or self.failure is not None:
            return self
        try:
            body = msgspec.json.encode(self.stream().document())
        except Settled:
            return self
        return replace(self, headers={"content-type": "application/json"}, body=body)


Credential = Literal["ours", "none", "wrong"]


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """One HTTP request of the probe to a provider."""

    method: Literal["GET", "POST"]
    path: str  # follows the base URL, or the root of its host if `at_root` is set
    body: bytes = b""
    credential: Credential = "ours"
    at_root: bool = False
    leave_at_data: bool = False  # close the connection at the first data of the reply
    leave_after: float | None = None  # close the connection after so many seconds
    wait_seconds: float = 0.0
    reuse: bool = False  # equal requests are sent once, and that reply answers all of them

    def with_reuse(self) -> ProbeRequest:
        """Return a copy whose reply also answers all equal requests."""
        return replace(self, reuse=True)


def chat(fields: Mapping[str, object]) -> ProbeRequest:
    return ProbeRequest("POST", "/chat/completions", msgspec.json.encode(fields))


Grade = Literal["yes", "partly", "no", "unclear"]
"""Degree to which a capability exists. ``unclear``: no reply decided it."""
GOOD = frozenset[Grade](("yes", "partly"))


@dataclass(frozen=True, slots=True)
class ProbeVerdict:
    """A grade, and for people what was seen, or what is missing."""

    grade: Grade
    how: str = ""
    learned: Subject | None = field(default=None, repr=False, compare=False)
    """What later questions should know."""

    @property
    def good(self) -> bool:
        return self.grade in GOOD


yes = partial(ProbeVerdict, "yes")
partly = partial(ProbeVerdict, "partly")
no = partial(ProbeVerdict, "no")
unclear = partial(ProbeVerdict, "unclear")


def weighed(missing: list[str], *, of: int, how: str = "") -> ProbeVerdict:
    """Return yes if nothing is missing, no if all ``of`` things are, otherwise partly."""
    if not missing:
        return yes(how)
    words = "; ".join(missing)
    return no(words) if len(missing) >= of else partly(words)


def checked(*checks: tuple[object, str]) -> ProbeVerdict:
    """Return yes if no check has found a fault, no if all have, otherwise partly."""
    return weighed([words for is_fault, words in checks if is_fault], of=len(checks))


class Settled(Exception):
    """Raised inside a question whose verdict is clear already."""

    def __init__(self, verdict: ProbeVerdict) -> None:
        super().__init__(verdict.how)
        self.verdict = verdict


Thinking = Literal["switch", "always", "never"]
Messages = Sequence[Mapping[str, object]]


def user(content: object) -> dict[str, object]:
    return {"role": "user", "content": content}


@dataclass(frozen=True, slots=True)
class Subject:
    """The model under test at one provider, with what the questions have learned about it."""

    base_url: str
    model: str
    keyed: bool = False
    entry: object = None  # its entry in the list of models
    limit: str = "max_tokens"  # name of the output limit that it takes
    steady: Mapping[str, object] = field(default_factory=lambda: {"temperature": 0})
    """Fields that make it repeat itself."""
    quiet: Mapping[str, object] = field(default_factory=dict)  # fields that keep it from thinking
    loud: Mapping[str, object] | None = None  # fields that make it think; `None`: nothing does
    room: int = 0
    """Tokens that a reply needs in addition to its text, if it cannot be kept from thinking."""
    thinking: Thinking | None = None
    context_length: int | None = None
    continues: bool | None = None

    def ask(self, said: str | Messages, most: int, /, **fields: object) -> ProbeRequest:
        """Build a chat request of at most ``most`` tokens, repeatable and without thinking."""
        messages = [user(said)] if isinstance(said, str) else said
        usual = {**self.steady, **self.quiet, self.limit: most + self.room}
        body: dict[str, object] = {"model": self.model, "messages": messages, **fields}
        body |= {name: value for name, value in usual.items() if name not in fields}
        return chat({name: value for name, value in body.items() if value is not None})

    def loudly(self, said: str | Messages, most: int, /, **fields: object) -> ProbeRequest:
        """Build a chat request with thinking on, of at most ``most`` tokens, thinking included."""
        on = {**dict.fromkeys(self.quiet), **(self.loud or {})}
        return self.ask(said, most, **{**on, **fields})


T = TypeVar("T")
Steps = Generator[ProbeRequest, ProbeReply, T]  # a part of a script, which comes to some result
Script = Steps[ProbeVerdict]
MakeScript = TypeVar("MakeScript", bound=Callable[..., Script])


@dataclass(frozen=True, slots=True)
class ProbeQuestion:
    """A question about a model: its script, the parameters it decides, limits of its cost."""

    id: str
    rule: str  # its place in the interface or the contract
    words: str
    script: Callable[[Subject], Script]
    decides: tuple[str, ...] = ()  # parameters whose support its verdict decides
    asks: int = 1  # limit on its requests
    tokens: int = 0  # limit on the tokens of each request, prompt and output
    loud: bool = False  # it asks with thinking on, so it is only for models that think
    alone: bool = False  # it is asked even if no completion has come
    quick: bool = False  # it decides whether usual clients work, and takes little time


SCRIPTS: dict[str, Callable[..., Script]] = {}
"""Scripts by their names, which rows of `questions/questions.toml` name."""


def script(name: str) -> Callable[[MakeScript], MakeScript]:
    """Return a decorator that enters a function into ``SCRIPTS`` under a name."""

    def register(function: MakeScript) -> MakeScript:
        SCRIPTS[name] = function
        return function

    return register


def step(script: Script, reply: ProbeReply | None) -> ProbeRequest | ProbeVerdict:
    """Send the reply into the script; return its next request, or its verdict at the end."""
    try:
        return next(script) if reply is None else script.send(reply)
    except StopIteration as stop:
        verdict: ProbeVerdict = stop.value
        return verdict
    except Settled as settled:
        return settled.verdict


# Replies read as completions, and evidence for people.


@dataclass(frozen=True, slots=True)
class ProbeCall:
    """A tool call as it came; any member may be of any type."""

    id: object
    type: object
    name: object
    arguments: object


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """One choice of a completion. Counts are ``None`` where no usage told them."""

    text: str
    reasoning: str
    calls: tuple[ProbeCall, ...]
    finish: object
    prompt: int | None
    completion: int | None
    document: object

    def at(self, *path: str | int) -> object:
        return dig(self.document, *path)


def _parse_answer(document: object, choice_index: int = 0) -> ProbeAnswer:
    message = dig(document, "choices", choice_index, "message")
    calls = [(one, dig(one, "function")) for one in _list_or_empty(dig(message, "tool_calls"))]
    return ProbeAnswer(
        text=_text_or_empty(dig(message, "content")),
        reasoning=_read_reasoning(message),
        calls=tuple(
            ProbeCall(dig(one, "id"), dig(one, "type"), dig(of, "name"), dig(of, "arguments"))
            for one, of in calls
        ),
        finish=dig(document, "choices", choice_index, "finish_reason"),
        prompt=_int_or_none(dig(document, "usage", "prompt_tokens")),
        completion=_int_or_none(dig(document, "usage", "completion_tokens")),
        document=document,
    )


@dataclass(frozen=True, slots=True)
class ProbeStream:
    """The chunks of a stream, decoded; ``faults`` is what its form has wrong."""

    chunks: tuple[object, ...]
    faults: tuple[str, ...]

    @property
    def usage(self) -> object:
        return next((u for c in reversed(self.chunks) if (u := dig(c, "usage")) is not None), None)

    def deltas(self, choice: int = 0) -> list[dict[str, object]]:
        found = (
            dig(one, "delta")
            for chunk in self.chunks
            for one in _list_or_empty(dig(chunk, "choices"))
            if dig(one, "index") in (choice, None)
        )
        return [delta for delta in found if isinstance(delta, dict)]

    def finishes(self) -> list[object]:
        choices = (one for chunk in self.chunks for one in _list_or_empty(dig(chunk, "choices")))
        return [reason for one in choices if (reason := dig(one, "finish_reason")) is not None]

    def answer(self) -> ProbeAnswer:
        """Return the first choice, assembled from the chunks of the stream."""
        return _parse_answer(self.document())

    def document(self) -> dict[str, object]:
        """Return the plain completion that the stream stands for."""
        deltas, calls = self.deltas(), _assemble_calls(self)
        message = {
            "role": "assistant",
            "content": "".join(_text_or_empty(delta.get("content")) for delta in deltas),
            "reasoning": "".join(map(_read_reasoning, deltas)),
        }
        logprobs = [
            token
            for chunk in self.chunks
            for token in _list_or_empty(dig(chunk, "choices", 0, "logprobs", "content"))
        ]
        choice = {
            "index": 0,
            "message": message | ({"tool_calls": calls} if calls else {}),
            "finish_reason": next(iter(self.finishes()), None),
            "logprobs": {"content": logprobs},
        }
        return {"choices": [choice], "usage": self.usage}


def _assemble_calls(stream: ProbeStream) -> list[dict[str, object]]:
    pieces: dict[str, list[object]] = {}
    for delta in stream.deltas():
        for piece in _list_or_empty(delta.get("tool_calls")):
            pieces.setdefault(repr(dig(piece, "index")), []).append(piece)
    calls = []
    for parts in pieces.values():
        arguments = "".join(_text_or_empty(dig(part, "function", "arguments")) for part in parts)
        function = {"name": dig(parts[0], "function", "name"), "arguments": arguments}
        calls.append(
            {"id": dig(parts[0], "id"), "type": dig(parts[0], "type"), "function": function}
        )
    return calls


def _find_stream_faults(body: bytes, events: list[bytes]) -> list[str]:
    faults = []
    if b"\r\n" in body:
        faults.append("lines end in CR LF")
    lines = [line.removesuffix(b"\r") for line in body.split(b"\n")]
    usual = (b"data: ", b":")
    odd = {line.partition(b":")[0] for line in lines if line and not line.startswith(usual)}
    if odd:
        names = ", ".join(sorted(_shorten(name.decode("utf-8", "replace")) for name in odd)[:3])
        faults.append(f"lines other than `data: `: {names}")
    ends = [event.strip() == b"[DONE]" for event in events]
    if True not in ends:
        faults.append("no [DONE]")
    elif ends.index(True) != len(ends) - 1:
        faults.append("more after [DONE]")
    return faults


def _read_reasoning(message: object) -> str:
    return _text_or_empty(dig(message, "reasoning_content")) or _text_or_empty(
        dig(message, "reasoning")
    )


def _int_or_none(json_value: object) -> int | None:
    return json_value if isinstance(json_value, int) and not isinstance(json_value, bool) else None


def _list_or_empty(json_value: object) -> list[object]:
    return json_value if isinstance(json_value, list) else []


def _text_or_empty(json_value: object) -> str:
    return json_value if isinstance(json_value, str) else ""


def _shorten(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _WORDS else words[: _WORDS - 1] + "…"


_LONGEST = 240
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]+")
_SECRETS = re.compile(r"(?i)(bearer\s+|\b(?:sk|ck|pk|hf|key)[-_])[A-Za-z0-9._\-]{6,}")


class RecordedExchange(Struct, frozen=True, kw_only=True):
    """One request and its reply, in words."""

    asked: str
    came: str
    seconds: float


def exchange(ask: ProbeRequest, reply: ProbeReply) -> RecordedExchange:
    """Describe a request and its reply for people, without keys and control characters."""
    return RecordedExchange(
        asked=_redact_and_shorten(_describe_request(ask)),
        came=_redact_and_shorten(_describe_reply(reply)),
        seconds=round(reply.seconds, 3),
    )


def _redact_and_shorten(text: str) -> str:
    clean = _CONTROL.sub(" ", _SECRETS.sub(r"\1***", text)).strip()
    return clean if len(clean) <= _LONGEST else clean[: _LONGEST - 1] + "…"


def _describe_request(request: ProbeRequest) -> str:
    if not request.body:
        return f"{request.method} {request.path}" + _describe_request_options(request)
    body = ProbeReply(body=request.body).document()
    if not isinstance(body, dict):
        return f"{request.path} {request.body[:80].decode('utf-8', 'replace')}"
    said = dig(body, "messages", -1, "content")
    rest = {name: value for name, value in body.items() if name not in ("model", "messages")}
    if isinstance(tools := rest.get("tools"), list):
        rest["tools"] = [dig(tool, "function", "name") for tool in tools]
    words = f"{said[:60]!r} " if isinstance(said, str) else ""
    return words + msgspec.json.encode(rest).decode() + _describe_request_options(request)


def _describe_request_options(request: ProbeRequest) -> str:
    words = {"ours": "", "none": " without a key", "wrong": " with a wrong key"}[request.credential]
    if request.leave_at_data:
        words += ", left at the first data"
    if request.leave_after is not None:
        words += f", left after {request.leave_after:g} s"
    return words


def _describe_reply(reply: ProbeReply) -> str:
    if not reply.status:
        return reply.trouble
    document = reply.document()
    if reply.content_type == "text/event-stream":
        words = _describe_stream(reply)
    elif reply.status != 200:
        words = reply.message
    elif isinstance(choices := dig(document, "choices"), list):
        answers = (_parse_answer(document, index) for index in range(len(choices[:2])))
        words = " | ".join(map(_describe_answer, answers))
    else:
        words = reply.body[:_LONGEST].decode("utf-8", "replace")
    return f"{reply.status} {words}" + (f" ({reply.trouble})" if reply.trouble else "")


def _describe_stream(reply: ProbeReply) -> str:
    try:
        stream = reply.stream()
    except Settled as settled:
        return settled.verdict.how
    last = reply.body[-40:].decode("utf-8", "replace")
    return f"{len(stream.chunks)} chunks {_describe_answer(stream.answer())}, ending {last!r}"


def _describe_answer(answer: ProbeAnswer) -> str:
    parts = [f"reasoning {answer.reasoning[:60]!r}"] if answer.reasoning else []
    parts += [repr(answer.text)[:120]] if answer.text or not answer.calls else []
    parts += [f"calls {call.name} with {str(call.arguments)[:80]!r}" for call in answer.calls]
    parts.append(f"finish {answer.finish}")
    if answer.prompt is not None:
        parts.append(f"tokens {answer.prompt}+{answer.completion}")
    return ", ".join(parts)
