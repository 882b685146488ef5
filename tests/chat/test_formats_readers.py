"""Arguments in notations that are not JSON, read piece by piece into JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise

import pytest
from casekit import each_of, examples
from hypothesis import given, settings
from hypothesis import strategies as st

from causerie.chat.call_syntax.base import Reader, Unreadable
from causerie.chat.call_syntax.elements import ElementReader
from causerie.chat.call_syntax.json import JsonReader
from causerie.chat.call_syntax.parameters import OpenString, ParameterReader
from causerie.chat.call_syntax.python import PythonReader
from causerie.chat.call_syntax.relaxed import RelaxedReader, loose_text, relaxed_json
from causerie.chat.formats.format import ParameterList

MARK = "]<]mark[>["
QUOTE = '<|"|>'
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-1e6, 1e6) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("abc_", min_size=1), inner, max_size=3)
    ),
    max_leaves=6,
)
NAMED = st.dictionaries(st.from_regex(r"[a-z]\w{0,5}", fullmatch=True), VALUES, max_size=4)


class WantsMore(Exception):
    """The text ended before the reader was done."""


def fed(reader: Reader, text: str, size: int = 0) -> tuple[str, str]:
    """The JSON text that a reader gives, and the text that it leaves."""
    out = ""
    step = size or len(text)
    for at in range(0, len(text), step):
        read = reader.feed(text[at : at + step])
        out += read.arguments
        if read.rest is not None:
            return out, read.rest + text[at + step :]
    raise WantsMore(text)


def python(value: object) -> str:
    """A value as ``repr`` has it."""
    return repr(value)


@each_of("size", [0, 1, 2, 3])
@each_of(
    ("text", "expected"),
    [
        (")", {}),
        ("  )", {}),
        ("a=1)", {"a": 1}),
        ("a = 'x' , b = \"y\")", {"a": "x", "b": "y"}),
        ("a=True, b=None, c=false)", {"a": True, "b": None, "c": False}),
        ("a=[1, 'b', (2, 3),], b={'k': [True]})", {"a": [1, "b", [2, 3]], "b": {"k": [True]}}),
        ("a=[], b={}, c=())", {"a": [], "b": {}, "c": []}),
        (r"a='it\'s', b='\x41\u00e9\n\\', c='\q')", {"a": "it's", "b": "Aé\n\\", "c": "\\q"}),
        (r"a='\U0001F600\t')", {"a": "😀\t"}),
        (r'a="\ud83d\ude00\/")', {"a": "😀/"}),
        ("a='two\nlines')", {"a": "two\nlines"}),
        ("a=-1.5e3, b=0x10, c=1_000, d=.5)", {"a": -1500.0, "b": 16, "c": 1000, "d": 0.5}),
        ("'Paris', 3)", {"first": "Paris", "second": 3}),
        ("a=')', b=1)", {"a": ")", "b": 1}),
        (r"""a={'it\'s': 1, "\u00e9\"": 2})""", {"a": {"it's": 1, 'é"': 2}}),
        ("user-id='x', first=1, $top=2)", {"user-id": "x", "first": 1, "$top": 2}),
    ],
)
def test_python(text: str, expected: Mapping[str, object], size: int) -> None:
    schema: dict[str, object] = {
        "properties": {"first": {}, "second": {}, "user-id": {}, "$top": {}}
    }
    out, rest = fed(PythonReader(schema), text + "]", size)
    assert json.loads(out) == expected
    assert rest == ")]"


@each_of(
    "text",
    ["a=x)", "a=1 2)", "a==1)", "1, 2, 3)", "a=inf)", "a=f(1))", "a={1, 2})", "a=" + "[" * 99],
)
def test_python_that_is_none(text: str) -> None:
    with pytest.raises((Unreadable, WantsMore)):
        fed(PythonReader({"properties": {"first": {}, "second": {}}}), text, 1)


@given(arguments=NAMED, size=st.integers(0, 4))
def test_python_round_trip(arguments: Mapping[str, object], size: int) -> None:
    text = ", ".join(f"{name}={python(value)}" for name, value in arguments.items())
    out, rest = fed(PythonReader({}), text + ")", size)
    assert json.loads(out) == arguments
    assert rest == ")"


@each_of(
    ("text", "expected"),
    [
        ("True", "true"),
        ("['a', 1]", '["a", 1]'),
        ("{'k': None}", '{"k": null}'),
        ("hello", None),
        ("[1", None),
        ("1, 2", None),
        ("", None),
        ("1)", None),
    ],
)
def test_a_python_literal_as_json(text: str, expected: str | None) -> None:
    assert relaxed_json(text) == expected


@each_of("size", [0, 1, 2, 3, 5])
@each_of(
    ("text", "expected"),
    [
        ("{}", {}),
        (f"{{a:{QUOTE}x{QUOTE},n:1}}", {"a": "x", "n": 1}),
        (f'{{a:{QUOTE}"}},{{\\n{QUOTE}}}', {"a": '"},{\\n'}),
        (f"{{o:{{k:[true,{QUOTE}v{QUOTE}]}},x:None}}", {"o": {"k": [True, "v"]}, "x": None}),
        ('{"a": "x\\n", b: 1.0}', {"a": "x\n", "b": 1.0}),
        (f"{{{QUOTE}a{QUOTE}:1}}", {"a": 1}),
    ],
)
def test_loose(text: str, expected: Mapping[str, object], size: int) -> None:
    out, rest = fed(RelaxedReader(quote=QUOTE), text + "<tool_call|>", size)
    assert json.loads(out) == expected
    assert rest == "<tool_call|>"


@given(arguments=NAMED, size=st.integers(0, 4))
def test_loose_round_trip(arguments: Mapping[str, object], size: int) -> None:
    out, rest = fed(RelaxedReader(quote=QUOTE), loose_text(arguments, QUOTE) + "!", size)
    assert json.loads(out) == arguments
    assert rest == "!"


SHAPES = {
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "list": {"type": "array", "items": {"type": "string"}},
        "object": {"type": "object", "properties": {"item": {"type": "string"}}},
        "node": {"$ref": "#/$defs/node"},
    },
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "next": {"$ref": "#/$defs/node"}},
        }
    },
}


def element(name: str, inside: str) -> str:
    return f"{MARK}<{name}>{inside}{MARK}</{name}>"


@each_of("size", [0, 1, 2, 3, 7])
@each_of(
    ("text", "expected"),
    [
        ("", {}),
        (element("text", "12 <b>\n"), {"text": "12 <b>\n"}),
        (element("text", ""), {"text": ""}),
        (element("count", "12"), {"count": 12}),
        (element("list", element("item", "1") + element("item", "b")), {"list": ["1", "b"]}),
        (element("list", ""), {"list": []}),
        (element("object", ""), {"object": {}}),
        (element("object", element("item", "x")), {"object": {"item": "x"}}),
        (
            element("node", element("name", "1") + element("next", element("name", "2"))),
            {"node": {"name": "1", "next": {"name": "2"}}},
        ),
        (element("other", element("item", "true")), {"other": [True]}),
        (element("$top", "1"), {"$top": 1}),
        (element("a/b c", "1"), {"a/b c": 1}),
        (f"{MARK}<free>{MARK}<k>1{MARK}</l>{MARK}</free>", {"free": {"k": 1}}),
    ],
)
def test_elements(text: str, expected: Mapping[str, object], size: int) -> None:
    end = f"{MARK}</invoke>"
    out, rest = fed(ElementReader(MARK, SHAPES), text + end, size)
    assert json.loads(out) == expected
    assert rest == end


def test_elements_that_do_not_close_each_other() -> None:
    with pytest.raises(Unreadable):
        fed(ElementReader(MARK, SHAPES), f"{MARK}<list>{MARK}<item>a{MARK}</item>{MARK}</object>")


TYPES = {
    "properties": {
        "s": {"type": "string"},
        "b": {"type": "boolean"},
        "l": {"type": "array"},
        "n": {"type": ["null", "boolean"]},
        "o": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "i": {"type": ["integer", "string"]},
    }
}
CODER = ParameterList("<p=", ">\n", "\n</p>\n", constants="python")
TYPED = ParameterList('<p k="', '" t="string">', "</p>", between_json='" t="{type}">')
ANNOUNCED = ParameterList('<p k="', '" t="a">', "</p>", between_json='" t="b">')
WRAPPED = ParameterList('<p k="', '">', "</p>", wrap=("<![CDATA[", "]]>"))


@each_of("size", [0, 1, 2, 3])
@each_of(
    ("form", "text", "expected"),
    [
        (CODER, "<p=b>\nTrue\n</p>\n", {"b": True}),
        (CODER, "<p=b>\nfalse\n</p>\n", {"b": False}),
        (CODER, "<p=n>\nNone\n</p>\n", {"n": None}),
        (CODER, "<p=s>\nNone\n</p>\n", {"s": "None"}),
        (CODER, "<p=s>\n\n x\n\n</p>\n", {"s": "\n x\n"}),
        (CODER, '<p=l>\n[\'x"\', "a"]\n</p>\n', {"l": ['x"', "a"]}),
        (CODER, '<p=l>\n["</p>"]\n</p>\n', {"l": ["</p>"]}),
        (CODER, "<p=x>\nNone\n</p>\n", {"x": None}),
        (CODER, "<p=o>\n90210\n</p>\n", {"o": "90210"}),
        (CODER, "<p=o>\nnull\n</p>\n", {"o": None}),
        (CODER, '<p=o>\n["\\w]\n</p>\n', {"o": '["\\w]'}),
        (CODER, '<p=o>\n{"\n</p>\n<p=b>\nTrue\n</p>\n', {"o": '{"', "b": True}),
        (CODER, "<p=i>\n7\n</p>\n", {"i": 7}),
        (CODER, "<p=i>\n7.5\n</p>\n", {"i": "7.5"}),
        (CODER, "<p=x>\nhello\n</p>\n", {"x": "hello"}),
        (TYPED, '<p k="a" t="string">1</p><p k="c" t="number">1</p>', {"a": "1", "c": 1}),
        (TYPED, '<p k="s" t="array">["</p>"]</p>', {"s": ["</p>"]}),
        (WRAPPED, '<p k="s"><![CDATA[a</p>]]></p><p k="b">true</p>', {"s": "a</p>", "b": True}),
        (WRAPPED, '<p k="l"><![CDATA[x]]></p>', {"l": "x"}),
        (WRAPPED, '<p k="s"><![CD</p>', {"s": "<![CD"}),
    ],
)
def test_parameters(
    form: ParameterList, text: str, expected: Mapping[str, object], size: int
) -> None:
    out, rest = fed(ParameterReader(form, TYPES), text + "</end>", size)
    assert json.loads(out) == expected
    assert rest == "</end>"


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (CODER, '<p=s>\nPa"ris\n\n</p>\n<p=b>\nTrue\n</p>\n<p=l>\n["a"]\n</p>\n'),
        (TYPED, '<p k="s" t="string">Pa"ris" t</p><p k="b" t="boolean">true</p>'),
        (ANNOUNCED, '<p k="s" t="a">Pa"ris" t</p><p k="b" t="b">true</p>'),
        (WRAPPED, '<p k="s"><![CDATA[a</p>]]></p><p k="b">true</p>'),
    ],
)
def test_parameters_that_are_cut_say_the_same_however_they_came(
    form: ParameterList, text: str
) -> None:
    for end in range(1, len(text)):
        whole, piecewise = ParameterReader(form, TYPES), ParameterReader(form, TYPES)
        pieces = [piecewise.feed(letter).arguments for letter in text[:end]]
        assert whole.feed(text[:end]).arguments == "".join(pieces)


@given(
    words=st.lists(st.sampled_from(["a", "=", "'", '"', "\\", "(", ")", "[", ",", "1", "{", ":"]))
)
def test_what_a_reader_reads_is_json_however_odd_the_text(words: Sequence[str]) -> None:
    for reader in (PythonReader({}), RelaxedReader(quote=QUOTE), ElementReader(MARK, {})):
        try:
            arguments, _ = fed(reader, "".join(words) or " ", 1)
        except (Unreadable, WantsMore):
            continue
        json.loads(arguments)


LISTED = ParameterList(before="<p=", between=">", after="</p>")
ANY = {"properties": {"tags": {"type": "array"}, "city": {"type": "string"}}}
LONG = 24_000  # characters, in pieces of 4: in squared time these take longer than a test may


@pytest.mark.parametrize(
    "value",
    [
        ["x" * LONG],
        ["it's </p>" * (LONG // 9)],
        ['"</p>' * (LONG // 5)],
        [7] * (LONG // 3),
    ],
)
def test_a_long_list_in_small_pieces_is_read_in_linear_time(value: list[object]) -> None:
    text = f"<p=tags>{json.dumps(value)}</p>.</end>"
    out, rest = fed(ParameterReader(LISTED, ANY), text, 4)
    assert json.loads(out) == {"tags": value}
    assert rest == ".</end>"


def test_a_long_string_with_an_object_in_small_pieces_is_read_in_linear_time() -> None:
    arguments = json.dumps({"city": 'a"\\' * (LONG // 3)})
    out, rest = fed(JsonReader(), f" {json.dumps(arguments)}}}\n", 4)
    assert json.loads(out) == json.loads(arguments)
    assert rest == "}\n"


@each_of(
    ("reader", "begin"),
    [
        (PythonReader(ANY), "city"),
        (PythonReader(ANY), 'city={"'),
        (PythonReader(ANY), "city=1"),
        (RelaxedReader(quote=QUOTE), "{city"),
        (ElementReader(MARK, ANY), f"{MARK}<"),
        (ParameterReader(LISTED, ANY), "<p="),
    ],
)
def test_a_word_without_an_end_is_given_up(reader: Reader, begin: str) -> None:
    with pytest.raises(Unreadable):
        fed(reader, begin + "1" * LONG, 4)


def in_string(text: str) -> bool:
    strings = OpenString()
    strings.add(text)
    return strings.holds


@settings(max_examples=examples(30))
@given(st.text("[]{},:\"'\\ ab1", max_size=24), st.data())
def test_an_open_string_is_the_same_however_it_is_asked(text: str, data: st.DataObject) -> None:
    """By the places before it, and at once."""
    text = "[" + text
    places = sorted(data.draw(st.sets(st.integers(1, len(text)), min_size=1)))
    strings, found = OpenString(), []
    for before, place in pairwise([0, *places]):
        strings.add(text[before:place])
        found.append(strings.holds)
    assert found == [in_string(text[:place]) for place in places]


@settings(max_examples=examples(30))
@given(VALUES.map(lambda value: [value]), st.data())
def test_a_place_is_in_a_string_of_json_where_it_is(
    value: list[object], data: st.DataObject
) -> None:
    text = json.dumps(value, ensure_ascii=False)
    place = data.draw(st.integers(1, len(text)))
    inside = escaped = False
    for character in text[:place]:
        inside ^= character == '"' and not escaped
        escaped = character == "\\" and not escaped
    assert in_string(text[:place]) == inside
