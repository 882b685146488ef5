"""Responses of a model that this service runs: grammars of custom tools hold."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI
from servicekit import ServiceView, service_view

CONFIG = """
[[models]]
id = "own"
ref = "{weights}"
"""
LARK = 'start: "say: " /[a-z]{3,8}/ LF "\\"end\\""\n%import common.LF'


@pytest.fixture
async def service(tiny_gguf: Path, tmp_path: Path) -> AsyncIterator[ServiceView]:
    async with service_view(tmp_path, CONFIG.format(weights=tiny_gguf)) as there:
        yield there


def custom(name: str, syntax: str, definition: str) -> Any:
    form = {"type": "grammar", "syntax": syntax, "definition": definition}
    return {"type": "custom", "name": name, "description": "Says it.", "format": form}


async def test_grammars_of_custom_tools_hold(service: ServiceView) -> None:
    async with AsyncOpenAI(base_url=f"{service.root}/v1", api_key="x", max_retries=0) as client:
        for tool, expected in (
            (custom("speak", "lark", LARK), r'say: [a-z]{3,8}\n"end"'),
            (custom("number", "regex", r"[0-9]{2,4}"), r"[0-9]{2,4}"),
        ):
            raw = await client.responses.with_raw_response.create(
                model="own",
                input="Use the tool.",
                tools=[tool],
                tool_choice={"type": "custom", "name": tool["name"]},
                max_output_tokens=120,
                extra_body={"seed": 1},
            )
            reply = raw.parse()
            assert reply.status == "completed"
            [call] = reply.output
            assert call.type == "custom_tool_call"
            assert call.name == tool["name"]
            assert re.fullmatch(expected, call.input), call.input
            assert "x-request-changes" not in raw.headers
