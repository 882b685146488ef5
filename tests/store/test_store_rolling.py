"""An upgrade goes replica by replica: the version before still runs on the tables of the next.

A migration may add what the version before can ignore (expand). What it removes or demands has to
wait until no version that knows the old form runs any more (contract).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hostedkit import config
from sqlalchemy import Connection, inspect, text
from upgradekit import migrate, next_version

from causerie.hosted.store.database import Database

Tables = Mapping[str, Mapping[str, Any]]


def described(connection: Connection) -> Tables:
    """Return what statements depend on: columns, and the rules that a row has to meet."""
    found = inspect(connection)
    tables = {}
    for name in found.get_table_names():
        unique = [tuple(one["column_names"]) for one in found.get_unique_constraints(name)]
        unique += [tuple(one["column_names"]) for one in found.get_indexes(name) if one["unique"]]
        tables[name] = {
            "columns": {one["name"]: one for one in found.get_columns(name)},
            "key": found.get_pk_constraint(name)["constrained_columns"],
            "rules": {
                *(f"unique {one}" for one in unique),
                *(f"check {one['sqltext']}" for one in found.get_check_constraints(name)),
                *(
                    f"reference {one['constrained_columns']}"
                    for one in found.get_foreign_keys(name)
                ),
            },
        }
    return tables


def breaking(before: Tables, after: Tables) -> Iterator[str]:
    """Yield what statements of the version before would fail at, or would not mean any more."""
    for name, old in before.items():
        new = after.get(name)
        if new is None:
            yield f"{name} is gone"
            continue
        if old["key"] != new["key"]:
            yield f"{name} has another primary key"
        yield from (f"{name} has the new rule {rule}" for rule in new["rules"] - old["rules"])
        for column, was in old["columns"].items():
            now = new["columns"].get(column)
            if now is None:
                yield f"{name}.{column} is gone"
            elif str(was["type"]) != str(now["type"]):
                yield f"{name}.{column} is {now['type']}, was {was['type']}"
            elif was["nullable"] and not now["nullable"]:
                yield f"{name}.{column} must not be null any more"
        for column in new["columns"].keys() - old["columns"].keys():
            added = new["columns"][column]
            if not added["nullable"] and added["default"] is None:
                yield f"{name}.{column} is demanded, and the version before does not give it"


async def tables(database: Database) -> Tables:
    async with database.reading() as connection:
        return await connection.run_sync(described)


async def test_migrations_only_add_what_the_version_before_can_ignore(
    database: Database, made_url: str, tmp_path: Path
) -> None:
    """Of a made-up next version, while there is no release before this one."""
    was = await tables(database)
    (tmp_path / "causerie.toml").write_text(config(url=made_url))
    migrate(next_version(tmp_path), tmp_path)
    now = await tables(database)
    assert now["projects"]["columns"].keys() - was["projects"]["columns"].keys() == {"cost_centre"}
    assert list(breaking(was, now)) == []


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("DROP TABLE configuration_entries", "configuration_entries is gone"),
        ("ALTER TABLE usage_records DROP COLUMN cache_miss", "usage_records.cache_miss is gone"),
        ("CREATE UNIQUE INDEX one ON projects (name)", "projects has the new rule unique"),
        ("ALTER TABLE projects RENAME COLUMN name TO title", "projects.name is gone"),
        ("ALTER TABLE projects ALTER COLUMN recording_days SET NOT NULL", "must not be null"),
        ("ALTER TABLE projects ALTER COLUMN created_at TYPE TEXT", "is TEXT, was BIGINT"),
        ("ALTER TABLE projects ADD COLUMN owner TEXT NOT NULL", "does not give it"),
    ],
)
async def test_what_the_version_before_would_fail_at_is_found(
    database: Database, statement: str, says: str
) -> None:
    if database.sqlite and ("ALTER COLUMN" in statement or "ADD COLUMN" in statement):
        pytest.skip("SQLite cannot alter so")
    was = await tables(database)
    async with database.writing() as connection:
        await connection.execute(text(statement))
    assert any(says in each for each in breaking(was, await tables(database)))
