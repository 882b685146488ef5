"""Calls that endpoints deliver are classed, in the catalog and in the metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from faultkit import Call, Reply, upstream
from servicekit import ServiceView, service_view
from waiting import eventually

R = "/router/v1"
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "required": ["city"], "properties": {"city": {}}},
    },
}


def config(north: str, south: str) -> str:
    endpoints = "".join(
        f"""\
[[providers]]
name = "{name}"
base_url = "{url}"
[providers.health]
path = ""

[[catalog]]
id = "acme/{name}"
[[catalog.endpoints]]
provider = "{name}"
model = "m"
price = {{ prompt = "1", completion = "3" }}

"""
        for name, url in (("north", north), ("south", south))
    )
    return f'[[doors]]\nname = "router"\nkind = "router"\nkeys = "off"\n\n{endpoints}'


async def counts(there: ServiceView, model: str) -> Any:
    status, shown = await there.get(f"{R}/models/{model}/endpoints")
    assert status == 200, shown
    return shown["data"]["endpoints"][0]["tool_calls_last_1d"]


async def test_calls_are_classed_by_endpoint(tmp_path: Path) -> None:
    good, bad = Call("weather", '{"city": "Bonn"}'), Call("weather", "{}", "call_2")
    async with (
        upstream([Reply("Hi"), Reply("", calls=(good, bad))]) as north,
        upstream([Reply("", calls=(good,))]) as south,
        service_view(tmp_path, config(north.base_url, south.base_url)) as there,
    ):
        status, _, _ = await there.ask(R, "acme/north")  # offered no tools: nothing is checked
        assert status == 200
        assert await counts(there, "acme/north") is None
        status, _, answer = await there.ask(R, "acme/north", tools=[TOOL])
        assert status == 200
        assert len(answer["choices"][0]["message"]["tool_calls"]) == 2
        status, _, _ = await there.ask(R, "acme/south", tools=[TOOL])
        assert status == 200

        async def checked() -> bool:
            found = [await counts(there, model) for model in ("acme/north", "acme/south")]
            return None not in found

        await eventually(checked, 10)
        assert await counts(there, "acme/north") == {
            "fine": 1, "invalid_json": 0, "unknown_name": 0, "schema_mismatch": 1, "unchecked": 0,
        }  # fmt: skip
        assert (await counts(there, "acme/south"))["fine"] == 1
        async with there.session.get(f"{there.root}/metrics") as response:
            told = await response.text()
    for name in ("fine", "schema_mismatch"):
        assert f'causerie_tool_calls_total{{class="{name}",target="north/m"}} 1.0' in told
    assert 'class="fine",target="south/m"} 1.0' in told
