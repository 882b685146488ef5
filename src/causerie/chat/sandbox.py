"""The sandbox that chat templates run in, and the helpers they expect there.

Strings of the template itself are marked as its author's when the template is
compiled; Jinja's own ways to put strings together are replaced by ones that
keep the mark. Loops, products and the length of the prompt are bounded, so a
template cannot stall the service whatever it is given.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jinja2 import Environment, TemplateError, nodes, pass_environment
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.filters import make_attrgetter
from jinja2.parser import Parser
from jinja2.runtime import Undefined
from jinja2.sandbox import SandboxedEnvironment, SandboxedFormatter

from causerie.chat.arguments import write_json
from causerie.chat.taint import USER, Traced, authored, joined, origin_of

_PACE = 256  # turns of a loop between two looks at the clock


@dataclass(frozen=True, slots=True)
class Limits:
    """What one rendering may take: seconds, and characters of prompt."""

    seconds: float = 2.0
    characters: int = 64 * 2**20


class Refused(TemplateError):
    """The template itself refused, with ``raise_exception``."""


class TooMuch(TemplateError):
    """The rendering went over its limits."""


class Budget:
    """What is left of the limits of the rendering that is going on."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._deadline = time.monotonic() + limits.seconds
        self._turns = 0
        self._characters = 0

    def turn(self) -> None:
        self._turns += 1
        if self._turns % _PACE == 0 and time.monotonic() > self._deadline:
            raise TooMuch(f"it took more than {self.limits.seconds:g} seconds")

    def write(self, characters: int) -> None:
        self._characters += characters
        if self._characters > self.limits.characters:
            raise TooMuch(f"it gave more than {self.limits.characters} characters")


current_budget: ContextVar[Budget] = ContextVar("budget")


class _Generation(Extension):
    """``{% generation %}``: marks what the model writes, for training; here its body only."""

    tags = {"generation"}  # noqa: RUF012 the base class declares it without ClassVar

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _Marking(CodeGenerator):
    """Writes code in which every string of the template's own is an author's."""

    def _literal(self, text: str) -> str:
        return self.environment.authored(text)  # type: ignore[attr-defined,no-any-return]

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


class Sandbox(SandboxedEnvironment):
    """The sandbox with helpers of Hugging Face templates; strings keep their origin.

    Lists and dictionaries may be changed (some templates keep a queue), since
    each rendering has its own copies.
    """

    code_generator_class = _Marking
    intercepted_binops = frozenset({"*", "**"})
    concat = staticmethod(joined)

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[LoopControlExtension, _Generation],
            optimized=False,
            cache_size=0,
        )
        self.literals: list[Traced] = []
        self.filters |= {"tojson": _tojson, "join": _join, "safe": _same, "pace": _paced}
        self.globals |= {"raise_exception": _raise, "strftime_now": _strftime_now}
        del self.globals["lipsum"]

    def authored(self, text: str) -> str:
        """Python source that stands for a literal of the template in compiled code."""
        self.literals.append(authored(text))
        return f"environment.literals[{len(self.literals) - 1}]"

    def _generate(
        self,
        source: nodes.Template,
        name: str | None,
        filename: str | None,
        defer_init: bool = False,
    ) -> str:
        for loop in list(source.find_all(nodes.For)):
            loop.iter = nodes.Filter(loop.iter, "pace", [], [], None, None, lineno=loop.lineno)
        return super()._generate(source, name, filename, defer_init)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """A call of a macro or a method, counted like the turn of a loop."""
        current_budget.get().turn()
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Products and powers that would fill the memory are refused."""
        if operator == "**" and max(abs(left), abs(right)) > 1000:
            raise SecurityError("a power of a number above 1000")
        if operator == "*":
            for many, count in ((left, right), (right, left)):
                if isinstance(many, str | list | tuple) and isinstance(count, int):
                    current_budget.get().write(len(many) * max(count, 0))
        return super().call_binop(context, operator, left, right)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """``'…'.format(…)`` with the origin of each piece."""
        wrapped = super().wrap_str_format(value)
        pattern = getattr(value, "__self__", None)
        if wrapped is None or not isinstance(pattern, Traced) or any(origin_of(pattern)):
            return wrapped
        safe = wrapped

        def format_traced(*args: Any, **kwargs: Any) -> str:
            plain = safe(*args, **kwargs)
            if value.__name__ == "format_map":
                return plain
            told = joined(_formatted(SandboxedFormatter(self), pattern, args, kwargs))
            return told if told == plain else plain

        return format_traced


def _formatted(
    formatter: SandboxedFormatter, pattern: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[str]:
    """The pieces of ``pattern.format(…)``; a field that is not simply a string is a user's."""
    number = 0
    for literal, field, spec, conversion in formatter.parse(str.__str__(pattern)):
        yield authored(literal)
        if field is None:
            continue
        if field == "":
            field, number = str(number), number + 1
        value, _ = formatter.get_field(field, args, kwargs)
        if isinstance(value, str) and not spec and not conversion:
            yield value
        else:
            value = formatter.convert_field(value, conversion)
            yield formatter.format_field(value, formatter.vformat(spec or "", args, kwargs))


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """``tojson`` with the arguments, in the order, that Hugging Face templates give."""
    return Traced(
        write_json(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        ),
        USER,
    )


@pass_environment
def _join(
    environment: Environment, value: Iterable[Any], d: str = "", attribute: str | int | None = None
) -> str:
    """``join`` that keeps origins."""
    if attribute is not None:
        value = map(make_attrgetter(environment, attribute), value)
    separator = d if isinstance(d, Traced) else Traced(str(d), USER)
    return separator.join([str(item) for item in value])


def _same(value: object) -> object:
    """``safe`` means nothing where nothing is escaped."""
    return value


def _paced(items: Any) -> Any:
    """A loop's items, counted, so that no loop runs on for ever."""
    budget = current_budget.get()
    if isinstance(items, Undefined):
        return items
    return _Paced(items, budget) if hasattr(items, "__len__") else _ticking(items, budget)


def _ticking(items: Iterable[object], budget: Budget) -> Iterator[object]:
    for item in items:
        budget.turn()
        yield item


class _Paced:
    """A counted collection; its length stays known, as ``loop.length`` needs it."""

    def __init__(self, items: Any, budget: Budget) -> None:
        self._items, self._budget = items, budget

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[object]:
        return _ticking(self._items, self._budget)


def _raise(message: object) -> str:
    raise Refused(str(message))


def _strftime_now(pattern: str) -> str:
    return authored(datetime.now().strftime(pattern))
