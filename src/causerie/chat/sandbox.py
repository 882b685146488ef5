"""The sandbox that chat templates run in, and the helpers they expect there.

Strings of the template itself are marked as its author's when the template is compiled; Jinja's own
ways to put strings together are replaced by ones that keep the mark. Time and memory of a template
of others are bounded by the process that renders it (:mod:`causerie.chat.renderers`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import update_wrapper
from typing import Any

from jinja2 import Environment, TemplateError, nodes, pass_context, pass_environment
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension, LoopControlExtension
from jinja2.filters import make_attrgetter
from jinja2.parser import Parser
from jinja2.sandbox import SandboxedEnvironment, SandboxedFormatter

from causerie.chat.arguments import write_json
from causerie.chat.dates import strftime_now
from causerie.chat.taint import USER, Traced, authored, joined, origin_of


class TemplateRefused(TemplateError):
    """The template itself refused, with ``raise_exception``."""


class _Generation(Extension):
    """``{% generation %}``: marks what the model writes, for training; here its body only."""

    tags = {"generation"}  # noqa: RUF012 - the base class declares it without ClassVar

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _AuthoringGenerator(CodeGenerator):
    """Writes code in which every string literal of the template is marked as the author's."""

    def _literal(self, text: str) -> str:
        return self.environment.authored(text)  # type: ignore[attr-defined,no-any-return]  # always ours

    def _output_const_repr(self, group: Iterable[Any]) -> str:
        return self._literal("".join(map(str, group)))

    def visit_Const(self, node: nodes.Const, frame: Frame) -> None:
        if isinstance(node.value, str):
            self.write(self._literal(node.value))
        else:
            super().visit_Const(node, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("concat((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


@pass_context  # a constant is printed at rendering, not at compilation, where nothing is bounded
def _printed(context: object, value: object) -> str:
    del context
    return value if isinstance(value, str) else str(value)


@pass_environment
def _join(
    environment: Environment, value: Iterable[Any], d: str = "", attribute: str | int | None = None
) -> str:
    """Apply ``join``, keeping origins."""
    if attribute is not None:
        value = map(make_attrgetter(environment, attribute), value)
    separator = d if isinstance(d, Traced) else Traced(str(d), USER)
    return separator.join([item if isinstance(item, str) else str(item) for item in value])


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Apply ``tojson`` with the arguments, in the order, that Hugging Face templates give."""
    text = write_json(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
    return Traced(text, USER)


def _unchanged(value: object) -> object:
    """Return the value: ``safe`` has no effect where nothing is escaped."""
    return value


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
            finalize=_printed,
        )
        self.literals: list[Traced] = []
        self.filters |= {"join": _join, "safe": _unchanged, "tojson": _tojson}
        self.globals |= {"raise_exception": _raise, "strftime_now": strftime_now}

    def authored(self, text: str) -> str:
        """Python source that stands for a literal of the template in compiled code."""
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
            return joined(_formatted(SandboxedFormatter(self), pattern, args, kwargs))

        return update_wrapper(formatted, value)


def _formatted(
    formatter: SandboxedFormatter, pattern: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[str]:
    """Yield the pieces of ``pattern.format(…)``; a field that is not simply a string is a user's.

    So is all of it where the pattern is not the author's alone.
    """
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


def _raise(message: object) -> str:
    raise TemplateRefused(str(message))
