"""Databases for tests: both kinds, each new and empty for each test."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from postgres import programs, server
from sqlalchemy.ext.asyncio import create_async_engine

from causerie.store.database import Database
from causerie.store.schema import upgrade

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres_socket() -> Iterator[str]:
    """The folder of the socket of a server that ends with the tests."""
    bin = programs()
    if bin is None:
        pytest.skip("no PostgreSQL server here; `make postgres` installs one")
    with server(bin) as folder:
        yield folder


async def _made(socket: str) -> str:
    """The address of a new database."""
    name = f"test_{next(_numbers)}"
    address = f"postgresql://causerie@/{{}}?host={socket}"
    engine = create_async_engine(
        address.format("postgres").replace("://", "+asyncpg://"), isolation_level="AUTOCOMMIT"
    )
    async with engine.connect() as connection:
        await connection.exec_driver_sql(f"CREATE DATABASE {name}")
    await engine.dispose()
    return address.format(name)


@pytest.fixture(params=["sqlite", "postgresql"])
async def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database, of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'causerie.db'}"
    return await _made(request.getfixturevalue("postgres_socket"))


@pytest.fixture
async def bare(store_url: str) -> AsyncIterator[Database]:
    """A database without tables."""
    database = Database(store_url)
    yield database
    await database.close()


@pytest.fixture
async def database(bare: Database) -> Database:
    """A database with all tables."""
    await upgrade(bare)
    return bare
