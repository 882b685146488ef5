"""Reasoning in blocks, as providers send it and need it back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from causerie.protocol import bounded_json

Block = Mapping[str, Any]

MESSAGES_FORMAT = "anthropic-claude-v1"
"""Marks blocks of reasoning that came from the Messages API, as the well-known router does."""

READABLE = {"reasoning.text": "text", "reasoning.summary": "summary"}  # text fields by type
_FOREIGN = "thinking"
_SEAL = "extra_content="
_SEALED = bounded_json.Bounds(values=1_000, exponents=0, tens=0, precise=100)
_PLAIN = frozenset({"type", "text", "index", "format"})


def block_of(text: str) -> dict[str, Any]:
    """Return a block of reasoning text; without its ``format`` readers would miss a signature."""
    return {"type": "reasoning.text", "text": text, "format": "unknown", "index": 0}


def blocks_of(value: object) -> tuple[Block, ...]:
    return tuple(block for block in _select_objects(value) if isinstance(block.get("type"), str))


def text_of(value: object) -> str:
    texts = (block.get("text") or block.get("summary") for block in _select_objects(value))
    return "".join(text for text in texts if isinstance(text, str))


def foreign_block(text: str, signature: str, index: int) -> dict[str, Any]:
    """Return a block of signed reasoning, which only servers of the Messages API can read."""
    block = {"type": _FOREIGN, "thinking": text, "signature": signature}
    return {**block, "format": MESSAGES_FORMAT, "index": index}


def with_foreign(blocks: Iterable[Block]) -> list[Block]:
    """Return blocks for a server that checks signatures: foreign ones become signed text blocks."""
    return [
        {
            **{name: value for name, value in block.items() if name != "thinking"},
            "type": "reasoning.text",
            "text": block.get("thinking"),
        }
        if block["type"] == _FOREIGN
        else block
        for block in blocks
    ]


def unreadable(value: object) -> bool:
    """Return true if sent blocks have reasoning without a text that others can read."""
    return any(block["type"] not in READABLE for block in blocks_of(value))


def are_plain(blocks: Iterable[Block]) -> bool:
    """Return true if the blocks hold nothing but text, so that their text is enough."""
    return all(
        block["type"] == "reasoning.text"
        and block.get("format") in (None, "unknown")
        and {name for name, value in block.items() if value is not None} <= _PLAIN
        for block in blocks
    )


def seal_of(call: str, extra: Mapping[str, Any]) -> Block:
    """Return the data that a provider attached to a call and needs back, as a block."""
    data = _SEAL + msgspec.json.encode(extra).decode()
    return {"type": "reasoning.encrypted", "data": data, "id": call, "format": "unknown"}


def unsealed(value: object) -> tuple[list[Block], dict[str, Mapping[str, Any]]]:
    """Return a client's blocks without :func:`seal_of` ones, and the data of these by call id."""
    blocks: list[Block] = []
    extras: dict[str, Mapping[str, Any]] = {}
    for block in _select_objects(value):
        data = block.get("data")
        if not isinstance(data, str) or not data.startswith(_SEAL):
            blocks.append(block)
            continue
        with suppress(msgspec.DecodeError, UnicodeError, RecursionError):  # then it is lost
            extra: Any = bounded_json.decode(data.removeprefix(_SEAL).encode(), Any, _SEALED)
            if isinstance(extra, dict):
                extras[str(block.get("id"))] = extra
    return blocks, extras


def joined(blocks: Iterable[Block]) -> list[Block]:
    runs: list[list[Block]] = []
    for block in blocks:
        if runs and block["type"] in READABLE and _may_join_run(runs[-1], block):
            runs[-1].append(block)
        else:
            runs.append([block])
    return [run[0] if len(run) == 1 else _join_blocks(run) for run in runs]


def _join_blocks(blocks: Sequence[Block]) -> Block:
    field, made = READABLE[blocks[0]["type"]], dict(blocks[0])
    for block in blocks[1:]:
        made |= {name: value for name, value in block.items() if value is not None}
    return made | {field: "".join([block.get(field) or "" for block in blocks])}


def _select_objects(items: object) -> Iterable[Block]:
    return (one for one in items if isinstance(one, dict)) if isinstance(items, list) else ()


def _may_join_run(run: Sequence[Block], block: Block) -> bool:
    return (
        run[-1]["type"] == block["type"]
        and run[-1].get("index") == block.get("index")
        and block.get("id") in (None, run[0].get("id"))
        and not run[-1].get("signature")
    )
