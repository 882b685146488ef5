"""A service with thousands of keys, people, projects and requests, written straight into tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from accountkit import World
from sqlalchemy import Table, text

from causerie.hosted.accounts.people import Project, Role, User
from causerie.hosted.store.tables import (
    api_keys,
    audit,
    budgets,
    limits,
    memberships,
    one_time_links,
    projects,
    sessions,
    usage_apps,
    usage_daily,
    usage_first_token,
    usage_hourly,
    users,
)

MANY = 3000
RECORDS = 200_000
_HOUR = 3_600_000_000
_DAY = 24 * _HOUR
_AT_ONCE = 10_000
_INTERVALS = 4
_COUNTED = dict.fromkeys(
    (
        *("requests", "refused", "failed", "aborted", "prompt", "cached", "completion"),
        *("reasoning", "first_token_us", "first_tokens", "duration_us", "charged"),
    ),
    7,
)
_RECORDS = """
INSERT INTO usage_records (id, request_id, at, project_id, key_id, user_id, door, model, served_by,
  stream, status, attempts, prompt, cached, completion, reasoning, cost, queue_us, duration_us)
WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count})
SELECT {id}, 'req-' || n, {now} - n * CAST(1000000 AS BIGINT), '{project}', 'ck_' || n % {many},
  '{user}', 'hosted', 'model-' || n % 50, 'far', true, CASE WHEN n % 10 = 0 THEN 502 ELSE 200 END,
  1, 10, 0, 20, 0, 5, 0, 1000 FROM numbers
"""
_IDS = {
    True: "printf('%032x', n)",
    False: "CAST(lpad(to_hex(n), 32, '0') AS uuid)",
}


@dataclass(frozen=True, slots=True)
class Crowd:
    """One project that holds nearly everything, and somebody who may see all of it."""

    project: Project
    operator: User


async def crowded(world: World) -> Crowd:
    """Fill the database."""
    operator = await world.person("ada", operator=True)
    project = await world.project(owner=operator)
    crowd = Crowd(project, operator)
    await _fill(world, users, _users(world))
    await _fill(world, memberships, _members(world, crowd))
    await _fill(world, projects, _projects(world))
    for n in range(0, MANY, 10):  # the operator is in many of them
        await _fill(world, memberships, [_member(f"prj_{n}", operator.id, "owner", world)])
    await _fill(world, api_keys, _keys(world, crowd))
    await _fill(world, limits, ({"owner": f"key:ck_{n}", **_limit()} for n in range(MANY)))
    await _fill(world, budgets, ({"owner": f"key:ck_{n}", **_budget()} for n in range(MANY)))
    await _fill(world, one_time_links, _invitations(world, crowd))
    await _fill(world, audit, _audit(world, crowd))
    await _fill(world, sessions, _sessions(world, crowd))
    await _used(world, crowd)
    return crowd


async def _fill(world: World, table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
    every = list(rows)
    async with world.database.writing() as connection:
        for first in range(0, len(every), _AT_ONCE):
            await connection.execute(table.insert(), every[first : first + _AT_ONCE])


def _users(world: World) -> Iterable[dict[str, Any]]:
    for n in range(MANY):
        yield {
            "id": f"usr_{n}",
            "email": f"person{n}@example.org",
            "name": f"Person {n}",
            "operator": False,
            "created_at": world.now,
        }


def _member(project: str, user: str, role: str, world: World) -> dict[str, Any]:
    return {"project_id": project, "user_id": user, "role": role, "since": world.now}


def _members(world: World, crowd: Crowd) -> Iterable[dict[str, Any]]:
    for n in range(MANY):
        yield _member(crowd.project.id, f"usr_{n}", list(Role)[n % 4], world)


def _projects(world: World) -> Iterable[dict[str, Any]]:
    for n in range(MANY):
        yield {"id": f"prj_{n}", "name": f"Project {n}", "created_at": world.now}


def _keys(world: World, crowd: Crowd) -> Iterable[dict[str, Any]]:
    for n in range(MANY):
        yield {
            "id": f"ck_{n}",
            "project_id": crowd.project.id,
            "created_by": crowd.operator.id,
            "person": crowd.operator.id,
            "name": f"Key {n}",
            "purpose": "inference",
            "models": frozenset({f"model-{n % 50}", "small"}),
            "created_at": world.now - timedelta(seconds=n),
            "expires_at": world.now + timedelta(days=n + 1),
        }


def _limit() -> dict[str, Any]:
    return {"model": "", "requests_per_minute": 60}


def _budget() -> dict[str, Any]:
    return {"model": "", "unit": "money", "period": "month", "amount": 10**11}


def _invitations(world: World, crowd: Crowd) -> Iterable[dict[str, Any]]:
    for n in range(2 * MANY):
        yield {
            "id": f"inv_{n}",
            "kind": "invitation",
            "digest": b"%032d" % n,
            "email": f"guest{n}@example.org",
            "project_id": crowd.project.id if n % 2 else None,
            "role": "member" if n % 2 else None,
            "operator": False,
            "created_by": crowd.operator.id,
            "person": crowd.operator.id,
            "created_at": world.now,
            "expires_at": world.now + timedelta(days=7),
        }


def _audit(world: World, crowd: Crowd) -> Iterable[dict[str, Any]]:
    for n in range(RECORDS // 10):
        yield {
            "at": world.now - timedelta(seconds=n),
            "actor": f"user:usr_{n % MANY}",
            "actor_name": f"Person {n % MANY}",
            "action": "key.create",
            "project_id": crowd.project.id,
            "subject": f"ck_{n % MANY}",
            "details": {"name": f"Key {n}"},
        }


def _sessions(world: World, crowd: Crowd) -> Iterable[dict[str, Any]]:
    for n in range(MANY):
        yield {
            "id": f"ses_{n}",
            "digest": b"s%031d" % n,
            "user_id": crowd.operator.id,
            "stage": "open",
            "created_at": world.now,
            "seen_at": world.now,
            "expires_at": world.now + timedelta(days=7),
            "address": "127.0.0.1",
            "agent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
        }


async def _used(world: World, crowd: Crowd) -> None:
    now = int(world.now.timestamp()) * 1_000_000
    hour, day = now - now % _HOUR, now - now % _DAY
    for table, start, span in ((usage_hourly, hour, _HOUR), (usage_daily, day, _DAY)):
        await _fill(world, table, _sums(crowd, start, span))
    await _fill(world, usage_apps, _apps(crowd, hour))
    await _fill(world, usage_first_token, _first_tokens(crowd, hour))
    filled = _RECORDS.format(
        count=RECORDS,
        id=_IDS[world.database.sqlite],
        now=now,
        project=crowd.project.id,
        user=crowd.operator.id,
        many=MANY,
    )
    async with world.database.writing() as connection:
        await connection.execute(text(filled))
        await connection.execute(text("ANALYZE"))  # as a database that grows does by itself


def _sums(crowd: Crowd, start: int, span: int) -> Iterable[dict[str, Any]]:
    """Each key in a few intervals."""
    for n in range(MANY * _INTERVALS):
        yield {
            "project_id": crowd.project.id,
            "start": start - n // MANY * span,
            "key_id": f"ck_{n % MANY}",
            "user_id": f"usr_{n % MANY}",
            "model": f"model-{n % 50}",
            "door": "hosted",
            "cost": Decimal("0.001234567"),
            **_COUNTED,
        }


def _apps(crowd: Crowd, start: int) -> Iterable[dict[str, Any]]:
    for n in range(MANY * _INTERVALS):
        yield {
            "project_id": crowd.project.id,
            "start": start - n % _INTERVALS * _HOUR,
            "app": f"App {n}",
            "model": f"model-{n % 50}",
            "cost": Decimal("0.001234567"),
            **_COUNTED,
        }


def _first_tokens(crowd: Crowd, start: int) -> Iterable[dict[str, Any]]:
    for n in range(MANY * _INTERVALS):
        yield {
            "project_id": crowd.project.id,
            "start": start - n // MANY * _HOUR,
            "model": f"model-{n % 50}",
            "key_id": f"ck_{n % MANY}",
            "user_id": f"usr_{n % MANY}",
            "bucket": 20 + n % 30,
            "requests": 3,
        }
