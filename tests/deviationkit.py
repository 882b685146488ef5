"""Calls as models write them where they deviate from the form that their family declares."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from formatkit import Call, write_calls
from msgspec.structs import replace

from causerie.chat.formats.format import (
    CallId,
    CallSection,
    JsonArguments,
    Literal,
    ModelFormat,
    Name,
    ParameterList,
    PythonArguments,
    Segment,
)

Deviation = Callable[[ModelFormat, Sequence[Call]], str | None]
"""Returns the text of the calls, or ``None`` where the family's form has no place for it."""


def _section(form: ModelFormat) -> CallSection:
    return form.calls


def _is_wrapped(calls: CallSection) -> bool:
    """Whether a call is one JSON object that names its arguments."""
    return any(isinstance(one, Literal) and '": ' in one.text for one in calls.call) and any(
        isinstance(one, JsonArguments) for one in calls.call
    )


def _with_literals(calls: CallSection, change: Callable[[str], str]) -> CallSection:
    call = tuple(
        replace(one, text=change(one.text)) if isinstance(one, Literal) else one
        for one in calls.call
    )
    return replace(calls, call=call)


def _replaced(calls: CallSection, segments: Mapping[type, Segment]) -> CallSection:
    call = tuple(segments.get(type(one), one) for one in calls.call)
    return replace(calls, call=call)


def other_key(form: ModelFormat, made: Sequence[Call]) -> str | None:
    """``parameters`` for ``arguments``, or the other way round."""
    calls = _section(form)
    if not _is_wrapped(calls):
        return None
    names = {'"arguments"': '"parameters"', '"parameters"': '"arguments"'}
    key = next((key for key in names if any(key in t.text for t in _literals(calls))), None)
    if key is None:
        return None
    return write_calls(_with_literals(calls, lambda text: text.replace(key, names[key])), made)


def _literals(calls: CallSection) -> list[Literal]:
    return [one for one in calls.call if isinstance(one, Literal)]


def as_a_string(form: ModelFormat, made: Sequence[Call]) -> str | None:
    """The JSON of the arguments within a JSON string."""
    calls = _section(form)
    if not any(isinstance(one, JsonArguments) for one in calls.call):
        return None
    text = write_calls(calls, made)
    for call in made:
        written = json.dumps(call.arguments, ensure_ascii=False)
        text = text.replace(written, json.dumps(written, ensure_ascii=False), 1)
    return text


def in_json(form: ModelFormat, made: Sequence[Call]) -> str | None:
    """One JSON object where the family writes the arguments in a notation of its own."""
    calls = _section(form)
    own = [one for one in calls.call if not isinstance(one, Literal | Name | CallId)]
    if any(isinstance(one, JsonArguments) for one in own):
        return None
    return write_calls(_replaced(calls, {type(own[0]): JsonArguments()}), made)


def on_other_lines(form: ModelFormat, made: Sequence[Call]) -> str | None:
    """Line breaks around every fixed text of a call."""
    calls = _section(form)
    if any(isinstance(one, CallId) for one in calls.call):
        return None
    if any(isinstance(one, ParameterList) and one.between.endswith("\n") for one in calls.call):
        return None
    broken = _with_literals(calls, lambda text: text if text.endswith('"') else f"{text}\n")
    return write_calls(replace(broken, separator=f"\n{calls.separator}\n"), made)


def on_one_line(form: ModelFormat, made: Sequence[Call]) -> str | None:
    """No line break between the tags of a call and of its parameters."""
    calls = _section(form)
    listed = next((one for one in calls.call if isinstance(one, ParameterList)), None)
    if listed is None:
        return None
    texts = {field: getattr(listed, field).replace("\n", "") for field in ("between", "after")}
    dense = _with_literals(
        _replaced(calls, {ParameterList: replace(listed, **texts)}),
        lambda text: text.replace("\n", ""),
    )
    separator = calls.separator.strip()
    return write_calls(replace(dense, begin=calls.begin.strip(), separator=separator), made)


def without_ids(form: ModelFormat, made: Sequence[Call]) -> str | None:
    """An object without the id that the family writes behind the arguments."""
    calls = _section(form)
    at = next((at for at, one in enumerate(calls.call) if isinstance(one, CallId)), None)
    if at is None or not _is_wrapped(calls) or at < len(calls.call) - 2:
        return None
    return write_calls(replace(calls, call=(*calls.call[: at - 1], Literal("}"))), made)


def with_ids(form: ModelFormat, made: Sequence[Call]) -> str | None:
    """An object with an id behind the arguments, where the family writes none."""
    calls = _section(form)
    if not _is_wrapped(calls) or any(isinstance(one, CallId) for one in calls.call):
        return None
    last = calls.call[-1]
    assert isinstance(last, Literal)
    with_id = replace(last, text=f', "id": "call}}_1"{last.text}')
    return write_calls(replace(calls, call=(*calls.call[:-1], with_id)), made)


def with_a_bracket_too_many(form: ModelFormat, made: Sequence[Call]) -> str | None:
    calls = _section(form)
    last = calls.call[-1]
    if not _is_wrapped(calls) or not isinstance(last, Literal):
        return None
    more = replace(last, text=last.text.replace("}", "}}", 1))
    return write_calls(replace(calls, call=(*calls.call[:-1], more)), made)


def with_a_bracket_too_few(form: ModelFormat, made: Sequence[Call]) -> str | None:
    calls = _section(form)
    last = calls.call[-1]
    if not _is_wrapped(calls) or not isinstance(last, Literal) or '"' in last.text:
        return None
    less = replace(last, text=last.text.replace("}", "", 1))
    return write_calls(replace(calls, call=(*calls.call[:-1], less)), made)


def arguments_first(form: ModelFormat, made: Sequence[Call]) -> str | None:
    calls = _section(form)
    if not _is_wrapped(calls) or not any('name": "' in one.text for one in _literals(calls)):
        return None
    whole = _object(calls, lambda call: {"arguments": call.arguments, "name": call.name})
    return whole(made)


def nested(form: ModelFormat, made: Sequence[Call]) -> str | None:
    calls = _section(form)
    if not _is_wrapped(calls):
        return None
    whole = _object(
        calls,
        lambda call: {
            "id": "call_1",
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
        },
    )
    return whole(made)


def _object(
    calls: CallSection, of: Callable[[Call], Mapping[str, object]]
) -> Callable[[Sequence[Call]], str]:
    """Calls whose object is another."""
    first, last = calls.call[0], calls.call[-1]
    assert isinstance(first, Literal)
    assert isinstance(last, Literal)
    head, tail = first.text.partition("{")[0], last.text.rpartition("}")[2]

    def written(made: Sequence[Call]) -> str:
        texts = [head + json.dumps(of(call), ensure_ascii=False) + tail for call in made]
        return calls.begin + calls.separator.join(texts) + calls.end

    return written


def whole_objects(form: ModelFormat, made: Sequence[Call]) -> str | None:
    """The object of another family between the tags of this one."""
    calls = _section(form)
    first, last = calls.call[0], calls.call[-1]
    if _is_wrapped(calls) or not isinstance(first, Literal) or not isinstance(last, Literal):
        return None
    head, tail = first.text.split("\n")[0], last.text.split("\n")[-1]
    if not head.endswith(">") or not tail.endswith(">"):
        return None
    texts = [
        f"{head}\n{json.dumps({'name': one.name, 'arguments': one.arguments})}\n{tail}"
        for one in made
    ]
    return calls.begin + calls.separator.join(texts) + calls.end


def without_the_first_marker(form: ModelFormat, made: Sequence[Call]) -> str | None:
    headless = headless_of(form)
    return write_calls(headless, made) if headless else None


def without_both_markers(form: ModelFormat, made: Sequence[Call]) -> str | None:
    headless = headless_of(form)
    return write_calls(replace(headless, end=""), made) if headless else None


def headless_of(form: ModelFormat) -> CallSection | None:
    """Return the section that begins with its first call, if the family has a marker there."""
    calls = _section(form)
    return next((way for way in calls.also if way.optional_end and not way.is_named), None)


def named_of(form: ModelFormat) -> CallSection | None:
    """Return the section that begins with the name of a function, if a marker follows it."""
    return next((way for way in _section(form).also if way.is_named), None)


def without_the_marker_of_the_name(form: ModelFormat, made: Sequence[Call]) -> str | None:
    """A call that begins with the name of its function."""
    named = named_of(form)
    return write_calls(named, made) if named else None


def without_the_markers_around_it(form: ModelFormat, made: Sequence[Call]) -> str | None:
    named = named_of(form)
    return write_calls(replace(named, end=""), made) if named else None


def without_the_end(form: ModelFormat, made: Sequence[Call]) -> str | None:
    calls = _section(form)
    return write_calls(replace(calls, end=""), made) if calls.end else None


def without_the_last_marker(form: ModelFormat, made: Sequence[Call]) -> str | None:
    calls = _section(form)
    last = calls.call[-1]
    own = not any(isinstance(one, JsonArguments) for one in calls.call)
    if own or not isinstance(last, Literal) or not last.text.rstrip().endswith(">"):
        return None
    text = write_calls(replace(calls, end=""), made).rstrip()
    return text.removesuffix(last.text.split()[-1])


def with_the_last_marker_twice(form: ModelFormat, made: Sequence[Call]) -> str | None:
    calls = _section(form)
    last = calls.call[-1]
    if not isinstance(last, Literal) or not last.text.rstrip().endswith(">") or calls.end:
        return None
    return write_calls(calls, made) + last.text.split()[-1]


def ended_at_once(form: ModelFormat, made: Sequence[Call]) -> str | None:
    """A tag of a function without arguments that closes itself, before one with arguments."""
    calls = _section(form)
    own = [at for at, one in enumerate(calls.call) if isinstance(one, Name)]
    behind = calls.call[own[0] + 1] if own else None
    if not isinstance(behind, Literal) or not behind.text.startswith(('">', ">")):
        return None
    head = "".join(one.text for one in calls.call[: own[0]] if isinstance(one, Literal))
    if "<function" not in head and "<｜DSML｜invoke" not in head and "<invoke" not in head:
        return None
    quote = '"' if behind.text.startswith('"') else ""
    closing = calls.call[-1].text if isinstance(calls.call[-1], Literal) else ""
    outer = closing.split()[-1] if len(closing.split()) > 1 else ""
    text = f"{calls.begin}{head}now{quote}/>\n{outer}"
    rest = write_calls(replace(calls, begin=""), made)
    return text + calls.separator + rest


def with_a_key_without_value(form: ModelFormat, made: Sequence[Call]) -> str | None:
    """A key of a number behind the others, with nothing for a value."""
    calls = _section(form)
    listed = next((one for one in calls.call if isinstance(one, ParameterList)), None)
    if listed is None or listed.between_json is not None:
        return None
    empty = f"{listed.before}days{listed.between}{listed.after}"
    text = write_calls(calls, made)
    first = write_calls(calls, made[:1]).removesuffix(calls.end)
    last = calls.call[-1]
    tail = last.text if isinstance(last, Literal) else ""
    return text.replace(first, first.removesuffix(tail) + empty + tail, 1)


def with_half_a_pair(form: ModelFormat, made: Sequence[Call]) -> str | None:
    """A key in front of the others that no value follows."""
    calls = _section(form)
    listed = next((one for one in calls.call if isinstance(one, ParameterList)), None)
    if listed is None or not listed.between.startswith("</"):
        return None
    half = listed.before + "days" + listed.between.partition(">")[0] + ">\n"
    return write_calls(calls, made).replace(listed.before, half + listed.before, 1)


def with_the_first_marker_twice(form: ModelFormat, made: Sequence[Call]) -> str | None:
    calls = _section(form)
    first = calls.call[0]
    head = (calls.begin or (first.text if isinstance(first, Literal) else "")).split()[:1]
    if form.header is not None or tuple(head) != calls.starts[:1]:
        return None
    return f"{head[0]}\n{write_calls(calls, made)}" if head[0].endswith((">", "]")) else None


def with_the_first_marker_on_a_line(form: ModelFormat, made: Sequence[Call]) -> str | None:
    calls = _section(form)
    if not calls.begin.strip().endswith((">", "]")):
        return None
    return write_calls(replace(calls, begin=calls.begin.strip() + "\n\n"), made)


def with_the_end_on_lines(form: ModelFormat, made: Sequence[Call]) -> str | None:
    """Line breaks between the markers that end a section, and those that end a call."""
    calls = _section(form)
    if form.header is not None:
        return None
    last = calls.call[-1]
    if not isinstance(last, Literal):
        return None
    split = replace(last, text=last.text.replace("><", ">\n<"))
    end = calls.end.replace("]<", "\n]\n<").replace("><", ">\n<")
    return write_calls(replace(calls, call=(*calls.call[:-1], split), end=end), made)


def with_brackets_behind_it(form: ModelFormat, made: Sequence[Call]) -> str | None:
    return None if form.header else f"{write_calls(_section(form), made)}\n}}]"


def in_json_as_a_string(form: ModelFormat, made: Sequence[Call]) -> str | None:
    """The JSON of the arguments within a string, where the family has a notation of its own."""
    text = in_json(form, made)
    if any(isinstance(one, PythonArguments) for one in _section(form).call):
        return None  # it would be the first argument
    for call in made if text else ():
        written = json.dumps(call.arguments, ensure_ascii=False)
        text = (text or "").replace(written, json.dumps(written, ensure_ascii=False), 1)
    return text


DEVIATIONS: Mapping[str, Deviation] = {
    made.__name__: made
    for made in (
        other_key,
        as_a_string,
        in_json,
        on_other_lines,
        on_one_line,
        without_ids,
        with_ids,
        with_a_bracket_too_many,
        with_a_bracket_too_few,
        arguments_first,
        nested,
        whole_objects,
        without_the_end,
        without_the_first_marker,
        without_both_markers,
        without_the_marker_of_the_name,
        without_the_markers_around_it,
        without_the_last_marker,
        with_the_last_marker_twice,
        with_the_first_marker_twice,
        with_the_first_marker_on_a_line,
        with_the_end_on_lines,
        with_brackets_behind_it,
        in_json_as_a_string,
        ended_at_once,
        with_a_key_without_value,
        with_half_a_pair,
    )
}
