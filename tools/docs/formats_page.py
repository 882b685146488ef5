"""Generate ``docs/reference/formats.md`` from the declarations of the formats."""

from __future__ import annotations

import re
import sys

from format_names import names_table

from causerie.chat.formats.format import (
    CallId,
    CallSection,
    ElementArguments,
    JsonArguments,
    Literal,
    LooseArguments,
    ModelFormat,
    Name,
    ParameterList,
    PythonArguments,
    Segment,
    ThinkingSwitch,
)
from causerie.chat.formats.registry import FORMATS

_HEAD = """\
# Formats

How each model family writes its reasoning and its calls. This page is written
from the declarations in `causerie.chat.formats`; change those and run
`make docs`.

The format is detected from the model's chat template, the first in this order
whose signs the template has. Where that is wrong, name one in the
configuration (`format = "..."` of the model).

*thinks*: `on` and `off` say what the model does when it is told nothing;
`always` that it cannot be turned off; `asked` that it thinks only when a
request wants it, by our own words. *tools*: `own` where the template shows
tools, `told` where we describe them in a system message. In calls, `NAME`
stands for the function, `ID` for an id of the model's own, `ARGUMENTS` for one
JSON object, `KEY` and `VALUE` for arguments written one by one.

With `tool_choice: "auto"` every model may write its calls in another spelling:
`{"name": "NAME", "arguments": ARGUMENTS}` (or `parameters`) alone, in a list, or
in code fences that follow each other, also before the closing marker of its own
format. Such a reply is delivered as calls at its end if nothing else stands in it,
every function is known and all arguments follow their schemas. Otherwise it stays text, unchanged.

A call that deviates from its form is read as what it plainly means: arguments
as a string, JSON between tags, another key for the arguments, other line
breaks, missing ids, brackets or closing markers, or a section without its first
marker where each call has one of its own. It is a call only if it names
an offered function and has the arguments that the function needs; otherwise it
stays text. Messages on channels (gpt-oss, llm-jp, beam) are read with the recipient
before or behind the channel. A message to a tool that was not offered is
reasoning. A call of beam ends with its message; one that meets the limit of tokens between
two parameters is half a call.

A call that begins inside the reasoning ends it. With a forced call that holds where the
first markers of both are control tokens of the model; else reasoning ends at its own marker.

| format | reasoning | thinks | tools | calls |
|---|---|---|---|---|
"""


def formats_page() -> str:
    """Return the whole page."""
    return _HEAD + "".join(_row(form) for form in FORMATS) + names_table()


def _row(form: ModelFormat) -> str:
    marks = form.reasoning
    thought = f"{_code(marks.open)} … {_code(marks.close)}"
    tools = "own" if form.native_tools else "told"
    calls = _code(_call(form.calls))
    return f"| {form.name} | {thought} | {_thinks(form.thinking)} | {tools} | {calls} |\n"


def _thinks(switch: ThinkingSwitch | None) -> str:
    if switch is None:
        return "asked"
    words = "always" if switch.mandatory else switch.default
    efforts = f" ({', '.join(switch.efforts)})" if switch.efforts else ""
    return words + efforts


def _call(calls: CallSection) -> str:
    return calls.begin + "".join(_segment(segment) for segment in calls.call) + calls.end


def _segment(segment: Segment) -> str:
    match segment:
        case Literal(text):
            return text
        case Name():
            return "NAME"
        case CallId():
            return "ID"
        case JsonArguments():
            return "ARGUMENTS"
        case ParameterList(before, between, after):
            return f"{before}KEY{between}VALUE{after}"
        case PythonArguments():
            return "KEY=VALUE, …"
        case LooseArguments(quote):
            return f"{{KEY:{quote}VALUE{quote},…}}"
        case ElementArguments(mark):
            return f"{mark}<KEY>VALUE{mark}</KEY>"


def _code(text: str) -> str:
    shown = text.replace("\n", "⏎").replace("|", "\\|")
    fence = "`" * (max(map(len, re.findall("`+", shown)), default=0) + 1)
    return f"{fence}{shown}{fence}"


if __name__ == "__main__":
    sys.stdout.write(formats_page())
