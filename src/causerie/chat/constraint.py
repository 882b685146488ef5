"""One grammar for a whole reply, from the format and what the request demands.

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
        before, body = "", _thought_or_calls(form, text, calls, is_open=reasoning == "open")
    else:
        body = _reply_rule(form, text, calls, answer)
        before = _reasoning_grammar(form, text, reasoning, free=free)
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
    held = _enforcing_markers(form.calls)
    if not held or form.calls.at_start or form.header is not None:
        return False
    begins = tuple(filter(None, control_tokens))
    return all(mark.startswith(begins) for mark in (*form.reasoning.closes, *held))


def _thought_or_calls(
    form: forms.ModelFormat, text: GrammarText, calls: CallPlan, is_open: bool
) -> str:
    section, marks = _Section(form.calls, calls, text), form.reasoning
    whole = section.whole()
    held = _enforcing_markers(form.calls)
    closed = _alternatives(map(text.literal, marks.closes))
    ends = [f"{closed} {_after_reasoning(form, text)} {whole}"]
    ends += [f"{text.literal(mark)} {section.behind(mark)}" for mark in held]
    thought = text.text_without((*marks.closes, *held))
    rest = text.rule(f"{thought} ({' | '.join(ends)})")
    if is_open:
        return rest
    return text.rule(f"{_alternatives(map(text.literal, marks.opens))} {rest} | {whole}")


def _reasoning_grammar(
    form: forms.ModelFormat, text: GrammarText, state: str, *, free: bool
) -> str:
    marks = form.reasoning
    if state == "none" or free:
        return ""
    close = f"{_alternatives(map(text.until, marks.closes))} {_after_reasoning(form, text)}"
    if state == "open":
        return close
    opened = text.rule(f"{_alternatives(map(text.literal, marks.opens))} {close}")
    return f"({opened})?"


def _after_reasoning(form: forms.ModelFormat, text: GrammarText) -> str:
    after = form.reasoning.after_close
    return text.literal(after) if after.strip() else f"/[ \\n]{{0,{max(len(after), 1)}}}/"


def _alternatives(options: Iterable[str]) -> str:
    first, *others = options
    return f"({' | '.join((first, *others))})" if others else first


def _reply_rule(
    form: forms.ModelFormat, text: GrammarText, calls: CallPlan | None, answer: AnswerPlan | None
) -> str:
    said = None
    if answer:
        marks = (form.answer_open, form.answer_close)
        opened, closed = (f"({text.literal(mark)})?" if mark else "" for mark in marks)
        said = text.rule(f"{opened} ({answer.expression}) {closed}".strip())
    if calls is None:
        return said or text.free()
    if form.calls.addressed:
        text.shut = f"[ \\n]*{spelled(_first_literal(form.calls))}"
    if calls.forbidden:
        return said or text.free_without(_call_markers(form.calls))
    section = _Section(form.calls, calls, text)
    if calls.required:
        return section.whole()
    if said:
        return text.rule(f"{section.whole()} | {said}")
    at_start = form.calls.at_start
    ways = [form.calls, *(way for way in form.calls.also if at_start or not way.at_start)]
    sections = [section, *(_Section(way, calls, text) for way in ways[1:])]
    unmarked = _unmarked_call(form.calls, text, calls) if calls.unmarked and not at_start else []
    options = [option for each in sections for option in each.offered()]
    # Free text must not stay possible alongside a call that has started: the lexer would follow the
    # text, and the call would never be enforced.
    starts = [mark for way in ways if way.at_start for mark in (*way.starts, *way.lead_ins)]
    shut = [f"~/{spelled(mark)}(.|\n)*/" for mark in starts]
    free = text.terminal(" & ".join([ANY_TEXT, *shut])) if shut else text.free()
    return text.rule(" | ".join([*options, free, *unmarked]))


def _unmarked_call(form: forms.CallSection, text: GrammarText, calls: CallPlan) -> list[str]:
    several = MAX_CALLS - 1 if form.parallel and calls.parallel else 0
    marks = section_marks(form)
    written: dict[str, str] = {}
    if text.manner.white_space is WhiteSpace.PRETTY:  # as unmarked calls always have it
        known = text.functions.items()
        written = {name: rule for (name, way), rule in known if way == forms.JsonArguments()}
    plain = {name: of for name, of in calls.tools.items() if name not in calls.grammars}
    control = text.control_tokens
    found = plain and unmarked_grammar(plain, marks, control, several=several, known=written)
    if not found:
        return []
    expression, rules, shut = found
    text.shut = f"({text.shut}|{shut})" if text.shut else shut
    text.include(rules)
    return [text.free_before(expression)]


def _call_markers(calls: forms.CallSection) -> tuple[str, ...]:
    # JSON at the start of a reply is a call only where calls are possible.
    if calls.addressed:
        behind = next(one for one in calls.call[1:] if isinstance(one, forms.Literal))
        return (_message_opening(calls), behind.text)
    return () if calls.at_start else (*_enforcing_markers(calls), *calls.lead_ins)


def _message_opening(calls: forms.CallSection) -> str:
    last = markers(calls.separator)[-1]
    return calls.separator[calls.separator.index(last) :] + _first_literal(calls)


def _first_literal(calls: forms.CallSection) -> str:
    assert isinstance(calls.call[0], forms.Literal)
    return calls.call[0].text


def _enforcing_markers(calls: forms.CallSection) -> tuple[str, ...]:
    return (calls.holds_at,) if calls.holds_at else calls.starts


class _Section:
    def __init__(self, form: forms.CallSection, plan: CallPlan, text: GrammarText) -> None:
        self._form = form
        self._plan = plan
        self._text = text
        self._call_rule = self._any_call(form.call)

    def whole(self) -> str:
        begin = self._text.literal(self._form.lead + self._form.begin)
        return self._text.rule(f"{begin} {self._calls_rule()}")

    def offered(self) -> list[str]:
        form, text = self._form, self._text
        if form.at_start:
            # The first texts are one literal: else the lexer would follow free text.
            first, *others = form.call
            ways = [f"{text.literal(mark)} {self._calls_rule()}" for mark in form.lead_ins]
            if isinstance(first, forms.Literal):
                begun = self._with_first((forms.Literal(form.begin + first.text), *others))
            else:
                begun = f"{text.literal(form.begin)} {self._calls_rule()}"
            return [begun, *ways]
        if form.addressed:
            return self._calls_at_message_start()
        if form.is_named:
            # Else the lexer would follow free text, of which the name may be a part.
            name = min(self._plan.tools)
            marks = (mark.removeprefix(name).strip() for mark in name_triggers(form, name))
            known = all(map(text.is_control, marks))
            return [text.free_before(self._calls_rule())] if known else []
        calls = self._calls_rule()
        led_in = [f"{text.free_until(mark)} {calls}" for mark in form.lead_ins]
        held = _enforcing_markers(form)
        return [*led_in, *(f"{text.free_until(mark)} {self.behind(mark)}" for mark in held)]

    def _calls_at_message_start(self) -> list[str]:
        form, text = self._form, self._text
        first = forms.Literal(form.lead + _first_literal(form))  # one lexeme, as free text is
        begun = (first, *form.call[1:])
        option = text.free_before(self._with_first(begun))
        if text.is_control(opening := _message_opening(form)):
            return [option]
        # The opening is text like any other.
        return [option, f"{text.free_until(opening)} {self.behind(_first_literal(form))}"]

    def _calls_rule(self, first: str = "") -> str:
        form, text = self._form, self._text
        many = form.parallel and self._plan.parallel
        again = f"({text.literal(form.separator)} {self._call_rule}){_MORE_CALLS}" if many else ""
        end = text.literal(form.end) if form.end else ""
        end = f"({end})?" if end and form.optional_end else end
        return f"{first or self._call_rule} {again} {end}".strip()

    def behind(self, trigger: str) -> str:
        form, text = self._form, self._text
        if form.begin.startswith(trigger):
            left = form.begin[len(trigger) :]
            return f"{text.literal(left) if left else ''} {self._calls_rule()}".strip()
        at, literal = next(
            (at, one)
            for at, one in enumerate(form.call)
            if isinstance(one, forms.Literal) and trigger in form.begin + one.text
        )
        left = (form.begin + literal.text).partition(trigger)[2]
        behind = form.call[at + 1 :]
        return self._with_first((forms.Literal(left), *behind) if left else behind)

    def _with_first(self, segments: Sequence[forms.Segment]) -> str:
        return self._calls_rule(self._any_call(segments))

    def _any_call(self, segments: Sequence[forms.Segment]) -> str:
        calls = (self._one_call(name, segments) for name in sorted(self._plan.tools))
        return self._text.rule(" | ".join(map(self._text.rule, calls)))

    def _one_call(self, name: str, segments: Sequence[forms.Segment]) -> str:
        out: list[str] = []
        fixed = ""
        for segment in segments:
            if isinstance(segment, forms.Literal) and not segment.also:
                fixed += segment.text
            elif isinstance(segment, forms.Literal):
                ways = [fixed + each for each in (segment.text, *segment.also)]
                out.append(f"({' | '.join(map(self._text.literal, ways))})")
                fixed = ""
            elif isinstance(segment, forms.Name):
                fixed += name
            else:
                out += [self._text.literal(fixed)] if fixed else []
                out.append(self._arguments_grammar(segment, name))
                fixed = ""
        return " ".join([*out, *([self._text.literal(fixed)] if fixed else [])])

    def _arguments_grammar(self, segment: forms.Segment, name: str) -> str:
        text = self._text
        text.function = name
        if isinstance(segment, forms.CallId):
            return call_id_grammar(segment.pattern, re.escape(name))
        if (name, segment) not in text.functions:
            try:
                text.functions[name, segment] = text.rule(self._arguments_rule(segment, name))
            except SchemaRefused as refused:
                raise refused.of_function(name) from None
            except RecursionError:
                reason = "Its references lead from one to the next too often."
                raise SchemaRefused("tools", reason, function=name) from None
        return text.functions[name, segment]

    def _arguments_rule(self, segment: forms.Segment, function: str) -> str:
        schema, text = self._plan.tools[function], self._text
        match segment:
            case forms.JsonArguments() if function in self._plan.grammars:
                grammar, [argument] = self._plan.grammars[function], names_in(schema)
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
