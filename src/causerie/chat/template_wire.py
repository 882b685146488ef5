"""Messages to and from the process that renders templates, as JSON."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from causerie.chat.prompt import Prompt
from causerie.chat.template import Rendered
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
    """A request, as far as a prompt depends on it; ``call`` asks only what is before a call."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    documents: tuple[dict[str, object], ...]
    template_kwargs: dict[str, object]
    continue_final_message: bool
    add_generation_prompt: bool
    thinking: Thinking
    call: bool

    @classmethod
    def of(cls, request: ChatRequest, *, call: bool = False) -> Ask:
        """Return what to ask about a request."""
        return cls(
            () if call else request.messages,
            () if call else request.tools,
            () if call else tuple(map(dict, request.documents)),
            {} if call else dict(request.template_kwargs),
            request.continue_final_message,
            request.add_generation_prompt,
            request.thinking,
            call,
        )

    def request(self) -> ChatRequest:
        """Return the request again."""
        return ChatRequest(
            model="",
            messages=self.messages,
            tools=self.tools,
            documents=self.documents,
            template_kwargs=self.template_kwargs,
            continue_final_message=self.continue_final_message,
            add_generation_prompt=self.add_generation_prompt,
            thinking=self.thinking,
        )


class Done(Struct, frozen=True, tag=True):
    """It has been done; what is before a call, if that was asked."""

    text: str | None = None


class RenderedPrompt(Struct, frozen=True, tag=True):
    """A prompt. ``user`` are where the spans of characters of a user begin and end, in order."""

    text: str
    user: tuple[tuple[int, int], ...]
    leading: str
    leading_call: str | None
    several_calls: bool

    @classmethod
    def of(cls, prompt: Prompt) -> RenderedPrompt:
        """Return a prompt in the form in which it is sent."""
        text, user = prompt.rendered.text, prompt.rendered.user
        return cls(text, user, prompt.leading, prompt.leading_call, prompt.several_calls)

    def prompt(self) -> Prompt:
        """Return the prompt again."""
        rendered = Rendered(self.text, self.user)
        return Prompt(rendered, self.leading, self.leading_call, self.several_calls)


class Refusal(Struct, frozen=True, tag=True):
    """The request is wrong."""

    message: str
    code: str
    param: str | None
    metadata: Mapping[str, object]

    @classmethod
    def of(cls, refused: InvalidRequest) -> Refusal:
        """Return a refusal in the form in which it is sent."""
        return cls(refused.message, refused.code, refused.param, refused.metadata)

    def error(self) -> InvalidRequest:
        """Return what to raise."""
        return InvalidRequest(
            self.message, code=self.code, param=self.param, metadata=self.metadata
        )


class Costly(Struct, frozen=True, tag=True):
    """The template takes too much, or is none."""

    reason: str


Question = Hello | Load
Answer = Done | RenderedPrompt | Refusal | Costly

encode = msgspec.json.encode
_ASK = msgspec.json.Decoder(Ask)
_QUESTION: msgspec.json.Decoder[Question] = msgspec.json.Decoder(Question)
_ANSWER: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Answer)


def read_question(body: bytes) -> Question | Ask:
    """Read a question: an array asks for a prompt."""
    return _ASK.decode(body) if body.startswith(b"[") else _QUESTION.decode(body)


def read_answer(body: bytes) -> Answer:
    """Read an answer; raise ``msgspec.DecodeError`` if it is malformed."""
    return _ANSWER.decode(body)
