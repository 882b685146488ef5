"""A model's own Jinja chat template, rendered in a sandbox without forgetting who wrote what."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import update_wrapper
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError, nodes, pass_context, pass_environment
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension, LoopControlExtension
from jinja2.filters import make_attrgetter
from jinja2.parser import Parser
from jinja2.sandbox import SandboxedEnvironment, SandboxedFormatter
from msgspec import Struct

from causerie.chat.taint import (
    AUTHOR,
    USER,
    Traced,
    Verbatim,
    authored,
    final_end,
    joined,
    origin_of,
    user_spans,
    write_json,
)
from causerie.errors import InvalidRequest

# The output of a directive is the author's if the author wrote the whole directive.

_DIRECTIVE = re.compile(r"%[-_0^#+]*(?P<width>[0-9]*)[:EO]*[a-zA-Z%]", re.ASCII)
_WIDEST = 99
_LONGEST_PATTERN = 1000  # characters of a pattern


def strftime_now(pattern: str) -> str:
    if not isinstance(pattern, str):
        raise TypeError(f"strftime_now() takes a text, not {type(pattern).__name__}")
    if len(pattern) > _LONGEST_PATTERN:
        raise ValueError(f"a date's pattern of more than {_LONGEST_PATTERN} characters")
    pieces: list[str] = []
    now, at = datetime.now(), 0
    for found in _DIRECTIVE.finditer(pattern):
        if int(found["width"] or 0) > _WIDEST:
            raise ValueError(f"a date wider than {_WIDEST} characters")
        origin = USER if any(origin_of(pattern)[found.start() : found.end()]) else AUTHOR
        pieces += (pattern[at : found.start()], Traced(now.strftime(found.group()), origin))
        at = found.end()
    return joined((*pieces, pattern[at:]))


# String literals of the template are marked as its author's when it is compiled; Jinja's own ways
# to put strings together are replaced by ones that keep the mark.


class TemplateRefused(TemplateError):
    """The template itself refused, with ``raise_exception``."""


class _Generation(Extension):
    """The tag ``{% generation %}`` of training templates, of which just the body is rendered."""

    tags = {"generation"}  # noqa: RUF012 - the base class declares it without ClassVar

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _AuthoringGenerator(CodeGenerator):
    """Writes code in which every string literal of the template is marked as the author's."""

    def _compile_authored_literal(self, text: str) -> str:
        return self.environment.authored(text)  # type: ignore[attr-defined,no-any-return]  # always ours

    def _output_const_repr(self, group: Iterable[Any]) -> str:
        return self._compile_authored_literal("".join(map(str, group)))

    def visit_Const(self, node: nodes.Const, frame: Frame) -> None:
        if isinstance(node.value, str):
            self.write(self._compile_authored_literal(node.value))
        else:
            super().visit_Const(node, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("concat((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


@pass_context  # a constant is printed at rendering, not at compilation, where nothing is bounded
def _convert_to_text(context: object, value: object) -> str:
    del context
    return value if isinstance(value, str) else str(value)


@pass_environment
def _join_items(
    environment: SandboxedEnvironment,
    value: Iterable[Any],
    d: str = "",
    attribute: str | int | None = None,
) -> str:
    if attribute is not None:
        value = map(make_attrgetter(environment, attribute), value)
    separator = d if isinstance(d, Traced) else Traced(str(d), USER)
    return separator.join([item if isinstance(item, str) else str(item) for item in value])


class Sandbox(SandboxedEnvironment):
    """The sandbox with helpers of Hugging Face templates; strings keep their origin.

    Lists and dictionaries may be changed (some templates keep a queue), since
    each rendering has its own copies.
    """

    code_generator_class = _AuthoringGenerator
    concat = staticmethod(joined)

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[LoopControlExtension, _Generation],
            optimized=False,
            cache_size=0,
            finalize=_convert_to_text,
        )
        self.literals: list[Traced] = []
        self.filters |= {"join": _join_items, "safe": lambda value: value, "tojson": write_json}
        self.globals |= {"raise_exception": _raise_template_refusal, "strftime_now": strftime_now}

    def authored(self, text: str) -> str:
        """Return the Python expression that stands for a literal in the compiled template."""
        self.literals.append(authored(text))
        return f"environment.literals[{len(self.literals) - 1}]"

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Return ``'…'.format`` that keeps the origin of each piece."""
        pattern = getattr(value, "__self__", None)
        if not isinstance(pattern, str) or value.__name__ not in ("format", "format_map"):
            return None

        def formatted(*args: Any, **kwargs: Any) -> str:
            if value.__name__ == "format_map":
                (kwargs,), args = args, ()
            return joined(_format_brace_pieces(SandboxedFormatter(self), pattern, args, kwargs))

        return update_wrapper(formatted, value)


def _format_brace_pieces(
    formatter: SandboxedFormatter, pattern: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[str]:
    number = 0
    known = not any(origin_of(pattern))
    for literal, field, spec, conversion in formatter.parse(str.__str__(pattern)):
        yield authored(literal) if known else literal
        if field is None:
            continue
        if not re.match("[^.[]", field):
            field, number = f"{number}{field}", number + 1
        value, _ = formatter.get_field(field, args, kwargs)
        if known and isinstance(value, str) and not spec and not conversion:
            yield value
        else:
            value = formatter.convert_field(value, conversion)
            inner = formatter.vformat(spec or "", args, kwargs)
            yield str.__str__(formatter.format_field(value, inner))


def _raise_template_refusal(message: object) -> str:
    raise TemplateRefused(str(message))


_RESERVED = ("messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token")
_CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_LONGEST = 64 * 2**20  # characters of a prompt
_FAILURES = (TemplateError, ArithmeticError, AssertionError, AttributeError, LookupError,
             RuntimeError, TypeError, ValueError)  # fmt: skip


class TooMuch(TemplateError):
    """The rendering took more time, memory or characters than it may."""


class Rendered(Struct, frozen=True):
    """A prompt, with the half-open spans of characters that a ``user`` wrote, in order.

    ``final_end`` is where the content of a final message to be continued ends,
    where one was marked.
    """

    text: str
    user: tuple[tuple[int, int], ...]
    final_end: int | None = None

    def upto(self, end: int) -> Rendered:
        spans = tuple((start, min(stop, end)) for start, stop in self.user if start < end)
        return Rendered(self.text[:end], spans)

    def since(self, start: int) -> Rendered:
        spans = ((max(one, start) - start, stop - start) for one, stop in self.user if stop > start)
        return Rendered(self.text[start:], tuple(spans))


class ChatTemplate:
    """One model's template, compiled once; rendering it is safe from any thread.

    An empty ``source`` stands for ChatML. Raises :class:`ValueError` where it is no Jinja template.
    Most templates pass over documents; it says whether this one ``shows_documents``.
    """

    def __init__(self, source: str, *, bos_token: str, eos_token: str) -> None:
        self.source = source if source.strip() else _CHATML
        self.shows_documents = "documents" in self.source
        self._fixed_variables = {"bos_token": authored(bos_token), "eos_token": authored(eos_token)}
        try:
            self._compiled_template = Sandbox().from_string(self.source)
        except TemplateSyntaxError as error:
            where = f"line {error.lineno}: {error.message}"
            raise ValueError(f"The model's chat template is not valid Jinja: {where}") from error
        except (RecursionError, MemoryError):
            raise ValueError("The model's chat template is nested too deeply.") from None

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        documents: Sequence[Mapping[str, object]] | None = None,
        add_generation_prompt: bool = True,
        kwargs: Mapping[str, object] | None = None,
        amended: Callable[[Traced], Traced] | None = None,
    ) -> Rendered:
        """Return the prompt for these messages, as the function ``amended`` changes it.

        Every plain string in the arguments is a user's; one that this program
        wrote is passed as :func:`~causerie.chat.taint.authored`. Raises
        :class:`InvalidRequest` where the template refuses or cannot take them, and
        :class:`TooMuch` for a prompt that is too long or needs too much memory.
        """
        given = kwargs or {}
        for name in _RESERVED:
            if name in given:
                raise InvalidRequest(
                    f"`chat_template_kwargs` may not set `{name}`; the service sets it itself.",
                    param=f"chat_template_kwargs.{name}",
                )
        variables: dict[str, object] = {
            **_trace_and_copy(given),
            **self._fixed_variables,
            "messages": _trace_and_copy(messages),
            "tools": _trace_and_copy(tools) if tools is not None else None,
            "documents": _trace_and_copy(documents) if documents else None,
            "add_generation_prompt": add_generation_prompt,
        }
        text = self._render_text(variables)
        text = amended(text) if amended else text
        return Rendered(str.__str__(text), user_spans(text), final_end(text))

    def _render_text(self, variables: dict[str, object]) -> Traced:
        template = self._compiled_template
        try:
            return joined(_limit_length(template.root_render_func(template.new_context(variables))))
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


def _limit_length(parts: Iterable[str]) -> Iterator[str]:
    length = 0
    for part in parts:
        length += len(part)
        if length > _LONGEST:
            raise TooMuch(f"it gave more than {_LONGEST:,} characters")
        yield part


def _trace_and_copy(value: object) -> Any:
    if isinstance(value, Traced | Verbatim):
        return value
    if isinstance(value, str):
        return Traced(value, USER)
    if isinstance(value, Mapping):
        return {key: _trace_and_copy(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_trace_and_copy(item) for item in value]
    return value
