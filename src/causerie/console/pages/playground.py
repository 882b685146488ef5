"""The playground: the page, and where its script sends the requests that it makes."""

from __future__ import annotations

from causerie.console.catalogue import view
from causerie.console.ports import House
from causerie.console.visit import Visit
from causerie.errors import Forbidden

_TOOLS = """[{
  "type": "function",
  "function": {
    "name": "weather",
    "description": "The weather in a city",
    "parameters": {
      "type": "object",
      "properties": {"city": {"type": "string"}},
      "required": ["city"]
    }
  }
}]"""
_SCHEMA = """{
  "type": "object",
  "properties": {
    "answer": {"type": "string"},
    "sure": {"type": "boolean"}
  },
  "required": ["answer", "sure"],
  "additionalProperties": false
}"""


class PlaygroundPages:
    """A place to try models in."""

    def __init__(self, house: House) -> None:
        self._house = house

    async def show(self, visit: Visit) -> None:
        """``GET /projects/{project}/playground``; ``?model=`` chooses one."""
        await visit.project()
        entries = [view(entry) for entry in self._house.models()]
        wanted = visit.query.get("model")
        chosen = wanted if any(each.id == wanted for each in entries) else ""
        await visit.show(
            "playground.html",
            entries=entries,
            chosen=chosen,
            allowed=await _may_ask(visit),
            doors=[visit.base + door.prefix for door in self._house.doors()],
            example_tools=_TOOLS,
            example_schema=_SCHEMA,
        )

    async def complete(self, visit: Visit) -> None:
        """``POST /projects/{project}/playground``: a chat completion, streamed or whole."""
        view = await visit.accounts.projects.ask(visit.actor, visit.params["project"])
        await self._house.complete(visit.exchange, visit.me, view.project.id)


async def _may_ask(visit: Visit) -> bool:
    try:
        await visit.accounts.projects.ask(visit.actor, visit.params["project"])
    except Forbidden:
        return False
    return True
