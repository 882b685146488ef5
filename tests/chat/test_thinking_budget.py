"""The budget in tokens that an effort gives a model of ours."""

from __future__ import annotations

import msgspec
from casekit import each_of

from causerie.chat.thinking import budget
from causerie.protocol.parameters import EFFORTS, ParsingRules, effort_within
from causerie.protocol.request import Thinking
from causerie.shapes.chat_completions.reader import parse


def asked(**fields: object) -> Thinking:
    """The setting of a request at a router's door."""
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **fields}
    return parse(msgspec.json.encode(body), ParsingRules(reasoning_object=True)).thinking


@each_of(
    ("effort", "tokens"),
    [
        ("max", 7500),  # a quarter is kept for the answer
        ("xhigh", 7500),
        ("high", 7500),
        ("medium", 5000),
        ("low", 2000),
        ("minimal", 1000),
    ],
)
@each_of("way", ["object", "field"])
def test_an_effort_is_a_share_of_the_limit(effort: str, tokens: int, way: str) -> None:
    said = {"reasoning": {"effort": effort}} if way == "object" else {"reasoning_effort": effort}
    assert budget(asked(**said), 10_000) == tokens


def test_on_without_more_is_medium_where_the_router_s_object_says_it() -> None:
    assert budget(asked(reasoning={"enabled": True}), 10_000) == 5000
    assert budget(asked(chat_template_kwargs={"enable_thinking": True}), 10_000) == 7500
    assert budget(asked(reasoning={"enabled": True, "max_tokens": 70}), 10_000) == 70
    assert budget(asked(reasoning={"enabled": True}, reasoning_effort="low"), 10_000) == 2000


@each_of(("limit", "most"), [(10_000, 7500), (1000, 744), (600, 344), (400, 200), (2, 1), (1, 0)])
def test_an_answer_always_has_room(limit: int, most: int) -> None:
    for said in (*({"effort": effort} for effort in EFFORTS[:-1]), {"max_tokens": 1_000_000}):
        assert budget(asked(reasoning=said), limit) <= most
    assert budget(asked(reasoning={"max_tokens": 1_000_000}), limit) == most


def test_the_effort_that_a_budget_stands_for() -> None:
    for limit in (100, 999, 4096, None):
        last = -1
        for tokens in (1, 50, 100, 500, 2000, 9000, 20_000):
            rank = ("minimal", "low", "medium", "high", "xhigh").index(effort_within(tokens, limit))
            assert rank >= last
            last = rank
    assert effort_within(1, 4096) == "minimal"
    assert effort_within(4096, 4096) == "xhigh"
