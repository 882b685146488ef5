"""The text of a grammar: Lark in llguidance's dialect, while it is written."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from causerie.chat.call_syntax.base import Schema, without
from causerie.chat.schema import WhiteSpace, constraint
from causerie.chat.schema.keywords import SchemaRefused

ANY_TEXT = "/(.|\\n)*/"
SOME = "/(.|\\n)+/"
_MAX_CHARACTERS = 1_000_000  # the text for each part may repeat a definition


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


class Manner(Struct, frozen=True):
    """Options of how a grammar is written.

    ``end_tokens`` are all tokens that end a text; an engine by itself knows only one.
    ``white_space`` is what arguments in JSON may have between their tokens. A constrained reply
    begins with the white space ``leading``. Texts without alternatives are written in the model's
    usual tokens, which an engine may read as control tokens if they spell one. ``as_spelled``
    leaves their tokens to the model instead.
    """

    end_tokens: Sequence[int] = ()
    white_space: WhiteSpace = WhiteSpace.FIXED
    as_spelled: bool = False
    leading: str = ""


USUAL = Manner()


@dataclass(slots=True)
class GrammarText:
    """A grammar that is being written: its rules and terminals, in order."""

    control_tokens: Mapping[str, int]
    marks: Sequence[str] = ()
    manner: Manner = USUAL
    functions: dict[tuple[str, Hashable], str] = field(default_factory=dict)
    """Arguments by function and notation: several sections of calls share them."""
    function: str = ""  # whose arguments are being written
    param: str = "tools"  # of the request, for refusals
    prefix: str = ""  # of the names of all rules
    most: int = _MAX_CHARACTERS  # of all rules
    shut: str = ""  # regular expression of the beginnings that no free text may have
    _terminals: dict[str, str] = field(default_factory=dict)  # by what they match
    _rule_names: dict[str, str] = field(default_factory=dict)  # of rules, by what they say
    _rules: list[str] = field(default_factory=list)
    _grammar_length: int = 0
    _control_regex: re.Pattern[str] | None = None
    _marks_rule: str = ""

    def __post_init__(self) -> None:
        marks = sorted((mark for mark in self.control_tokens if mark), key=len, reverse=True)
        self._control_regex = re.compile(f"({'|'.join(map(re.escape, marks))})") if marks else None
        known = self.control_tokens.keys()
        held = [mark for mark in self.marks if not known.isdisjoint(self._split_at_controls(mark))]
        if held:
            self._marks_rule = self.rule(" | ".join(map(self.literal, dict.fromkeys(held))))

    def _split_at_controls(self, text: str) -> list[str]:
        parts = self._control_regex.split(text) if self._control_regex else [text]
        return [part for part in parts if part]

    def is_control(self, text: str) -> bool:
        return self._split_at_controls(text)[0] in self.control_tokens

    def rule(self, expression: str, options: str = "") -> str:
        """Return the name of a rule, which is added unless there is one that says the same."""
        body = f"{f'[{options}]' if options else ''}: {expression}"
        if body not in self._rule_names:
            self._rule_names[body] = f"{self.prefix}r{len(self._rules)}"
            self._rules.append(self._add_length_and_return_line(self._rule_names[body] + body))
        return self._rule_names[body]

    def _add_length_and_return_line(self, line: str) -> str:
        self._grammar_length += len(line)
        if self._grammar_length > self.most:
            raise SchemaRefused(self.param, "The schemas are too much to be enforced.")
        return line

    def reserve(self) -> str:
        """Return the name of a rule that is to be defined, so that it can refer to itself."""
        self._rules.append("")
        return f"{self.prefix}r{len(self._rules) - 1}"

    def define(self, name: str, expression: str) -> None:
        at = int(name.removeprefix(self.prefix)[1:])
        self._rules[at] = self._add_length_and_return_line(f"{name}: {expression}")

    def terminal(self, expression: str) -> str:
        """Return the name of a terminal, which is added unless there is one that says the same."""
        if expression not in self._terminals:
            name = f"{self.prefix.upper()}T{len(self._rules)}"
            self._terminals[expression] = name
            self._rules.append(self._add_length_and_return_line(f"{name}: {expression}"))
        return self._terminals[expression]

    def literal(self, text: str) -> str:
        """Return an expression for fixed text; control tokens in it become those tokens."""
        written = [
            f"<[{self.control_tokens[part]}]>" if part in self.control_tokens else quoted(part)
            for part in self._split_at_controls(text)
        ]
        return " ".join(written) or '""'

    def until(self, marker: str) -> str:
        """Return an expression for any text up to and including the first ``marker``.

        A marker that begins with a control token ends the text by itself, for
        free text holds no control tokens (nor spells them, where the engine
        takes them for text); a plain one needs a lazy lexeme.
        """
        parts = self._split_at_controls(marker)
        head = parts[0]
        if head in self.control_tokens:
            return f"{self.terminal(without(head))} {self.literal(marker)}"
        if "ANY: " + ANY_TEXT not in self._rules:
            self._rules.append("ANY: " + ANY_TEXT)
        lazy = self.rule(f"ANY {quoted(head)}", "lazy")
        return " ".join([lazy, *([self.literal("".join(parts[1:]))] if parts[1:] else [])])

    def text_without(self, markers: Sequence[str]) -> str:
        """Return a terminal for text without the control tokens that begin the ``markers``."""
        heads = dict.fromkeys(self._split_at_controls(marker)[0] for marker in markers)
        return self.terminal(" & ".join(f"({without(head)})" for head in heads))

    def closed(self, text: str, marker: str) -> str:
        """Return an expression for terminal ``text`` without ``marker``, then for the marker.

        White space around a marker belongs to it. A plain marker is of one lexeme with the text,
        which would else swallow its beginning: what may stand in a text goes on as text.
        """
        core = marker.strip()
        if self.is_control(marker):  # white space before it included
            return f"{self.terminal(f'{text} & {without(core)}')} {self.literal(marker)}"
        lead, margin = marker.split(core)
        head, *rest = self._split_at_controls(core)
        if head in self.control_tokens:
            inside = self.terminal(f"({text} & {without(core)}) {quoted(lead)}")
            return f"{inside} {self.literal(core + margin)}"
        whole = self.terminal(f"({text} & {without(head)}) {quoted(lead + head)}")
        return f"{whole} {self.literal(''.join(rest) + margin)}"

    def free(self) -> str:
        """Return an expression for an unconstrained reply: text and the format's control tokens."""
        if self.shut:
            return self.free_before(f"{self._add_terminal_of_allowed_start(SOME)}?")
        return f"({SOME} | {self._marks_rule})*" if self._marks_rule else ANY_TEXT

    def free_without(self, markers: Sequence[str]) -> str:
        """Return an expression for an unconstrained reply that has none of the ``markers``.

        Free text is one lexeme between control tokens, so that no marker is cut in two.
        """
        shut = [f"({without(marker)})" for marker in markers]
        shut += [f"~/{self.shut}(.|\\n)*/"] if self.shut else []
        text = self.terminal(" & ".join([SOME, *shut]))
        return f"{text}? ({self._marks_rule} {text}?)*" if self._marks_rule else f"{text}?"

    def free_until(self, marker: str) -> str:
        """Return an expression for an unconstrained reply up to and including ``marker``."""
        head, *rest = self._split_at_controls(marker)
        if head in self.control_tokens:
            return f"{self.free()} {self.literal(marker)}"
        if not self.shut:
            return f"{self._repeat_text_and_mark()} {self.until(marker)}".strip()
        lazy = self.rule(f"{self._add_terminal_of_allowed_start(ANY_TEXT)} {quoted(head)}", "lazy")
        left = self.literal("".join(rest)) if rest else ""
        return f"{self._repeat_text_and_mark()} {lazy} {left}".strip()

    def free_before(self, expression: str) -> str:
        return f"{self._repeat_text_and_mark()} {expression}".strip()

    def _repeat_text_and_mark(self) -> str:
        some = self._add_terminal_of_allowed_start(SOME) if self._marks_rule and self.shut else SOME
        return f"({some}? {self._marks_rule})*" if self._marks_rule else ""

    def _add_terminal_of_allowed_start(self, pattern: str) -> str:
        return self.terminal(f"{pattern} & ~/{self.shut}(.|\\n)*/")

    def json(self, schema: Schema) -> str:
        """Return an expression for JSON by schema, with the white space of the manner."""
        text = constraint(schema, param=self.param, white_space=self.manner.white_space)
        return self.rule(f'%json {{"$comment":{quoted(self.function)},{text[1:]}')

    def include(self, rules: str) -> None:
        self._rules.append(rules)

    @property
    def rules(self) -> str:
        return "\n".join(self._rules)

    def finish(self, start: str, extra: str) -> str:
        """Return the whole grammar; ``extra`` are rules that ``start`` refers to."""
        options = '{"no_forcing": true}' if self.manner.as_spelled else "{}"
        return f"%llguidance {options}\nstart: {start}\n{self.rules}\n{extra}"
