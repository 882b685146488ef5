"""The process that renders a template that does not come with this program.

It has one template at a time, and may be killed at any moment.
"""

from __future__ import annotations

import sys

from causerie.chat.formats.format import ModelFormat
from causerie.chat.formats.registry import by_name
from causerie.chat.prompt import before_call, format_capabilities, prompt_of
from causerie.chat.template import ChatTemplate, TooMuch
from causerie.chat.template_wire import (
    Answer,
    Ask,
    BeforeCall,
    Costly,
    Done,
    Hello,
    Load,
    Question,
    Refusal,
    encode,
    read_question,
)
from causerie.chat.worker_process import limit_memory, serve
from causerie.errors import InvalidRequest


class TemplateWorker:
    """Renders the template that it was given last."""

    def __init__(self) -> None:
        self._loaded: tuple[ChatTemplate, ModelFormat] | None = None

    def answer(self, body: bytes) -> bytes:
        try:
            return encode(self._answer(read_question(body)))
        except InvalidRequest as refused:
            refusal = Refusal(refused.message, refused.code, refused.param, refused.metadata)
            return encode(refusal)
        except TooMuch as much:
            return encode(Costly(str(much)))
        except MemoryError:
            return encode(Costly("it takes more memory than there is for it"))
        except UnicodeEncodeError:
            return encode(Costly("it writes half a character"))

    def _answer(self, question: Question | Ask) -> Answer:
        match question:
            case Hello():
                return Done()
            case Load():
                return self._load(question)
        if self._loaded is None:
            raise RuntimeError("no template has been loaded")
        template, form = self._loaded
        if isinstance(question, BeforeCall):
            return Done(before_call(template, form))
        return prompt_of(template, form, question.request())

    def _load(self, load: Load) -> Answer:
        try:
            template = ChatTemplate(load.source, bos_token=load.bos_token, eos_token=load.eos_token)
        except ValueError as error:
            return Costly(str(error).rstrip("."))
        form = by_name(load.form)
        format_capabilities(template, form)  # before anybody asks for a prompt
        self._loaded = template, form
        return Done()


def main(memory: str) -> None:
    """Serve with at most ``memory`` bytes of address space."""
    limit_memory(int(memory))
    serve(sys.stdin.buffer, sys.stdout.buffer, TemplateWorker().answer)


if __name__ == "__main__":
    main(*sys.argv[1:])
