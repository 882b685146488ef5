"""Choice of the renderer of a model's prompts.

The service renders known templates itself. A template that does not come with
this program is rendered in a process that may be killed
(:mod:`causerie.chat.renderers`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from causerie.chat import thinking
from causerie.chat.formats.format import ModelFormat
from causerie.chat.prompt import Prompt, before_call, prompt_of
from causerie.chat.template import ChatTemplate, TooMuch
from causerie.errors import TemplateFailed
from causerie.protocol.request import ChatRequest
from causerie.runtime.offload import offload

# SHA-256 of the templates that come with this program: those of the model that is served where
# nothing is configured and of the engine `fake`, and none at all, for which ChatML stands.
_OWN = frozenset(
    {
        "872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788",
        "3e145300631add38dba7788d10d736e70086ef0236a46a85860b5da3b85fa906",
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    }
)
_LONG = 200_000  # characters; a longer conversation takes milliseconds, so it goes to a thread
_MANY = 200  # messages, likewise
_MANY_TOOLS = 32  # likewise: each is copied, measured and written as JSON


class Renderer(Protocol):
    """Renders the prompts of one model.

    Raises ``InvalidRequest`` where the template refuses the messages, and
    ``TemplateFailed`` where it takes more than it may.
    """

    async def prompt(self, request: ChatRequest) -> Prompt:
        """Return the prompt of a request, which may think as its plan says."""

    async def before_call(self, request: ChatRequest) -> str | None:
        """Return what stands between a text and its call in the history, where that is known."""


@dataclass(frozen=True, slots=True)
class OwnRenderer:
    """Renders in this process, a long conversation in a thread, so that nobody else waits."""

    template: ChatTemplate
    form: ModelFormat

    async def prompt(self, request: ChatRequest) -> Prompt:
        work = partial(prompt_of, self.template, self.form, request)
        with template_failures(request.model):
            return await offload(work) if _is_long(request) else work()

    async def before_call(self, request: ChatRequest) -> str | None:
        """Return what stands between a text and its call in the history."""
        with template_failures(request.model):
            return before_call(self.template, thinking.plan(self.form, request.thinking).form)


class MakeRenderer(Protocol):
    """Makes the renderer of a template; raises :class:`ValueError` where that is none."""

    def __call__(
        self, source: str, form: ModelFormat, *, bos_token: str, eos_token: str
    ) -> Renderer: ...


def in_process(source: str, form: ModelFormat, *, bos_token: str, eos_token: str) -> Renderer:
    """Return a renderer in this process, for a template that is known to be harmless."""
    return OwnRenderer(ChatTemplate(source, bos_token=bos_token, eos_token=eos_token), form)


def is_own(source: str) -> bool:
    """Return whether the template comes with this program."""
    return hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest() in _OWN


def _is_long(request: ChatRequest) -> bool:
    messages = request.messages
    many = len(messages) > _MANY or len(request.tools) > _MANY_TOOLS
    return request.large or many or sum(len(message.text) for message in messages) > _LONG


@contextmanager
def template_failures(model: str) -> Iterator[None]:
    """Raise what a template took too much of as ``TemplateFailed``."""
    try:
        yield
    except TooMuch as much:
        raise TemplateFailed(model, str(much)) from None
