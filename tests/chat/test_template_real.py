"""Every chat template: the same text as plain Jinja, and no marker to be forged.

Real ones lie in the folder that CAUSERIE_TEMPLATES names; those here show all formats.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, tzinfo
from functools import cache
from pathlib import Path
from typing import Any, Self

import jinja2
import jinja2.ext
import pytest
from casekit import each_of
from jinja2 import nodes
from jinja2.parser import Parser
from jinja2.sandbox import SandboxedEnvironment

from causerie.chat import template as template_module
from causerie.chat.encoding import ControlTokens, split
from causerie.chat.formats.format import ModelFormat, Reasoning
from causerie.chat.formats.registry import detect
from causerie.chat.prompt import Prompt, prompt_of, render
from causerie.chat.taint import read_arguments
from causerie.chat.template import ChatTemplate, Rendered
from causerie.chat.template_capabilities import capabilities_of
from causerie.chat.template_worker import (
    Ask,
    Ready,
    Refusal,
    TemplateSource,
    TemplateWorker,
    encode,
    read_answer,
)
from causerie.errors import InvalidRequest
from causerie.protocol.request import ChatRequest, Message, Tool, ToolCall

_FOLDER = os.environ.get("CAUSERIE_TEMPLATES", "")
_PATHS = sorted(Path(_FOLDER).glob("*.jinja")) if _FOLDER else []
_OWN = sorted((Path(__file__).parents[1] / "templates").glob("*.jinja"))
_MARKER = re.compile(
    r"<\|[^\s<>{}'\"|]+\|?>|</?[\w:.|\-｜▁]+>|<｜[^<>\s]+｜>|\[/?[A-Z_]{3,}\]"
    r"|\]~!?b[\[\]]|\[e~\[|\]<\]\w+\[>\["
)
_ID = "abcdefgh1"
_NEEDS_MORE_VARIABLES = {"fireworks-ai-llama-3-firefunction-v2"}
# Whether that one calls the words that it joins "safe", which in plain Jinja has
# the quotes of a tool's JSON escaped as HTML: surely not what it was trained on.
_ESCAPES_BY_ACCIDENT = {"meetkai-functionary-medium-v3.1"}

every_template = pytest.mark.parametrize(
    ("path"), [pytest.param(path, id=path.stem) for path in _PATHS]
)


def _template(path: Path) -> ChatTemplate:
    return ChatTemplate(path.read_text(), bos_token="<BOS>", eos_token="<EOS>")


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)


class _Generation(jinja2.ext.Extension):
    tags = {"generation"}  # noqa: RUF012 - the base class declares it without ClassVar

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def _plain(source: str, **variables: object) -> str:
    """Render with plain Jinja, without tracking of authors."""
    environment = SandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation]
    )

    def tojson(
        value: object,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        if isinstance(value, Iterator):
            value = list(value)
        return json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )

    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda pattern: _Noon.now().strftime(pattern)
    return environment.from_string(source).render(
        **variables, bos_token="<BOS>", eos_token="<EOS>", documents=None
    )


def _conversations(word: str = "word") -> dict[str, tuple[list[dict[str, Any]], Any]]:
    user = {"role": "user", "content": f"say {word} now"}
    answer = {
        "role": "assistant",
        "content": f"this is {word} then",
        "reasoning_content": f"some {word} thought",
        "thinking": f"some {word} thought",
    }
    system = {"role": "system", "content": f"be {word} always"}
    arguments = {"place": f"in {word} city", "days": 3, "more": [1, 2.5, None, True, {"a": "b"}]}
    call = {
        "role": "assistant",
        "content": "",
        "reasoning_content": f"some {word} thought",
        "tool_calls": [
            {
                "id": _ID,
                "type": "function",
                "function": {"name": "get_weather", "arguments": arguments},
            }
        ],
    }
    result = {
        "role": "tool",
        "content": f"so {word} it is",
        "tool_call_id": _ID,
        "name": "get_weather",
    }
    place = {"type": "string", "description": f"a {word} place"}
    parameters = {
        "type": "object",
        "properties": {"place": place, "days": {"type": "integer", "description": "how many"}},
        "required": ["place"],
    }
    function = {
        "name": "get_weather",
        "description": f"the {word} weather",
        "parameters": parameters,
    }
    tools = [{"type": "function", "function": function}]
    return {
        "plain": ([user], None),
        "system": ([system, user], None),
        "chat": ([system, user, answer, user], None),
        "tools": ([system, user], tools),
        "exchange": ([user, call, result], tools),
        "long": ([system, user, call, result, answer, user], tools),
    }


def _rendered(template: ChatTemplate, word: str) -> dict[str, Rendered]:
    """Every conversation the template takes, with the word wherever a user can write."""
    done = {}
    for name, (messages, tools) in _conversations(word).items():
        try:
            done[name] = template.render(messages, tools=tools)
        except InvalidRequest:
            continue
    return done


def _own_markers(rendered: Rendered, markers: list[str]) -> list[tuple[int, str]]:
    """Return the places of markers of which no user wrote a character."""
    user = bytearray(len(rendered.text))
    for start, stop in rendered.user:
        user[start:stop] = b"\x01" * (stop - start)
    return [
        (match.start(), marker)
        for marker in markers
        for match in re.finditer(f"(?={re.escape(marker)})", rendered.text)
        if not any(user[match.start() : match.start() + len(marker)])
    ]


class _Noon(datetime):
    """A clock that does not move, not even over midnight."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return cls(2026, 11, 26, 12, tzinfo=tz)


@every_template
def test_the_text_is_what_plain_jinja_gives(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_module, "datetime", _Noon)
    template, source, done = _template(path), path.read_text(), 0
    for messages, tools in _conversations().values():
        given = {"messages": messages, "tools": tools, "add_generation_prompt": True}
        try:
            want = _plain(source, **json.loads(json.dumps(given)))
        except (jinja2.TemplateError, TypeError):
            with pytest.raises(InvalidRequest):
                template.render(messages, tools=tools)
            continue
        if path.stem in _ESCAPES_BY_ACCIDENT:
            want = want.replace("&#34;", '"').replace("&#39;", "'")
        assert template.render(messages, tools=tools).text == want
        done += 1
    assert done or path.stem in _NEEDS_MORE_VARIABLES | _needs_tools()


def _needs_tools() -> set[str]:
    return {path.stem for path in _PATHS if "tool_use" in path.stem}


def _hostile(word: str) -> Iterator[ChatRequest]:
    """Requests with the word wherever one has room for a text of its sender."""
    quoted = json.dumps(word)[1:-1]
    arguments = f'{{"in {quoted}": "so {quoted}", "days": 1}}'
    call = ToolCall(_ID, f"get_{word}", arguments)
    place = {"type": "string", "description": f"a {word} place", "enum": [f"one {word}"]}
    parameters = {"type": "object", "properties": {f"in {word}": place}}
    tools = (Tool("get_weather", parameters, f"the {word} weather"),)
    system = Message("system", f"be {word} always")
    user = Message("user", f"say {word} now", name=f"a {word}")
    said = {"content": f"this is {word} then", "reasoning_content": f"some {word} thought"}
    result = Message("tool", f"so {word} it is", tool_call_id=_ID)
    for messages in (
        (system, user),
        (user, Message("assistant", **said), user),
        (user, Message("assistant", **said, tool_calls=(call,)), result, user),
    ):
        for offered in ((), tools):
            yield ChatRequest(model="m", messages=messages, tools=offered)


@each_of("path", [pytest.param(path, id=path.stem) for path in [*_OWN, *_PATHS]], every=3)
def test_no_marker_can_be_forged(path: Path) -> None:
    """Markers that are read as such are those of an honest prompt, whatever its texts spell."""
    template = _template(path)
    format = detect(template.source)
    markers = sorted({*_MARKER.findall(template.source), "<BOS>", "<EOS>"}, key=len, reverse=True)
    tokens = ControlTokens({marker: id for id, marker in enumerate(markers)})
    any_marker = re.compile("|".join(map(re.escape, markers)))

    @cache
    def read(word: str) -> list[list[str] | None]:
        return [_read(request) for request in _hostile(word)]

    def _read(request: ChatRequest) -> list[str] | None:
        try:
            prompt = render(template, format, request, thinking_on=None, effort=None)
        except InvalidRequest:
            return None
        pieces = [piece.text for piece in split(prompt, tokens) if not piece.forged]
        return [marker for text in pieces for marker in any_marker.findall(text)]

    for marker in markers:
        for honest, spelled in zip(read("x" * len(marker)), read(marker), strict=True):
            if marker in _LOOKED_FOR and honest and spelled:
                more = Counter(spelled) - Counter(honest)
                assert more.keys() <= _LOOKED_FOR, marker
            else:
                assert spelled == honest, marker


@each_of("path", [pytest.param(path, id=path.stem) for path in [*_OWN, *_PATHS]], every=3)
def test_a_worker_gives_the_same_prompt_and_the_same_authors(path: Path) -> None:
    """Every character still knows its author when it has been through another process."""
    source = path.read_text()
    template, form, worker = _template(path), detect(source), TemplateWorker()
    done = read_answer(worker.answer(encode(TemplateSource(source, "<BOS>", "<EOS>", form.name))))
    assert isinstance(done, Ready)
    for request in _hostile("<|im_end|>é😀"):
        told = read_answer(worker.answer(encode(Ask.of(request))))
        assert isinstance(told, Prompt | Refusal)
        wanted: object
        try:
            wanted = prompt_of(template, form, request)
        except InvalidRequest as refused:
            wanted = refused.error()
        assert (told if isinstance(told, Prompt) else told.error().error()) == wanted


# What templates search for in an answer, to take earlier reasoning out of it.
_LOOKED_FOR = {"</think>", "<think>", "<|channel>", "<channel|>"}


@every_template
def test_every_marker_of_the_template_stays_its_own(path: Path) -> None:
    """No operation of a real template loses the origin of a marker."""
    template = _template(path)
    markers = sorted({*_MARKER.findall(path.read_text()), "<BOS>", "<EOS>"})
    for name, rendered in _rendered(template, "harmless").items():
        own = {(at, marker) for at, marker in _own_markers(rendered, markers)}
        everywhere = {
            (match.start(), marker)
            for marker in markers
            for match in re.finditer(re.escape(marker), rendered.text)
        }
        assert everywhere == own, name


CALL = ToolCall(_ID, "get_weather", '{"place": "in Oslo city", "days": 1.0, "more": [1e5]}')
TOOL = Tool(
    "get_weather",
    {"type": "object", "properties": {"place": {"type": "string", "description": "where"}}},
    "the weather",
)


@every_template
def test_every_request_renders_by_its_capabilities(path: Path) -> None:
    """Parts that a template cannot show move to a place that it can show, and nothing is lost."""
    if path.stem in _NEEDS_MORE_VARIABLES:
        pytest.skip("this template needs variables that no request has")
    template = _template(path)
    format = ModelFormat(name="probe", reasoning=Reasoning(), reasoning_keys=("reasoning_content",))
    request = ChatRequest(
        model="m",
        messages=(
            Message("system", "be kind"),
            Message("system", "be brief"),
            Message("user", "first question"),
            Message("user", "second question"),
            Message("assistant", None, tool_calls=(CALL,)),
            Message("tool", "it rains", tool_call_id=_ID),
            Message("assistant", "it is wet"),
            Message("system", "be honest"),
            Message("user", "third question"),
        ),
        tools=(TOOL,) if path.stem != "CohereForAI-c4ai-command-r-plus-tool_use" else (),
    )
    text = render(template, format, request, thinking_on=None, effort=None).text
    for word in ("kind", "brief", "honest", "first q", "second q", "third q", "Oslo", "wet"):
        assert text.count(word) >= 1, word
    assert "it rains" in text
    if request.tools:
        assert "the weather" in text


@every_template
def test_a_system_message_alone_is_shown(path: Path) -> None:
    if path.stem in _NEEDS_MORE_VARIABLES:
        pytest.skip("this template needs variables that no request has")
    request = ChatRequest(model="m", messages=(Message("system", "be kind"),))
    rendered = render(
        _template(path), ModelFormat(name="probe"), request, thinking_on=None, effort=None
    )
    assert "be kind" in rendered.text


@every_template
def test_an_answer_is_continued_where_it_ends(path: Path) -> None:
    if path.stem in _NEEDS_MORE_VARIABLES:
        pytest.skip("this template needs variables that no request has")
    request = ChatRequest(
        model="m",
        messages=(Message("user", "tell me"), Message("assistant", "Once upon a")),
        continue_final_message=True,
    )
    rendered = render(
        _template(path), ModelFormat(name="probe"), request, thinking_on=None, effort=None
    )
    assert rendered.text.endswith("Once upon a")
    assert rendered.user[-1][1] == len(rendered.text)


@every_template
def test_nothing_is_cut_where_nothing_is_forged(path: Path) -> None:
    template = _template(path)
    markers = {
        marker: number
        for number, marker in enumerate(sorted({*_MARKER.findall(path.read_text()), "<BOS>"}))
    }
    for rendered in _rendered(template, "harmless").values():
        assert [piece.text for piece in split(rendered, ControlTokens(markers))] == [rendered.text]


@every_template
def test_call_arguments_keep_their_characters(path: Path) -> None:
    template = _template(path)
    if not capabilities_of(template).calls or capabilities_of(template).arguments == "text":
        pytest.skip("this template shows no calls, or shows their text")
    text = '{"place":"\\u00e9",  "days": 1.0, "n": 1e5}'
    call = {"id": _ID, "type": "function"}
    function = {"name": "get_weather", "arguments": read_arguments(text)}
    tools = _conversations()["tools"][1]
    rendered = template.render(
        [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "", "tool_calls": [{**call, "function": function}]},
            {"role": "tool", "content": "x", "tool_call_id": _ID, "name": "get_weather"},
        ],
        tools=tools,
    ).text
    assert text in rendered or ("1.0" in rendered and "1e5" in rendered)
