"""Messages to and from the process that renders templates, as JSON."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct, structs

from causerie.chat.prompt import Prompt
from causerie.errors import InvalidRequest
from causerie.protocol.request import ChatRequest, Message, Thinking, Tool


class Hello(Struct, frozen=True, tag=True):
    """Asks nothing; the answer says that the process has started."""


class Load(Struct, frozen=True, tag=True):
    """From now on this template is rendered, in the format of that name."""

    source: str
    bos_token: str
    eos_token: str
    form: str


class Ask(Struct, frozen=True, tag=True, array_like=True):
    """A request, as far as a prompt depends on it."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    documents: tuple[dict[str, object], ...]
    template_kwargs: dict[str, object]
    continue_final_message: bool
    add_generation_prompt: bool
    thinking: Thinking

    @classmethod
    def of(cls, request: ChatRequest) -> Ask:
        return cls(
            request.messages,
            request.tools,
            tuple(map(dict, request.documents)),
            dict(request.template_kwargs),
            request.continue_final_message,
            request.add_generation_prompt,
            request.thinking,
        )

    def request(self) -> ChatRequest:
        return ChatRequest("", **structs.asdict(self))


class BeforeCall(Struct, frozen=True, tag=True):
    """Asks what stands between a text and its call."""


class Done(Struct, frozen=True, tag=True):
    """It has been done; the text that was asked for."""

    text: str | None = None


class Refusal(Struct, frozen=True, tag=True):
    """The request is wrong."""

    message: str
    code: str
    param: str | None
    metadata: Mapping[str, object]

    def error(self) -> InvalidRequest:
        return InvalidRequest(
            self.message, code=self.code, param=self.param, metadata=self.metadata
        )


class Costly(Struct, frozen=True, tag=True):
    """The template takes too much, or is none."""

    reason: str


Question = Hello | Load | BeforeCall
Answer = Done | Prompt | Refusal | Costly

encode = msgspec.json.encode
_ASK = msgspec.json.Decoder(Ask)
_QUESTION: msgspec.json.Decoder[Question] = msgspec.json.Decoder(Question)
_ANSWER: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Answer)


def read_question(body: bytes) -> Question | Ask:
    return _ASK.decode(body) if body.startswith(b"[") else _QUESTION.decode(body)


def read_answer(body: bytes) -> Answer:
    """Read an answer; raise ``msgspec.DecodeError`` if it is malformed."""
    return _ANSWER.decode(body)
