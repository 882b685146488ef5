"""Composes one grammar for a whole reply from the format and what the request demands.

The parser reads with the same declaration, so what is admitted here is understood there. A reply
that nothing constrains has no grammar.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from causerie.chat.answer import AnswerPlan
from causerie.chat.call_syntax.base import Tools, call_id_grammar, spelled
from causerie.chat.call_syntax.elements import element_grammar
from causerie.chat.call_syntax.json import MOST_RULES, SPACE, pretty_grammar
from causerie.chat.call_syntax.members import names_in
from causerie.chat.call_syntax.parameters import parameter_grammar
from causerie.chat.call_syntax.python import loose_grammar, python_grammar
from causerie.chat.call_syntax.unmarked import section_marks, unmarked_grammar
from causerie.chat.calls import markers, name_triggers
from causerie.chat.formats import format as forms
from causerie.chat.grammar_text import ANY_TEXT, USUAL, GrammarText, Manner
from causerie.chat.lark import Embedded
from causerie.chat.schema import WhiteSpace
from causerie.chat.schema.keywords import SchemaRefused

MAX_CALLS = 32  # in one message
_MORE_CALLS = f"{{0,{MAX_CALLS - 1}}}"


@dataclass(frozen=True, slots=True)
class CallPlan:
    """Functions that may be called, and bounds on the number of calls."""

    tools: Tools  # closed schemas by name
    required: bool  # at least one call has to come
    parallel: bool  # several calls may come
    unmarked: bool = False  # a reply may be calls without the marker of the format
    text: str = ""  # all schemas as sent: equal texts mean equal schemas
    forbidden: bool = False  # the prompt shows functions, but no call may come
    grammars: Mapping[str, Embedded] = field(default_factory=dict)
    """Grammars of the only text that some functions take, within JSON, by name."""


def compose(
    form: forms.ModelFormat,
    control_tokens: Mapping[str, int],
    *,
    reasoning: str,
    calls: CallPlan | None,
    answer: AnswerPlan | None,
    manner: Manner = USUAL,
) -> str | None:
    """Return the grammar of a reply, or ``None`` when nothing has to be enforced.

    ``reasoning`` is ``"open"`` when the prompt ended inside the reasoning,
    ``"possible"`` when the model may begin one, ``"none"`` otherwise. Raises
    ``SchemaRefused`` from the schemas of the tools.
    """
    if answer is None and calls is None:
        return None
    thought = form.reasoning
    marks = (*thought.opens, *thought.closes, form.answer_open, form.answer_close, *form.skip)
    text = GrammarText(control_tokens, tuple(filter(None, marks)), manner)
    free = leaves_free(form, calls, answer)
    thinks = reasoning != "none"
    if thinks and calls is not None and calls_in_reasoning(form, control_tokens, calls):
        before, body = "", _build_reasoning_or_calls(form, text, calls, is_open=reasoning == "open")
    else:
        body = _build_reply(form, text, calls, answer)
        before = _build_reasoning(form, text, reasoning, free=free)
    if manner.leading and not free:
        before = f"{text.literal(manner.leading)} {before}"
    ended = f"(<[{','.join(map(str, manner.end_tokens))}]>)?" if manner.end_tokens else ""
    return text.finish(f"{before} {body} {ended}".strip(), answer.rules if answer else "")


def leaves_free(form: forms.ModelFormat, calls: CallPlan | None, answer: AnswerPlan | None) -> bool:
    """Return whether the reply may be any text, with calls at most optional.

    The reasoning of such a reply is free text, which a call ends. All other
    reasoning ends only at its closing marker.
    """
    if calls is None or calls.forbidden:
        return answer is None
    return answer is None and not (calls.required or form.calls.at_start)


def calls_in_reasoning(
    form: forms.ModelFormat, control_tokens: Collection[str], calls: CallPlan
) -> bool:
    """Return whether a forced call may begin inside the reasoning, and end it.

    So it is if control tokens begin both the call and the end of the reasoning. Where they are
    plain text, reasoning may speak of a call.
    """
    if not calls.required:
        return False
    held = _list_enforcing_marks(form.calls)
    if not held or form.calls.at_start or form.header is not None:
        return False
    begins = tuple(filter(None, control_tokens))
    return all(mark.startswith(begins) for mark in (*form.reasoning.closes, *held))


def _build_reasoning_or_calls(
    form: forms.ModelFormat, grammar: GrammarText, calls: CallPlan, is_open: bool
) -> str:
    section, marks = _Section(form.calls, calls, grammar), form.reasoning
    whole = section.whole()
    held = _list_enforcing_marks(form.calls)
    closed = _join_alternatives(map(grammar.literal, marks.closes))
    ends = [f"{closed} {_write_space_after_reasoning(form, grammar)} {whole}"]
    ends += [f"{grammar.literal(mark)} {section.behind(mark)}" for mark in held]
    thought = grammar.text_without((*marks.closes, *held))
    rest = grammar.rule(f"{thought} ({' | '.join(ends)})")
    if is_open:
        return rest
    return grammar.rule(f"{_join_alternatives(map(grammar.literal, marks.opens))} {rest} | {whole}")


def _build_reasoning(
    form: forms.ModelFormat, grammar: GrammarText, state: str, *, free: bool
) -> str:
    marks = form.reasoning
    if state == "none" or free:
        return ""
    after = _write_space_after_reasoning(form, grammar)
    close = f"{_join_alternatives(map(grammar.until, marks.closes))} {after}"
    if state == "open":
        return close
    opened = grammar.rule(f"{_join_alternatives(map(grammar.literal, marks.opens))} {close}")
    return f"({opened})?"


def _write_space_after_reasoning(form: forms.ModelFormat, grammar: GrammarText) -> str:
    after = form.reasoning.after_close
    return grammar.literal(after) if after.strip() else f"/[ \\n]{{0,{max(len(after), 1)}}}/"


def _join_alternatives(expressions: Iterable[str]) -> str:
    first, *others = expressions
    return f"({' | '.join((first, *others))})" if others else first


def _build_reply(
    form: forms.ModelFormat, grammar: GrammarText, calls: CallPlan | None, answer: AnswerPlan | None
) -> str:
    said = None
    if answer:
        marks = (form.answer_open, form.answer_close)
        opened, closed = (f"({grammar.literal(mark)})?" if mark else "" for mark in marks)
        said = grammar.rule(f"{opened} ({answer.expression}) {closed}".strip())
    if calls is None:
        return said or grammar.free()
    if form.calls.addressed:
        grammar.shut = f"[ \\n]*{spelled(_text_of_first_segment(form.calls))}"
    if calls.forbidden:
        return said or grammar.free_without(_list_call_markers_to_forbid(form.calls))
    section = _Section(form.calls, calls, grammar)
    if calls.required:
        return section.whole()
    if said:
        return grammar.rule(f"{section.whole()} | {said}")
    at_start = form.calls.at_start
    ways = [form.calls, *(way for way in form.calls.also if at_start or not way.at_start)]
    sections = [section, *(_Section(way, calls, grammar) for way in ways[1:])]
    may_omit_mark = calls.unmarked and not at_start
    unmarked = _add_unmarked_options(form.calls, grammar, calls) if may_omit_mark else []
    options = [option for each in sections for option in each.offered()]
    # Free text must not stay possible alongside a call that has started: the lexer would follow the
    # text, and the call would never be enforced.
    starts = [mark for way in ways if way.at_start for mark in (*way.starts, *way.lead_ins)]
    shut = [f"~/{spelled(mark)}(.|\n)*/" for mark in starts]
    free = grammar.terminal(" & ".join([ANY_TEXT, *shut])) if shut else grammar.free()
    return grammar.rule(" | ".join([*options, free, *unmarked]))


def _add_unmarked_options(
    form: forms.CallSection, grammar: GrammarText, calls: CallPlan
) -> list[str]:
    several = MAX_CALLS - 1 if form.parallel and calls.parallel else 0
    marks = section_marks(form)
    written: dict[str, str] = {}
    if grammar.manner.white_space is WhiteSpace.PRETTY:  # as unmarked calls always have it
        known = grammar.functions.items()
        written = {name: rule for (name, way), rule in known if way == forms.JsonArguments()}
    plain = {name: of for name, of in calls.tools.items() if name not in calls.grammars}
    control = grammar.control_tokens
    found = plain and unmarked_grammar(plain, marks, control, several=several, known=written)
    if not found:
        return []
    expression, rules, shut = found
    grammar.shut = f"({grammar.shut}|{shut})" if grammar.shut else shut
    grammar.include(rules)
    return [grammar.free_before(expression)]


def _list_call_markers_to_forbid(section: forms.CallSection) -> tuple[str, ...]:
    # JSON at the start of a reply is a call only where calls are possible.
    if section.addressed:
        behind = next(one for one in section.call[1:] if isinstance(one, forms.Literal))
        return (_call_message_opening(section), behind.text)
    return () if section.at_start else (*_list_enforcing_marks(section), *section.lead_ins)


def _call_message_opening(section: forms.CallSection) -> str:
    last = markers(section.separator)[-1]
    return section.separator[section.separator.index(last) :] + _text_of_first_segment(section)


def _text_of_first_segment(section: forms.CallSection) -> str:
    assert isinstance(section.call[0], forms.Literal)
    return section.call[0].text


def _list_enforcing_marks(section: forms.CallSection) -> tuple[str, ...]:
    return (section.holds_at,) if section.holds_at else section.starts


class _Section:
    def __init__(self, form: forms.CallSection, plan: CallPlan, text: GrammarText) -> None:
        self._call_form = form
        self._call_plan = plan
        self._grammar = text
        self._call_rule = self._add_any_call_rule(form.call)

    def whole(self) -> str:
        begin = self._grammar.literal(self._call_form.lead + self._call_form.begin)
        return self._grammar.rule(f"{begin} {self._build_calls()}")

    def offered(self) -> list[str]:
        form, text = self._call_form, self._grammar
        if form.at_start:
            # The first texts are one literal: else the lexer would follow free text.
            first, *others = form.call
            ways = [f"{text.literal(mark)} {self._build_calls()}" for mark in form.lead_ins]
            if isinstance(first, forms.Literal):
                begun = self._build_calls_from((forms.Literal(form.begin + first.text), *others))
            else:
                begun = f"{text.literal(form.begin)} {self._build_calls()}"
            return [begun, *ways]
        if form.addressed:
            return self._list_addressed_options()
        if form.is_named:
            # Else the lexer would follow free text, of which the name may be a part.
            name = min(self._call_plan.tools)
            marks = (mark.removeprefix(name).strip() for mark in name_triggers(form, name))
            known = all(map(text.is_control, marks))
            return [text.free_before(self._build_calls())] if known else []
        calls = self._build_calls()
        led_in = [f"{text.free_until(mark)} {calls}" for mark in form.lead_ins]
        held = _list_enforcing_marks(form)
        return [*led_in, *(f"{text.free_until(mark)} {self.behind(mark)}" for mark in held)]

    def _list_addressed_options(self) -> list[str]:
        form, text = self._call_form, self._grammar
        first = forms.Literal(
            form.lead + _text_of_first_segment(form)
        )  # one lexeme, as free text is
        begun = (first, *form.call[1:])
        option = text.free_before(self._build_calls_from(begun))
        if text.is_control(opening := _call_message_opening(form)):
            return [option]
        # The opening is text like any other.
        return [option, f"{text.free_until(opening)} {self.behind(_text_of_first_segment(form))}"]

    def _build_calls(self, first_call: str = "") -> str:
        form, text = self._call_form, self._grammar
        many = form.parallel and self._call_plan.parallel
        again = f"({text.literal(form.separator)} {self._call_rule}){_MORE_CALLS}" if many else ""
        end = text.literal(form.end) if form.end else ""
        end = f"({end})?" if end and form.optional_end else end
        return f"{first_call or self._call_rule} {again} {end}".strip()

    def behind(self, trigger: str) -> str:
        form, text = self._call_form, self._grammar
        if form.begin.startswith(trigger):
            left = form.begin[len(trigger) :]
            return f"{text.literal(left) if left else ''} {self._build_calls()}".strip()
        at, literal = next(
            (at, one)
            for at, one in enumerate(form.call)
            if isinstance(one, forms.Literal) and trigger in form.begin + one.text
        )
        left = (form.begin + literal.text).partition(trigger)[2]
        behind = form.call[at + 1 :]
        return self._build_calls_from((forms.Literal(left), *behind) if left else behind)

    def _build_calls_from(self, first_segments: Sequence[forms.Segment]) -> str:
        return self._build_calls(self._add_any_call_rule(first_segments))

    def _add_any_call_rule(self, segments: Sequence[forms.Segment]) -> str:
        calls = (self._build_call(name, segments) for name in sorted(self._call_plan.tools))
        return self._grammar.rule(" | ".join(map(self._grammar.rule, calls)))

    def _build_call(self, function_name: str, segments: Sequence[forms.Segment]) -> str:
        out: list[str] = []
        fixed = ""
        for segment in segments:
            if isinstance(segment, forms.Literal) and not segment.also:
                fixed += segment.text
            elif isinstance(segment, forms.Literal):
                ways = [fixed + each for each in (segment.text, *segment.also)]
                out.append(f"({' | '.join(map(self._grammar.literal, ways))})")
                fixed = ""
            elif isinstance(segment, forms.Name):
                fixed += function_name
            else:
                out += [self._grammar.literal(fixed)] if fixed else []
                out.append(self._refer_to_id_or_arguments(segment, function_name))
                fixed = ""
        return " ".join([*out, *([self._grammar.literal(fixed)] if fixed else [])])

    def _refer_to_id_or_arguments(self, segment: forms.Segment, function_name: str) -> str:
        text = self._grammar
        text.function = function_name
        if isinstance(segment, forms.CallId):
            return call_id_grammar(segment.pattern, re.escape(function_name))
        if (function_name, segment) not in text.functions:
            try:
                rule = text.rule(self._write_arguments(segment, function_name))
                text.functions[function_name, segment] = rule
            except SchemaRefused as refused:
                raise refused.of_function(function_name) from None
            except RecursionError:
                reason = "Its references lead from one to the next too often."
                raise SchemaRefused("tools", reason, function=function_name) from None
        return text.functions[function_name, segment]

    def _write_arguments(self, segment: forms.Segment, function_name: str) -> str:
        schema, text = self._call_plan.tools[function_name], self._grammar
        match segment:
            case forms.JsonArguments() if function_name in self._call_plan.grammars:
                grammar, [argument] = self._call_plan.grammars[function_name], names_in(schema)
                text.include(grammar.rules)
                begin = rf"\{{{SPACE}{spelled(json.dumps(argument))}{SPACE}:{SPACE}\""
                end = text.terminal(rf"/\"{SPACE}\}}/")
                return f"{text.terminal(f'/{begin}/')} {grammar.start} {end}"
            case forms.JsonArguments():
                if text.manner.white_space is WhiteSpace.PRETTY:
                    most = MOST_RULES - len(text.rules)
                    prefix = f"arguments{len(text.functions)}_"
                    scope = GrammarText({}, prefix=prefix, most=most, function=text.function)
                    try:
                        written = pretty_grammar(schema, scope)
                    except SchemaRefused:
                        pass
                    else:
                        text.include(scope.rules)
                        return written
                return text.json(schema)
            case forms.ParameterList():
                return parameter_grammar(segment, schema, text)
            case forms.PythonArguments():
                return python_grammar(schema, text)
            case forms.LooseArguments(quote):
                return loose_grammar(quote, schema, text)
            case forms.ElementArguments(mark):
                return element_grammar(mark, schema, text)
            case _:
                raise AssertionError(f"{segment} holds no arguments")
