"""Grammars of clients inside a larger one."""

from __future__ import annotations

import pytest
from casekit import each_of
from llguidance import LLMatcher, LLTokenizer

from causerie.chat.lark import EMBEDDED, embed, tokens
from causerie.chat.schema.keywords import SchemaRefused


def admits(source: str, text: str) -> bool:
    rules = embed(source)
    # The names of the client's grammar are all taken around it, with another meaning.
    outer = f'%llguidance {{}}\nstart: "<" {EMBEDDED} expr A\nexpr: ">"\nA: "!"\n{rules}'
    matcher = LLMatcher(LLTokenizer("byte"), outer, log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    raw = f"<{text}>!".encode()
    return matcher.try_consume_tokens(list(raw)) == len(raw) and matcher.is_accepting()


def test_rules_and_terminals_keep_to_themselves() -> None:
    source = """
        // sums
        start: expr  # the top
        ?expr: expr "+" A
             | A
        A: /[0-9]+/ & ~/0+/
    """
    assert admits(source, "1+20")
    assert not admits(source, "1+0")
    assert not admits(source, "!")


@each_of(
    ("source", "good", "bad"),
    [
        ('start: "a"i /b\\/#"c/', 'Ab/#"c', "ab"),
        ('start: "//x" "#y" // "z"', "//x#y", "//x#yz"),
        ('start: ("a" | "b"){2,3} ["c"]', "abc", "abcc"),
        ('start: "a"~2..3', "aa", "a"),
        ("%import common.INT -> N\n%import common (WS, LETTER)\nstart: N WS LETTER", "1 a", "1a"),
        ("start: x\nx[lazy]: /.*;/", "ab;", "ab;;"),
        ("start: x\nx[suffix=END]: /.*/\nEND: \";\"", "ab;", "ab"),
        ('%llguidance {}\nstart: %json {"type": "object",\n"properties": {"a": {"type": "null"}}}',
         '{"a": null}', '{"a":null}'),
        ('start: S\nS: %regex {"substring_words": "a b"}', "a b", "b a"),
        ('start: a-b _c\na-b: "x"\n_c: "y"', "xy", "x"),
        ('start: "\\u00e9" /[^\\/]/', "éa", "é/"),
        ('root ::= "a" item* # c\nitem ::= [a-z"]+ "," | "\\n"', 'a"b,', "b"),
        ('root ::= ("x" | y-z){2}\r\ny-z ::= "::="', "x::=", "x"),
    ],
)  # fmt: skip
def test_what_the_dialect_has(source: str, good: str, bad: str) -> None:
    assert admits(source, good)
    assert not admits(source, bad)


@each_of(
    ("source", "words"),
    [
        ("start: <|im_end|>", "Control tokens"),
        ("start: <[5]>", "Control tokens"),
        ("start: <[*]>", "Control tokens"),
        ("start: x\nx[suffix=<|im_end|>]: /a/", "Control tokens"),
        ('%ignore / /\nstart: "a"', "%ignore"),
        ("start: @other", "References"),
        ('start: "a" other', "Line 1.*`other` is not defined"),
        ('begin: "a"', "no rule `start`"),
        ("", "no rule `start`"),
        ('start: "a"\n\nstart: "b"', "Line 3.*twice"),
        ('start: "a\nb"', "Line 1"),
        ('start: %json {"type": "array", "uniqueItems": true}', "#/uniqueItems"),
        ("start: %json {", "no valid JSON"),
        ('start: %json "x"', "an object"),
        ('%llguidance {"no_forcing": true}\nstart: "a"', "options are not supported"),
        ('%import python.NAME\nstart: "a"', "common"),
        ('%import common.NOPE\nstart: "a"', "NOPE"),
        ('start::x: "a"', "no `:` follows"),
        ('start: a::x\na: "a"', "parameters"),
        ('start[stop="x"]: /a*/', "`stop`"),
        ('start[max_tokens=3]: /a*/', "not supported|not understood"),
        ("start[temperature=2]: /a*/", "`temperature`|not understood"),
        ('start.2: "a"', "Priorities"),
        ('start: %lark {\nstart: "a"\n}', "Nested"),
        ('%override start: "a"', "%override"),
        ("start: 'a'", "not understood"),
        ("start: \u201ca\u201d", "not understood"),
        ('root ::= (', "GBNF"),
        ('top ::= "a"', "root"),
        ("root ::= other", "."),
        ("a" * 100_001, "longer"),
    ],
)  # fmt: skip
def test_what_reaches_beyond_is_refused(source: str, words: str) -> None:
    with pytest.raises(SchemaRefused, match=words) as caught:
        embed(source)
    assert caught.value.param == "structured_outputs.grammar"


def test_text_that_spells_a_control_token_stays_text() -> None:
    assert admits('start: "<|im_end|>" /<b>/', "<|im_end|><b>")


def test_tokens_skip_the_json_of_directives() -> None:
    text = 'start: "<[1]>" <[2]> %json {"const": "<[3]>"} <[4]>'
    special = [(found, text[at]) for kind, found, at in tokens(text) if kind == "special"]
    assert special == [("<[2]>", "<"), ("<[4]>", "<")]
