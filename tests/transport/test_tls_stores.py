"""TLS to what the service keeps its things in: Valkey, and PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from secrets import token_hex

import pytest
from casekit import each_of
from certificates import Certificates, made
from limitkit import key
from postgres import PostgresServer
from structlog.testing import capture_logs
from valkeyserver import ValkeyServer
from waiting import eventually

from causerie.access.limits import Tokens
from causerie.distributed.connection import DistributedOptions, Replica
from causerie.distributed.limits import DistributedCounters, DistributedLease, LocalLease
from causerie.errors import StoreUnavailable
from causerie.hosted.store.database import Database, WrongAddress, upgrade
from causerie.settings.load import load
from causerie.settings.problems import SettingsError


def counters(url: str, trusted: Path | None) -> DistributedCounters:
    ca_file = None if trusted is None else str(trusted)
    options = DistributedOptions(connect_seconds=10, ca_file=ca_file, prefix=token_hex(4))
    return DistributedCounters(Replica(url, options))


async def test_limits_over_tls(tls_valkey: ValkeyServer, certificates: Certificates) -> None:
    for url in (tls_valkey.url, tls_valkey.url.replace("valkeys:", "rediss:")):
        made = counters(url, certificates.ca)
        async with made.replica.running():
            await made.replica.wait()
            assert isinstance(await made.take([key(concurrent=1)], Tokens), DistributedLease)


async def _why(url: str, trusted: Path | None) -> str:
    made = counters(url, trusted)
    with capture_logs() as lines:

        async def said() -> bool:
            return bool(lines)

        async with made.replica.running():
            await eventually(said)
            assert not made.replica.here
            assert isinstance(await made.take([key(concurrent=1)], Tokens), LocalLease)
    assert "pass of the tests" not in str(lines)
    assert lines[0]["event"] == "limits.store_away"
    return str(lines[0].get("reason"))


async def test_a_certificate_that_is_not_trusted(
    tls_valkey: ValkeyServer, certificates: Certificates
) -> None:
    for trusted in (certificates.other, None):
        why = await _why(tls_valkey.url, trusted)
        assert why.startswith("the certificate is not trusted: ")


async def test_a_certificate_of_another_host(tmp_path: Path) -> None:
    files = made(tmp_path, "elsewhere.example.org")
    server = ValkeyServer(password="pass of the tests", tls=files)
    try:
        server.start()
        assert "not valid for '127.0.0.1'" in await _why(server.url, files.ca)
    finally:
        server.close()


@pytest.mark.full
async def test_a_server_without_tls(own_valkey: ValkeyServer, certificates: Certificates) -> None:
    url = own_valkey.url.replace("valkey:", "valkeys:")
    why = await _why(url, certificates.ca)
    assert why in ("the server does not speak TLS as it should", "None")


def test_the_file_of_certificates_is_checked(tmp_path: Path, certificates: Certificates) -> None:
    file = tmp_path / "causerie.toml"
    (tmp_path / "ca.pem").write_bytes(certificates.ca.read_bytes())
    file.write_text('[shared]\nurl = "valkeys://h:1/0"\nca_file = "ca.pem"\n')
    assert load(file=file, environ={}).settings.shared.ca_file == str(tmp_path / "ca.pem")
    for text, words in (
        ('url = "valkeys://h:1/0"\nca_file = "none.pem"\n', "there is no file"),
        ('url = "valkeys://h:1/0"\nca_file = "causerie.toml"\n', "cannot be used"),
        ('url = "valkey://h:1/0"\nca_file = "ca.pem"\n', "means nothing unless"),
        ('ca_file = "ca.pem"\n', "means nothing unless"),
    ):
        file.write_text(f"[shared]\n{text}")
        with pytest.raises(SettingsError, match=f"shared.ca_file: .*{words}"):
            load(file=file, environ={})


def address(server: PostgresServer, more: str) -> str:
    return f"postgresql://causerie@127.0.0.1:{server.port}/postgres{more}"


async def opens(url: str) -> None:
    database = Database(url)
    try:
        await upgrade(database)
        async with database.reading() as connection:
            found = await connection.exec_driver_sql(
                "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
            )
            assert found.scalar_one() is True
    finally:
        await database.close()


async def test_a_database_over_tls(
    tls_postgres: PostgresServer, certificates: Certificates
) -> None:
    await opens(address(tls_postgres, "?sslmode=require"))
    for mode in ("verify-ca", "verify-full"):
        await opens(address(tls_postgres, f"?sslmode={mode}&sslrootcert={certificates.ca}"))


async def test_a_database_whose_certificate_is_not_trusted(
    tls_postgres: PostgresServer, certificates: Certificates
) -> None:
    for more in ("", f"&sslrootcert={certificates.other}"):
        with pytest.raises(StoreUnavailable, match="certificate of the database is not trusted"):
            await opens(address(tls_postgres, f"?sslmode=verify-full{more}"))
    with pytest.raises(StoreUnavailable):  # the server wants it
        await opens(address(tls_postgres, "?sslmode=disable"))


@each_of(
    ("more", "words"),
    [
        ("?sslmode=sure", "`sslmode` is one of disable, allow,"),
        ("?sslrootcert=/ca.pem", "means nothing without `sslmode=verify-full`"),
        ("?sslmode=require&sslrootcert=/ca.pem", "is not looked at with `sslmode=require`"),
        ("?sslmode=verify-full&sslrootcert=/none.pem", "is not there, or no PEM file"),
        ("?sslmode=verify-full&sslkey=/key.pem", "`sslkey` needs `sslcert`"),
        ("?sslmode=require&sslmode=disable", "more than once"),
    ],
)
def test_an_address_that_says_something_else_of_tls(more: str, words: str) -> None:
    with pytest.raises(WrongAddress, match=words):
        Database(f"postgresql://causerie@h/n{more}")
