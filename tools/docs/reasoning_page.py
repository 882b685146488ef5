"""Generate ``docs/reference/reasoning.md``: the fields that each dialect gets for each request.

A row is the result of a real translation: each request is written for each dialect.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping

import msgspec

from causerie.errors import InvalidRequest
from causerie.protocol.parameters import ASSUMED_OUTPUT_LIMIT, EFFORT_SHARES, EFFORTS, ParsingRules
from causerie.providers.dialect import Dialect
from causerie.providers.dialects import DIALECTS
from causerie.providers.outgoing import outgoing
from causerie.shapes.chat_completions.reader import parse

_INTRODUCTION = """\
# Reasoning

One setting decides how a model thinks: on or off, an effort, a budget in tokens, and whether the
reasoning is shown. It can be said in these fields; what several say must agree, or the request is
refused with 400, naming the field that contradicts.

| field | means | doors |
|---|---|---|
| `reasoning.enabled` | on or off; on without more is effort `medium` | routers |
| `reasoning.effort` | an effort; `none` is off | routers |
| `reasoning.max_tokens` | on, with at most so many tokens | routers |
| `reasoning.exclude` | true: think, and do not show it | routers |
| `reasoning.summary` | a hint for providers that sum their reasoning up | routers |
| `reasoning_effort` | an effort; `none` is off | all |
| `thinking_token_budget` | at most so many tokens, if the model thinks; 0 is off | all |
| `include_reasoning` | false: think, and do not show it | all |
| `chat_template_kwargs.enable_thinking` | on or off | all |

`reasoning` takes `effort` or `max_tokens`, not both. It belongs to router doors, and to gateways
with `reasoning = true`; other doors refuse it with 400 and say what to use.
"""
_OWN = """\
## Models that we run

An effort is a share of the output limit, enforced to the token. At least a quarter of the limit,
and at least 256 tokens where that is no more than half of it, is kept for the answer. A model that
must think refuses `none` with 400.

In `GET /models` an entry with `reasoning` thinks; `supported_efforts` are the efforts that it
takes, and `null` until the model has been loaded, when it is not known whether it thinks. An entry
without `reasoning` does not think by itself.
"""
_REPLIES = """\
## In the reply

Whatever a provider calls it (`reasoning_content`, `reasoning`, `reasoning_details`, parts of the
content, text inside tags), reasoning goes out as `reasoning_content`, before the answer. Doors with
the object `reasoning` say it as `reasoning` and in the blocks of `reasoning_details` too. With
`exclude` no name of it is in the reply; providers are never asked to leave it out, because a reply
that breaks off could not be continued without it.

## In the history

Send the assistant's message back as it came. Each provider gets its earlier reasoning in its own
form (the table of [dialects](dialects.md) says which). Blocks that only their provider can read, or
that it has signed, are sent back to kinds of servers that make such blocks and to no others; of
the rest only the text is passed on. A call without its reasoning gets a space for DeepSeek, which
refuses it otherwise. What a provider puts alongside a call (`extra_content`, where Gemini's
signatures are) stays there and goes back to servers of dialect `generic`; doors with the object
`reasoning` say it in a block too, for clients that keep blocks only.
"""
_SERVERS = f"""\
## What other servers are sent

Whatever is rewritten or dropped is named in the response header `x-request-changes`, the last
column. Where a server knows words of effort and no budget, `reasoning.max_tokens` becomes the
greatest effort whose share of the output limit (of {ASSUMED_OUTPUT_LIMIT:,} tokens where none
is given) is within it. `thinking_token_budget` is a promise about a number, and refused there.
A model may know fewer words than its server: what it really heeds is measured by `causerie probe`.
"""
_HIDDEN = frozenset({"model", "messages", "max_tokens", "max_completion_tokens"})
_ENABLE = "enable_thinking"
ASKED: tuple[Mapping[str, object], ...] = (
    {"reasoning": {"enabled": True}},
    {"reasoning": {"enabled": False}},
    *({"reasoning": {"effort": effort}} for effort in EFFORTS),
    {"reasoning": {"max_tokens": 2000}},
    {"reasoning": {"max_tokens": 2000}, "max_tokens": 3000},
    {"reasoning": {"exclude": True}},
    {"reasoning": {"effort": "low", "exclude": True}},
    {"reasoning_effort": "high"},
    {"reasoning_effort": "none"},
    {"thinking_token_budget": 2000},
    {"thinking_token_budget": 0},
    {"reasoning_effort": "low", "thinking_token_budget": 2000},
    {"include_reasoning": False},
    {"chat_template_kwargs": {_ENABLE: True}},
    {"chat_template_kwargs": {_ENABLE: False}},
)
"""The ways to ask that the page shows."""


def reasoning_page() -> str:
    """The whole page."""
    return "\n".join(
        [
            _INTRODUCTION,
            _OWN,
            _table(("effort", "share of the output limit"), _shares()),
            _REPLIES,
            _SERVERS,
            *(_section(dialect) for dialect in DIALECTS.values()),
        ]
    )


def said_to(dialect: Dialect, asked: Mapping[str, object]) -> tuple[Mapping[str, object], str]:
    """The fields about thinking that such a server is sent, and the changes as the header has them.

    Raises :class:`InvalidRequest` where it cannot be said to it.
    """
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **asked}
    request = parse(msgspec.json.encode(body), ParsingRules(reasoning_object=True))
    out = outgoing(request, dialect, "m")
    sent = msgspec.json.decode(out.body)
    fields = {name: value for name, value in sent.items() if name not in _plumbing(dialect)}
    changes = [change for change in out.changes if not change.startswith("max_")]
    return fields, ", ".join(changes)


def _plumbing(dialect: Dialect) -> frozenset[str]:
    return _HIDDEN | ({"stream", "stream_options"} if dialect.streams else frozenset())


def _shares() -> Iterable[tuple[str, str]]:
    for effort in EFFORTS:
        yield f"`{effort}`", f"{EFFORT_SHARES[effort]:.0%}" if EFFORT_SHARES[effort] else "off"


def _section(dialect: Dialect) -> str:
    rows = (_row(dialect, asked) for asked in ASKED)
    table = _table(("asked", "sent", "changes"), rows)
    return f"### `{dialect.name}`: {dialect.server}\n\n{table}"


def _row(dialect: Dialect, asked: Mapping[str, object]) -> tuple[str, str, str]:
    try:
        fields, changes = said_to(dialect, asked)
    except InvalidRequest as refusal:
        return _shown(asked), f"400, `{refusal.param}`", ""
    return _shown(asked), _shown(fields) or "nothing", f"`{changes}`" if changes else ""


def _shown(fields: Mapping[str, object]) -> str:
    return ", ".join(f"`{name}: {json.dumps(value)}`" for name, value in fields.items())


def _table(titles: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [titles, ("---",) * len(titles), *rows]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)


if __name__ == "__main__":
    sys.stdout.write(reasoning_page())
