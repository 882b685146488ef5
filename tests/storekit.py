"""Databases for tests: both kinds, each new and empty for each test."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from certificates import Certificates
from postgres import PostgresServer, programs, server
from sqlalchemy import Compiled, Connection, Engine, event
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.util import LRUCache

from causerie.hosted.store import migrations
from causerie.hosted.store.database import Database, upgrade

REVISIONS = sorted(
    file.name[1:5] for file in Path(str(migrations.__file__)).parent.glob("versions/r*.py")
)
_numbers = itertools.count(1)


class _Statements(LRUCache[Any, Compiled]):
    """Compiled statements by the kind of database, not by the one database.

    Each test has a database of its own. To compile the same statements for each of them took up to
    a fifth of the time of small tests.
    """

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(_by_kind(key), default)

    def __setitem__(self, key: Any, value: Compiled) -> None:
        super().__setitem__(_by_kind(key), value)


def _by_kind(key: Any) -> tuple[object, ...]:
    dialect, *rest = key
    return dialect.driver, *rest


_statements = _Statements(2000)


@event.listens_for(Engine, "engine_connect")
def _compile_once(connection: Connection) -> None:
    connection.execution_options(compiled_cache=_statements)


@pytest.fixture(scope="session")
def postgres_socket() -> Iterator[str]:
    """The folder of the socket of a server that ends with the tests."""
    bin = programs()
    if bin is None:
        pytest.skip("no PostgreSQL server here; `make postgres` installs one")
    with server(bin) as running:
        yield str(running.folder)


@pytest.fixture(scope="module")
def tls_postgres(certificates: Certificates) -> Iterator[PostgresServer]:
    """A server that speaks TLS only, to whoever does not come by its socket."""
    bin = programs()
    if bin is None:
        pytest.skip("no PostgreSQL server here; `make postgres` installs one")
    with server(bin, certificates) as running:
        yield running


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """One to be stopped."""
    bin = programs()
    if bin is None:
        pytest.skip("no PostgreSQL server here; `make postgres` installs one")
    with server(bin) as running:
        yield running


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with all tables and nothing in them, to be copied."""
    file = tmp_path_factory.mktemp("sqlite") / "template.db"
    _finish(_upgraded(f"sqlite:///{file}"))
    return file


@pytest.fixture(scope="session")
def postgres_template(postgres_socket: str) -> str:
    """The name of a database with all tables and nothing in them."""
    _finish(_create(postgres_socket, "made", "template0"))
    _finish(_upgraded(_address(postgres_socket, "made")))
    return "made"


def _finish(work: Coroutine[Any, Any, None]) -> None:
    """Run it to its end in a loop of its own, also where one runs already."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, work).result()


async def _upgraded(url: str) -> None:
    database = Database(url)
    await upgrade(database)
    await database.close()


def _address(socket: str, name: str) -> str:
    return f"postgresql://causerie@/{name}?host={socket}"


async def _create(socket: str, name: str, template: str) -> None:
    """Copy files, which takes two thirds of what it takes to log them."""
    await _told(socket, f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")


async def _drop(socket: str, name: str) -> None:
    """Gone before it was written to the disk: at the end all together take minutes to remove."""
    await _told(socket, f"DROP DATABASE {name} WITH (FORCE)")


async def _told(socket: str, statement: str) -> None:
    address = _address(socket, "postgres").replace("://", "+asyncpg://")
    engine = create_async_engine(address, isolation_level="AUTOCOMMIT")
    async with engine.connect() as connection:
        await connection.exec_driver_sql(statement)
    await engine.dispose()


@asynccontextmanager
async def _new(socket: str, template: str) -> AsyncIterator[str]:
    """The address of a database of its own."""
    name = f"test_{next(_numbers)}"
    await _create(socket, name, template)
    try:
        yield _address(socket, name)
    finally:
        await _drop(socket, name)


@pytest.fixture(params=["sqlite", "postgresql"])
async def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """The address of an empty database, of each kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'causerie.db'}"
        return
    async with _new(request.getfixturevalue("postgres_socket"), "template0") as address:
        yield address


@pytest.fixture(params=["sqlite", "postgresql"])
async def made_url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """The address of a database with all tables and nothing in them, of each kind."""
    if request.param == "sqlite":
        file = tmp_path / "causerie.db"
        shutil.copyfile(request.getfixturevalue("sqlite_template"), file)
        yield f"sqlite:///{file}"
        return
    template = request.getfixturevalue("postgres_template")
    async with _new(request.getfixturevalue("postgres_socket"), template) as address:
        yield address


@pytest.fixture(scope="module")
def hosted_database(postgres_socket: str) -> Iterator[str]:
    """The address of an empty PostgreSQL database, for services in processes of their own."""
    name = f"hosted_{next(_numbers)}"
    _finish(_create(postgres_socket, name, "template0"))
    yield _address(postgres_socket, name)
    _finish(_drop(postgres_socket, name))


@pytest.fixture
async def bare(store_url: str) -> AsyncIterator[Database]:
    """A database without tables."""
    database = Database(store_url)
    yield database
    await database.close()


@pytest.fixture
async def database(made_url: str) -> AsyncIterator[Database]:
    """A database with all tables."""
    database = Database(made_url)
    yield database
    await database.close()
