"""Lark grammars of texts within JSON: what they admit is what they admit as plain text."""

from __future__ import annotations

import json

import pytest
from casekit import each_of
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer

from causerie.chat.constraint import CallPlan, compose
from causerie.chat.formats.registry import by_name
from causerie.chat.lark import EMBEDDED, embed, embed_in_json
from causerie.chat.schema.keywords import SchemaRefused

PATCH = r"""
start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?

hunk: add_hunk | delete_hunk | update_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
update_hunk: "*** Update File: " filename LF change_move? change?

filename: /(.+)/
add_line: "+" /(.*)/ LF -> line

change_move: "*** Move to: " filename LF
change: (change_context | change_line)+ eof_line?
change_context: ("@@" | "@@ " /(.+)/) LF
change_line: ("+" | "-" | " ") /(.*)/ LF
eof_line: "*** End of File" LF

%import common.LF
"""
"""The grammar of a tool that a well-known agent defines."""
EDIT = '*** Begin Patch\n*** Update File: a "b".py\n@@ \\d\n-\told\n+new\n*** End Patch\n'


def accepts(grammar: str, text: str) -> bool:
    matcher = LLMatcher(LLTokenizer("byte"), grammar, log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    raw = list(text.encode())
    return matcher.try_consume_tokens(raw) == len(raw) and matcher.is_accepting()


def admits(source: str, text: str) -> bool:
    return accepts(f"%llguidance {{}}\nstart: {EMBEDDED}\n{embed(source)}", text)


def admits_within(source: str, text: str) -> bool:
    part = embed_in_json(source, "g", param="p")
    grammar = f'%llguidance {{}}\nstart: "\\"" {part.start} "\\""\n{part.rules}'
    return accepts(grammar, json.dumps(text, ensure_ascii=False))


@each_of(
    ("source", "good", "bad"),
    [
        ('start: "say \\"x\\"\\n" /[a-z]+/', 'say "x"\nab', "say x\nab"),
        (r"start: /[^\n]+/ LF" "\n%import common.LF", 'a\\b "c"\n', "a\nb\n"),
        ("start: /.*/s", 'a\n"\\', None),
        (r'start: /"\w+"(\\|\/)/', '"ab"\\', "ab/"),
        ('start: A A\nA: "x\\t"i | /[\\t\\\\]b/', "X\t\\b", "x"),
        ("start: INT WS /é+/\n%import common (INT, WS)", "12 \n\té", "12é"),
        (PATCH, EDIT, EDIT.replace("*** End Patch\n", "")),
        (PATCH, "*** Begin Patch\n*** Delete File: x\n*** End Patch", "*** Begin Patch\n"),
    ],
)
def test_texts_within_json(source: str, good: str, bad: str | None) -> None:
    assert admits(source, good)
    assert admits_within(source, good)
    if bad is not None:
        assert not admits(source, bad)
        assert not admits_within(source, bad)


@given(st.lists(st.sampled_from([*'+-@ "\\\n\tañ', "*** End Patch", "*** Add File: "])))
@settings(max_examples=60)
def test_a_patch_is_one_in_both_writings(pieces: list[str]) -> None:
    text = "*** Begin Patch\n*** Add File: a\n+x\n" + "".join(pieces) + "*** End Patch\n"
    assert admits(PATCH, text) == admits_within(PATCH, text)


@pytest.mark.parametrize(
    "source",
    [
        'start: A\nA: "x" & /./',
        "start: /a/i",
        'start: S\nS: ~"a"',
        'start: %json {"type": "null"}',
        "start: ESCAPED_STRING\n%import common.ESCAPED_STRING",
        "start: /(?=a)b/",
        "nothing: x",
    ],
)
def test_what_cannot_be_said_within_json(source: str) -> None:
    with pytest.raises(SchemaRefused):
        embed_in_json(source, "g", param="p")


def test_the_call_of_a_model_follows_the_grammar() -> None:
    schema = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    part = embed_in_json(PATCH, "custom0", param="p")
    plan = CallPlan(
        {"apply_patch": schema, "other": {"type": "object"}}, True, False,
        grammars={"apply_patch": part},
    )  # fmt: skip
    grammar = compose(by_name("hermes"), {}, reasoning="none", calls=plan, answer=None)
    assert grammar is not None

    def call(text: str) -> str:
        arguments = {"input": text}
        body = json.dumps({"name": "apply_patch", "arguments": arguments}, ensure_ascii=False)
        return f"<tool_call>\n{body}\n</tool_call>"

    assert accepts(grammar, call(EDIT))
    assert not accepts(grammar, call("Some other text"))
