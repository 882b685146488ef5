"""Probing and explaining in a whole service, by the management API: file, reload and requests."""

from __future__ import annotations

import asyncio
import tomllib
from pathlib import Path
from typing import Any

from operationskit import MARKET, provider
from servicekit import ServiceView, service_view

from causerie.cli.keys import digest_line, new_key

OPERATOR = new_key()
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
CONFIG = f"""\
[store]
folder = "data"
[console]
operator_keys = ["{digest_line(OPERATOR)}"]
[[doors]]
name = "hosted"
kind = "hosted"
"""


async def send(running: ServiceView, path: str, body: object) -> tuple[int, Any]:
    headers = {"authorization": f"Bearer {OPERATOR}"}
    url = f"{running.root}/api{path}"
    async with running.session.post(url, json=body, headers=headers) as response:
        return response.status, await response.json()


async def ended(running: ServiceView) -> Any:
    """Return the result of the running probe."""
    async with asyncio.timeout(60):
        while True:
            status, probe = await running.get("/api/providers/north/probe", OPERATOR)
            assert status == 200
            if probe["state"] != "asking":
                return probe
            await asyncio.sleep(0.05)  # asked as a program would


async def test_what_is_probed_and_put_into_the_file_is_held_to(tmp_path: Path) -> None:
    async with provider() as (base_url, heads):
        market = MARKET.format(north=base_url, south=base_url)
        async with service_view(tmp_path, CONFIG + market) as running:
            status, listed = await running.get("/api/providers", OPERATOR)
            assert status == 200
            assert [one["name"] for one in listed["data"]] == ["north", "south"]
            assert (await running.get("/api/providers/north/probe", OPERATOR))[0] == 404

            for number in range(6):
                session = f"conversation {number}"
                asked = {"model": "a/m", "messages": [{"role": "user", "content": "Hi"}]}
                question = {"door": "router", "request": asked, "session": session}
                status, told = await send(running, "/routes/explain", question)
                assert status == 200
                _, headers, _ = await running.ask("/router/v1", "a/m", session_id=session)
                assert headers["x-served-by"] == told["goes_to"]

            before = len(heads)
            status, begun = await send(running, "/providers/north/probe", {"model": "m"})
            assert (status, begun["state"]) == (201, "asking")
            probe = await ended(running)
            assert (probe["state"], probe["asked"]) == ("done", probe["questions"])
            assert len(heads) - before == probe["requests"] + 1

            status, used = await send(running, "/providers/north/probe/use", {"model": "m"})
            assert (status, used["written"], used["in_force"]) == (200, False, False)
            text = running.file.read_text(encoding="utf-8")
            start = text.index("[[providers.models]]")
            end = text.index("\n\n", start)
            running.file.write_text(text[:start] + used["by_hand"] + text[end:], encoding="utf-8")
            assert not (await running.reload()).problems
            written = tomllib.loads(running.file.read_text(encoding="utf-8"))
            assert "tools" not in written["providers"][0]["models"][0]["supported_parameters"]
            status, _, refused = await running.ask(
                "/router/v1", "a/m", tools=[TOOL], provider={"only": ["north"]}
            )
            assert (status, refused["error"]["code"]) == (400, "unsupported_parameter")
            _, log = await running.get("/api/audit", OPERATOR)
            assert [one["action"] for one in log["data"]][:1] == ["provider.probe"]
            begun_again = await send(running, "/providers/north/probe", {"model": "m"})
            assert begun_again[0] == 201  # which ends with the service
