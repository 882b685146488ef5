"""The sandbox that chat templates run in, and the helpers they expect there.

Strings of the template itself are marked as its author's when the template is compiled; Jinja's own
ways to put strings together are replaced by ones that keep the mark. Every growth (operators,
methods, filters, formatting, printing) is counted before it makes anything, so a template cannot
stall the service whatever it is given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import update_wrapper
from typing import Any

from jinja2 import TemplateError, nodes, pass_context
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import LoopContext
from jinja2.sandbox import SandboxedEnvironment, SandboxedFormatter

from causerie.chat.budget import compared, current_budget, paced, sliced, text_of
from causerie.chat.dates import strftime_now
from causerie.chat.filters import FILTERS, TESTS
from causerie.chat.taint import Traced, authored, joined, origin_of
from causerie.chat.widening import charge_method, charge_operator, is_known_attribute

_NUMBER = re.compile("[0-9]+")
_INTERNAL = frozenset({"_loop_vars", "_block_vars"})  # what compiled code hands to every call


class TemplateRefused(TemplateError):
    """The template itself refused, with ``raise_exception``."""


class _Generation(Extension):
    """``{% generation %}``: marks what the model writes, for training; here its body only."""

    tags = {"generation"}  # noqa: RUF012 - the base class declares it without ClassVar

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _Counting(CodeGenerator):
    """Writes code in which every string of the template's own is an author's.

    Operations of the language that do not call the sandbox (comparing, cutting a piece out) are
    written as calls of it.
    """

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

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:
        self.write("(")
        self._visit_compared(node.expr, frame)
        for operand in node.ops:
            self.visit(operand, frame)
        self.write(")")

    def visit_Operand(self, node: nodes.Operand, frame: Frame) -> None:
        self.write(f" {_OPERATORS[node.op]} ")
        self._visit_compared(node.expr, frame)

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        if not isinstance(node.arg, nodes.Slice):
            super().visit_Getitem(node, frame)
            return
        self.write("environment.sliced(")
        self.visit(node.node, frame)
        self.write(")[")
        self.visit(node.arg, frame)
        self.write("]")

    def _visit_compared(self, node: nodes.Expr, frame: Frame) -> None:
        if isinstance(node, nodes.Const):
            self.visit(node, frame)
            return
        self.write("environment.compared(")
        self.visit(node, frame)
        self.write(")")


_OPERATORS = {
    "eq": "==",
    "ne": "!=",
    "gt": ">",
    "gteq": ">=",
    "lt": "<",
    "lteq": "<=",
    "in": "in",
    "notin": "not in",
}


def _concat(parts: Iterable[object]) -> Traced:
    """Return all parts as one text, counted before it is made."""
    texts = [text_of(part) for part in parts]
    current_budget.get().make(sum(map(len, texts)))
    return joined(texts)


@pass_context  # so that nothing is worked out when the template is compiled, without a budget
def _printed(context: object, value: Any) -> Any:
    del context
    return text_of(value)


class Sandbox(SandboxedEnvironment):
    """The sandbox with helpers of Hugging Face templates; strings keep their origin.

    Lists and dictionaries may be changed (some templates keep a queue), since
    each rendering has its own copies.
    """

    code_generator_class = _Counting
    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})
    concat = staticmethod(_concat)
    compared = staticmethod(compared)
    sliced = staticmethod(sliced)

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
        self.filters = dict(FILTERS)
        self.tests = dict(TESTS)
        self.globals |= {"raise_exception": _raise, "strftime_now": strftime_now}
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
            loop.iter = nodes.Filter(
                loop.iter, "checkpoint", [], [], None, None, lineno=loop.lineno
            )
        return super()._generate(source, name, filename, defer_init)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Of objects of the language, what is listed; of others, what is public."""
        return super().is_safe_attribute(obj, attr, value) and is_known_attribute(obj, attr)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a macro or a method; counts as one turn, and by the size of its result."""
        budget = current_budget.get()
        budget.turn()
        owner = getattr(__obj, "__self__", None)
        if owner is not None:
            given = {name: kwargs[name] for name in kwargs if name not in _INTERNAL}
            args = charge_method(budget, owner, __obj.__name__, args, given)
        elif isinstance(__obj, LoopContext):  # of a loop that goes on with the items of an item
            args = (paced(args[0]), *args[1:])
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Apply an operator; charge the size of the result before it is created."""
        budget = current_budget.get()
        if operator == "+" and isinstance(left, str) and isinstance(right, str):
            budget.make(len(left) + len(right))
            return left + right  # by far the most frequent
        charge_operator(budget, operator, left, right)
        return super().call_binop(context, operator, left, right)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """``'…'.format(…)``, counted, with the origin of each piece."""
        pattern = getattr(value, "__self__", None)
        if not isinstance(pattern, str) or value.__name__ not in ("format", "format_map"):
            return None

        def formatted(*args: Any, **kwargs: Any) -> str:
            if value.__name__ == "format_map":
                (kwargs,), args = args, ()
            pieces = list(_formatted(_Formatter(self), pattern, args, kwargs))
            current_budget.get().make(sum(map(len, pieces)))
            return joined(pieces)

        return update_wrapper(formatted, value)


class _Formatter(SandboxedFormatter):
    """Formats what fits the budget."""

    def format_field(self, value: Any, format_spec: str) -> str:
        plain = str.__str__(format_spec)
        widths = [int(found[:20]) for found in _NUMBER.findall(plain)]
        current_budget.get().make(sum(widths))
        text = value if isinstance(value, int | float) else text_of(value)
        return format(text, plain)

    def convert_field(self, value: Any, conversion: str | None) -> Any:
        if conversion:
            current_budget.get().weigh(value)
        return super().convert_field(value, conversion)


def _formatted(
    formatter: _Formatter, pattern: str, args: Sequence[Any], kwargs: Mapping[str, Any]
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
    raise TemplateRefused(text_of(message))
