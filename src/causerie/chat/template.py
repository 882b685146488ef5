"""A model's own Jinja chat template, rendered without forgetting who wrote what.

The template runs in Jinja's sandbox with the helpers that Hugging Face
templates expect. Its literals are marked as the author's and everything from
the request as the user's (:mod:`causerie.chat.taint`), so the rendered prompt
says of every character whether it may be part of a control token. The text
itself is exactly what plain Jinja would give.

It knows no message fields and no model family: what is passed in is rendered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, Template, TemplateError, TemplateSyntaxError

from causerie.chat.arguments import Verbatim
from causerie.chat.sandbox import Sandbox, TemplateRefused
from causerie.chat.taint import USER, Traced, authored, final_end, joined, user_spans
from causerie.errors import InvalidRequest

_RESERVED = ("messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token")
_CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_LONGEST = 64 * 2**20  # characters of a prompt
_FAILURES = (
    TemplateError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


class TooMuch(TemplateError):
    """The rendering took more time, memory or characters than it may."""


def _unchanged(prompt: Traced) -> Traced:
    return prompt


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt. ``user`` are the half-open spans of characters that a user wrote, in order.

    ``final_end`` is where the content of a final message to be continued ends,
    where one was marked.
    """

    text: str
    user: tuple[tuple[int, int], ...]
    final_end: int | None = None

    def upto(self, end: int) -> Rendered:
        """Return the prompt cut at ``end``."""
        spans = tuple((start, min(stop, end)) for start, stop in self.user if start < end)
        return Rendered(self.text[:end], spans)


class ChatTemplate:
    """One model's template, compiled once; rendering it is safe from any thread.

    ``source`` is the text, or named texts (``default``, ``tool_use``) of which
    the one for tools is used when there are tools; an empty text stands for
    ChatML. Raises :class:`ValueError` where it is no Jinja template. Most templates pass over
    documents; it says whether this one ``shows_documents``.
    """

    def __init__(
        self,
        source: str | Mapping[str, str] | Sequence[Mapping[str, str]],
        *,
        bos_token: str,
        eos_token: str,
    ) -> None:
        self.sources = _named(source)
        self.shows_documents = "documents" in self.source
        self._fixed = {"bos_token": authored(bos_token), "eos_token": authored(eos_token)}
        environment = Sandbox()
        self._compiled = {name: _compiled(environment, text) for name, text in self.sources.items()}

    @property
    def source(self) -> str:
        """Return all texts of the template, one after the other."""
        return "\n".join(self.sources.values())

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        documents: Sequence[Mapping[str, object]] | None = None,
        add_generation_prompt: bool = True,
        kwargs: Mapping[str, object] | None = None,
        amended: Callable[[Traced], Traced] = _unchanged,
    ) -> Rendered:
        """Return the prompt for these messages, ``amended``.

        Every plain string in the arguments is a user's; one that this program
        wrote is passed as :func:`~causerie.chat.taint.authored`. Raises
        :class:`InvalidRequest` where the template refuses or cannot take them, and
        :class:`TooMuch` for a prompt that is too long or needs too much memory.
        """
        variables: dict[str, object] = {
            **_chosen(kwargs or {}),
            **self._fixed,
            "messages": _copied(messages),
            "tools": _copied(tools) if tools is not None else None,
            "documents": _copied(documents) if documents else None,
            "add_generation_prompt": add_generation_prompt,
        }
        text = amended(self._run(self._variant(bool(tools)), variables))
        return Rendered(str.__str__(text), user_spans(text), final_end(text))

    def _variant(self, tools: bool) -> Template:
        wanted = "tool_use" if tools and "tool_use" in self._compiled else "default"
        return self._compiled.get(wanted) or next(iter(self._compiled.values()))

    def _run(self, template: Template, variables: dict[str, object]) -> Traced:
        try:
            return joined(_bounded(template.root_render_func(template.new_context(variables))))
        except TemplateRefused as refusal:
            raise InvalidRequest(
                f"The model's chat template refuses these messages: {refusal.message}",
                param="messages",
            ) from refusal
        except TooMuch:
            raise
        except MemoryError:
            raise TooMuch("it takes more memory than there is for it") from None
        except _FAILURES as failure:
            reason = str(failure).replace(Traced.__name__, "str") or type(failure).__name__
            raise InvalidRequest(
                f"The model's chat template cannot render this request: {reason}. "
                "It may expect other messages, tools or `chat_template_kwargs`.",
                param="messages",
            ) from failure


def _bounded(parts: Iterable[str]) -> Iterator[str]:
    length = 0
    for part in parts:
        length += len(part)
        if length > _LONGEST:
            raise TooMuch(f"it gave more than {_LONGEST:,} characters")
        yield part


def _named(source: str | Mapping[str, str] | Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the named texts, from any of the three shapes that model files have."""
    if isinstance(source, str):
        return {"default": source if source.strip() else _CHATML}
    if isinstance(source, Mapping):
        named = dict(source)
    else:
        named = {entry["name"]: entry["template"] for entry in source}
    if not named:
        raise ValueError("The model has an empty list of chat templates; it needs at least one.")
    return named


def _compiled(environment: Environment, text: str) -> Template:
    try:
        return environment.from_string(text)
    except TemplateSyntaxError as error:
        raise ValueError(
            f"The model's chat template is not valid Jinja: line {error.lineno}: {error.message}"
        ) from error
    except (RecursionError, MemoryError):
        raise ValueError("The model's chat template is nested too deeply.") from None


def _chosen(kwargs: Mapping[str, object]) -> dict[str, object]:
    for name in _RESERVED:
        if name in kwargs:
            raise InvalidRequest(
                f"`chat_template_kwargs` may not set `{name}`; the service sets it itself.",
                param=f"chat_template_kwargs.{name}",
            )
    return {name: _copied(value) for name, value in kwargs.items()}


def _copied(value: object) -> Any:
    """Return a copy the template may change, its plain strings marked as a user's."""
    if isinstance(value, Traced | Verbatim):
        return value
    if isinstance(value, str):
        return Traced(value, USER)
    if isinstance(value, Mapping):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_copied(item) for item in value]
    return value
