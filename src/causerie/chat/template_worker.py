"""Child process that renders a template that is not ours, and the messages that it exchanges.

It has one template at a time, and may be killed at any moment. Messages are JSON.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct, structs

from causerie.chat.formats.format import ModelFormat
from causerie.chat.formats.registry import by_name
from causerie.chat.prompt import Prompt, before_call, format_capabilities, prompt_of
from causerie.chat.template import ChatTemplate, TooMuch
from causerie.chat.worker_process import limit_memory, serve
from causerie.errors import InvalidRequest
from causerie.protocol.request import ChatRequest, Message, Thinking, Tool


class Hello(Struct, frozen=True, tag=True):
    """Asks nothing; the answer says that the process has started."""


class TemplateSource(Struct, frozen=True, tag=True):
    """A template, and the name of its format; a process that gets it renders it from then on."""

    source: str
    bos_token: str
    eos_token: str
    form: str

    def compiled(self) -> tuple[ChatTemplate, ModelFormat]:
        """Return template and format; raise :class:`ValueError` where it is no template."""
        tokens = {"bos_token": self.bos_token, "eos_token": self.eos_token}
        return ChatTemplate(self.source, **tokens), by_name(self.form)


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
        same = {name: getattr(request, name) for name in cls.__struct_fields__}
        documents, given = tuple(map(dict, request.documents)), dict(request.template_kwargs)
        return cls(**same | {"documents": documents, "template_kwargs": given})

    def request(self) -> ChatRequest:
        return ChatRequest("", **structs.asdict(self))


class Ready(Struct, frozen=True, tag=True):
    """The process has started, or its template is loaded.

    ``before_call`` is what this template writes between a text and its call, where that is known.
    """

    before_call: str | None = None


class Refusal(Struct, frozen=True, tag=True):
    message: str
    code: str
    param: str | None
    metadata: Mapping[str, object]

    def error(self) -> InvalidRequest:
        return InvalidRequest(**structs.asdict(self))


class Costly(Struct, frozen=True, tag=True):
    """Says that the template takes too much time or memory, or is no valid one."""

    reason: str


Question = Hello | TemplateSource
Answer = Ready | Prompt | Refusal | Costly

encode = msgspec.json.encode
_ASK = msgspec.json.Decoder(Ask)
_QUESTION: msgspec.json.Decoder[Question] = msgspec.json.Decoder(Question)
read_answer: Callable[[bytes], Answer] = msgspec.json.Decoder(Answer).decode
"""Reads an answer; raises ``msgspec.DecodeError`` if it is malformed."""


def read_question(body: bytes) -> Question | Ask:
    return _ASK.decode(body) if body.startswith(b"[") else _QUESTION.decode(body)


class TemplateWorker:
    def __init__(self) -> None:
        self._template_and_format: tuple[ChatTemplate, ModelFormat] | None = None

    def answer(self, body: bytes) -> bytes:
        try:
            return encode(self._answer_question(read_question(body)))
        except InvalidRequest as refused:
            refusal = Refusal(refused.message, refused.code, refused.param, refused.metadata)
            return encode(refusal)
        except TooMuch as much:
            return encode(Costly(str(much)))
        except MemoryError:
            return encode(Costly("it takes more memory than there is for it"))
        except UnicodeEncodeError:
            return encode(Costly("it writes half a character"))

    def _answer_question(self, question: Question | Ask) -> Answer:
        match question:
            case Hello():
                return Ready()
            case TemplateSource():
                return self._load_template(question)
        if self._template_and_format is None:
            raise RuntimeError("no template has been loaded")
        return prompt_of(*self._template_and_format, question.request())

    def _load_template(self, template_source: TemplateSource) -> Answer:
        try:
            loaded = template_source.compiled()
        except ValueError as error:
            return Costly(str(error).rstrip("."))
        format_capabilities(*loaded)  # before anybody asks for a prompt
        self._template_and_format = loaded
        return Ready(before_call(*loaded))


def main(memory: str) -> None:
    limit_memory(int(memory))
    serve(sys.stdin.buffer, sys.stdout.buffer, TemplateWorker().answer)


if __name__ == "__main__":
    main(*sys.argv[1:])
