"""The console over a world with a history, its models answered by a script."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from accountkit import PASSWORD, World
from consolekit import OneModel, Place, ScriptedServiceView, console_of
from ledgerkit import record

from causerie.access.allowed import AccessRule, Permissions
from causerie.engines.base import EngineState, EngineStatus
from causerie.hosted.accounts.people import Project, User
from causerie.hosted.console.service_view import DoorView, ModelVerdict
from causerie.hosted.store.usage import SqlUsage
from causerie.metering.ledger import UsageRecord
from causerie.routing.target_state import TargetStatus

LONG = "an-organisation-with-a-long-name/a-model-with-a-name-that-no-column-has-room-for-Q4_K_M"
ALL = (
    *("temperature", "top_p", "max_tokens", "max_completion_tokens", "seed", "stop", "tools"),
    *("tool_choice", "response_format", "reasoning_effort", "chat_template_kwargs", "logprobs"),
    *("presence_penalty", "frequency_penalty", "top_k", "min_p", "parallel_tool_calls", "model"),
)


def entry(id: str, parameters: Sequence[str] = ALL, **more: Any) -> dict[str, Any]:
    """A model of the catalog."""
    return {
        "id": id,
        "name": id,
        "description": "",
        "context_length": 32768,
        "architecture": {"input_modalities": ["text"]},
        "pricing": {"prompt": "0.00000015", "completion": "0.0000006"},
        "supported_parameters": sorted(parameters),
        "evidence": "measured",
        "reasoning": {"supported_efforts": ["high", "medium", "low"], "mandatory": False},
        **more,
    }


class Shop(ScriptedServiceView):
    """A service with a few models, and targets in every state."""

    def __init__(self) -> None:
        super().__init__()
        self.open_doors = [DoorView("hosted", "/hosted/v1")]
        must = {"supported_efforts": ["high", "low"], "mandatory": True}
        self.entries = [
            entry("small", description="Quick, for everyday questions."),
            entry(
                "thinker",
                reasoning=must,
                default_parameters={"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.0},
            ),
            entry(
                LONG,
                ("temperature", "max_tokens"),
                pricing={"prompt": "0", "completion": "0"},
                reasoning=None,
            ),
        ]
        self.values = [
            EngineStatus("small", EngineState.READY, slots=4, busy=1),
            EngineStatus("thinker", EngineState.LOADING, progress=0.4),
        ]
        self.target_states = [
            TargetStatus("near/small", "down", 0, 5, 12.0, "connect_failed"),
            TargetStatus(f"far/{LONG}", "up", 2, 0, 0.0, ""),
        ]

    def models(
        self, door: str | None = None, rules: Sequence[AccessRule] = ()
    ) -> Sequence[Mapping[str, Any]]:
        return self.entries

    def verdicts(self, rules: Sequence[AccessRule]) -> Sequence[ModelVerdict]:
        permissions, ids = Permissions(rules), [str(each["id"]) for each in self.entries]
        judged = [(id, permissions.verdict(OneModel(id)).refusal) for id in ids]
        return [ModelVerdict(id, refusal, [id], ["causerie"]) for id, refusal in judged]

    def answering(self, model: str) -> Sequence[str]:
        return {"small": ["small", "near/small"], LONG: [f"far/{LONG}"]}.get(model, [model])

    def targets(self) -> Sequence[TargetStatus]:
        return self.target_states


def made_up(
    project: Project, users: Sequence[User], keys: Sequence[str], now: datetime
) -> list[UsageRecord]:
    """A month of requests, some of which went wrong in the ways that requests do."""
    end = int(now.astimezone(UTC).timestamp()) * 1_000_000
    made = []
    for n in range(600):
        ago = n * n * 7 % (29 * 24 * 60)
        usual: dict[str, Any] = {
            "request_id": f"req-{n:04}",
            "at": end - ago * 60_000_000 - n * 1000,
            "project": project.id,
            "key": keys[n % len(keys)] if n % 7 else "",
            "user": users[n % len(users)].id,
            "model": ["small", "thinker", LONG][n % 5 % 3],
            "prompt": 50 + n * 13 % 900,
            "completion": 20 + n * 29 % 700,
            "cost": n % 97 * 200_000,
            "first_token_us": 60_000 + n * 7919 % 900_000,
            "duration_us": 1_000_000 + n * 104_729 % 9_000_000,
            "stream": n % 2 == 0,
            "operation": ("chat", "responses", "messages")[n % 11 % 3],
        }
        made.append(record(**(usual | _ending(n))))
    return made


def _ending(n: int) -> dict[str, Any]:
    fine = {"tried": (), "reason": "", "param": None, "continued": 0, "estimated": False}
    if n % 23 == 4:
        return fine | {
            "status": 429,
            "code": "requests",
            "finish": None,
            "served_by": "",
            "attempts": 0,
            "first_token_us": None,
            "prompt": 0,
            "completion": 0,
            "duration_us": 900,
            "reason": "The key may make 60 requests per minute and has made 60. Try again in 7 s.",
        }
    if n % 31 == 7:
        return fine | {
            "status": 502,
            "code": "bad_gateway",
            "finish": None,
            "attempts": 2,
            "tried": ("near/small: upstream_timeout", "far/small: bad_gateway"),
            "served_by": "far/small",
            "reason": "The provider does not answer.",
            "first_token_us": None,
            "completion": 0,
        }
    if n % 37 == 9:
        return fine | {"status": 400, "code": "invalid_value", "param": "messages[0].role"}
    if n % 29 == 3:
        return fine | {"status": 499, "code": "client_gone", "finish": None}
    if n % 11 == 5:
        tried = ("near/small: engine_loading", "small: answered")
        return fine | {"tried": tried, "attempts": 2, "queue_us": 30_000, "estimated": True}
    return fine | {"finish": ["stop", "length", "tool_calls"][n % 3]}


@dataclass
class Team:
    """A project, and people in every role."""

    project: Project
    owner: User
    member: User
    viewer: User
    outsider: User
    operator: User

    @property
    def path(self) -> str:
        """Of its pages."""
        return f"/projects/{self.project.id}"


async def a_team(world: World) -> Team:
    """With passwords."""
    people = {
        name: await world.person(name, password=PASSWORD, operator=name == "operator")
        for name in ("owner", "member", "viewer", "outsider", "operator")
    }
    project = await world.project(
        owner=people["owner"], member=people["member"], viewer=people["viewer"]
    )
    return Team(project, **people)


async def with_history(world: World, team: Team) -> list[UsageRecord]:
    """A month of requests."""
    keys = [
        (await world.key(team.project, team.owner, name=name)).key.id
        for name in ("website", "nightly batch", "a key with a name that goes on and on and on")
    ]
    made = made_up(team.project, [team.owner, team.member], keys, world.now)
    await SqlUsage(world.database).append(made)
    return made


@pytest.fixture
async def shop(lite: World) -> AsyncIterator[Place]:
    """A console over a service with models."""
    async with console_of(lite, service_view=Shop()) as served:
        yield served


@pytest.fixture
async def team(lite: World) -> Team:
    """People in every role."""
    return await a_team(lite)
