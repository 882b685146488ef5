"""Secrets of people at rest: nobody who has the database has them, and keys can change."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest
from accountkit import PASSWORD, SEAL, World
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select

from causerie.composition.account_backend import opened, sealed
from causerie.composition.entries import refuse_unreadable
from causerie.composition.startup import CannotStart
from causerie.errors import StoreUnavailable
from causerie.hosted.accounts import passwords
from causerie.hosted.accounts.encryption import Cipher, WrongKey, key_of_file, new_key
from causerie.hosted.accounts.operating import Entries, EntryChange
from causerie.hosted.accounts.people import SYSTEM, User
from causerie.hosted.accounts.records import EntryDraft
from causerie.hosted.accounts.tokens import SessionClient
from causerie.hosted.store.accounts import SqlStore
from causerie.hosted.store.database import Database
from causerie.hosted.store.encrypted import seal_secrets
from causerie.hosted.store.tables import totp as table
from causerie.settings.credentials import read_credentials
from causerie.settings.load import load
from causerie.settings.problems import SettingsError
from causerie.settings.store import StoreSettings

ONE, TWO = "one" * 11, "two" * 11


@given(st.text(), st.text())
def test_what_is_sealed_opens_again_for_its_purpose_only(secret: str, purpose: str) -> None:
    seal = Cipher([ONE])
    found = seal.seal(secret, purpose)
    assert seal.open(found, purpose) == secret
    assert seal.seal(secret, purpose) != found
    for wrong, other in ((seal, purpose + "x"), (Cipher([TWO]), purpose), (Cipher(()), purpose)):
        with pytest.raises(WrongKey):
            wrong.open(found, other)


def test_what_was_changed_does_not_open() -> None:
    seal = Cipher([ONE])
    found = seal.seal("secret", "p")
    version, name, text = found.split(".")
    changed = text[:20] + ("A" if text[20] != "A" else "B") + text[21:]
    for wrong in (
        f"2.{name}.{text}",
        f"{version}.{name}.{changed}",
        f"{version}.{name}.",
        "",
        "1.",
    ):
        with pytest.raises(WrongKey):
            seal.open(wrong, "p")
    with pytest.raises(WrongKey):
        Cipher(()).seal("secret", "p")
    with pytest.raises(ValueError, match="at least 32"):
        Cipher(["short"])


async def enrolled(world: World) -> tuple[User, str]:
    user = await world.person("ada", password=PASSWORD)
    secret = (await world.profile.enrol(user, "Causerie")).secret
    code = passwords.totp_code_at(secret, int(world.now.timestamp()) // 30)
    await world.profile.confirm(user, code, SessionClient("127.0.0.1", "test"))
    world.later(minutes=2)
    return user, secret


async def kept(database: Database) -> str:
    async with database.reading() as connection:
        found = await connection.execute(select(table.c.secret))
        return str(found.scalar_one())


async def test_no_secret_is_in_the_database(world: World, tmp_path: Path) -> None:
    _, secret = await enrolled(world)
    assert secret not in await kept(world.database)
    assert secret not in content(tmp_path)


def content(folder: Path) -> str:
    """All files of a database: the log alongside it too."""
    files = [file for file in folder.rglob("*.db*") if file.is_file()]
    return "".join(file.read_bytes().decode("latin-1") for file in files)


async def sign_in(world: World, secret: str) -> None:
    half = await world.sign_in.with_password("ada@example.org", PASSWORD, SessionClient())
    code = passwords.totp_code_at(secret, int(world.now.timestamp()) // 30)
    await world.sign_in.with_code(half.token, code, SessionClient())


async def test_keys_are_changed_one_after_the_other(world: World, tmp_path: Path) -> None:
    """What the older key encrypted is overwritten in the file, too."""
    _, secret = await enrolled(world)
    before = await kept(world.database)
    if world.database.sqlite:
        assert before in content(tmp_path)
    both = Cipher([ONE, "a-key-of-the-tests-with-some-length-to-it"])
    assert await seal_secrets(world.database, both) == (1, [])
    assert await kept(world.database) != before
    assert before not in content(tmp_path)
    new = Cipher([ONE])
    assert await seal_secrets(world.database, new) == (0, [])
    with pytest.raises(WrongKey, match="two-factor authentication of usr_"):
        await seal_secrets(world.database, SEAL)
    with pytest.raises(StoreUnavailable, match=r"`store\.secret_keys`"):
        await sign_in(world, secret)
    async with SqlStore(world.database, new).reading() as repositories:
        user = await repositories.people.one(email="ada@example.org")
        assert user is not None
        factor = await repositories.factors.find(user.id)
    assert factor is not None
    assert factor.secret == secret


async def test_a_secret_in_anothers_row_does_not_open(world: World) -> None:
    await enrolled(world)
    theirs = await kept(world.database)
    other = await world.person("eve", password=PASSWORD)
    await world.profile.enrol(other, "Causerie")
    async with world.database.writing() as connection:
        await connection.execute(
            table.update().where(table.c.user_id == other.id).values(secret=theirs)
        )
    async with world.store.reading() as repositories:
        with pytest.raises(StoreUnavailable):
            await repositories.factors.find(other.id)


async def test_the_key_file_is_made_once_and_is_nobody_elses(tmp_path: Path) -> None:
    store = StoreSettings(url=f"sqlite:///{tmp_path}/causerie.db", folder=str(tmp_path))
    async with opened(store) as database:
        await asyncio.gather(*(sealed(database, store, ()) for _ in range(4)))
        file = tmp_path / "secret.key"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        key = file.read_text()
        await sealed(database, store, ())
        assert file.read_text() == key
        assert [each.name for each in tmp_path.glob("*.key*")] == ["secret.key"]
        file.chmod(0o640)
        with pytest.raises(CannotStart, match="chmod 600"):
            await sealed(database, store, ())
        file.chmod(0o600)
        file.write_text("lost\n")
        with pytest.raises(CannotStart, match="it holds no key"):
            await sealed(database, store, ())
        with pytest.raises(CannotStart, match="at least 32"):
            await sealed(database, store, ["short"])


def test_another_process_may_make_the_key_first(tmp_path: Path) -> None:
    keys = {key_of_file(tmp_path / "secret.key") for _ in range(3)}
    assert len(keys) == 1
    assert len({new_key() for _ in range(10)}) == 10


async def test_a_service_does_not_start_without_the_key_of_what_is_there(
    world: World, tmp_path: Path
) -> None:
    await enrolled(world)
    store = StoreSettings(folder=str(tmp_path))
    with pytest.raises(CannotStart, match=r"two-factor authentication of usr_.*secret_keys"):
        await sealed(world.database, store, [ONE])


async def test_a_service_does_not_start_with_a_secret_that_is_not_encrypted(
    world: World, tmp_path: Path
) -> None:
    _, secret = await enrolled(world)
    async with world.database.writing() as connection:
        await connection.execute(table.update().values(secret=secret))
    with pytest.raises(CannotStart, match=r"two-factor authentication of usr_"):
        await sealed(world.database, StoreSettings(folder=str(tmp_path)), [ONE])
    assert await kept(world.database) == secret


async def provider_entry(world: World, key: str) -> None:
    entries = Entries(SqlStore(world.database, Cipher([key])))
    draft = EntryDraft("provider", "north", {"base_url": "http://127.0.0.1:1/v1"}, credential="sk")
    await entries.write(SYSTEM, [EntryChange(None, entries.drafted(SYSTEM, draft))])


async def test_a_service_does_not_start_with_a_key_that_opens_no_entry(
    world: World, tmp_path: Path
) -> None:
    """Whatever replica it is, its providers would be missing, and it would answer 404."""
    await provider_entry(world, ONE)
    store = StoreSettings(folder=str(tmp_path))
    with pytest.raises(CannotStart, match=r"provider north; give the right one .*secret_keys"):
        await sealed(world.database, store, [TWO])
    await sealed(world.database, store, [TWO, ONE])
    await sealed(world.database, store, [TWO])  # which everything is encrypted with by now
    with pytest.raises(CannotStart, match="provider north"):
        await sealed(world.database, store, [ONE])
    await sealed(world.database, store, [ONE], complete=False)  # to give it anew


async def test_a_database_without_its_key_file_gets_no_new_one(
    world: World, tmp_path: Path
) -> None:
    store = StoreSettings(folder=str(tmp_path))
    await sealed(world.database, store, ())
    file = tmp_path / "secret.key"
    await provider_entry(world, file.read_text().strip())
    kept = file.rename(tmp_path / "kept")
    with pytest.raises(CannotStart, match=r"secret\.key is missing.*restore the file"):
        await sealed(world.database, store, ())
    assert not file.exists()
    kept.rename(file)
    await sealed(world.database, store, ())


async def test_a_running_service_keeps_its_entries_if_it_cannot_open_new_ones(world: World) -> None:
    await provider_entry(world, ONE)
    for keys, opens in (([ONE], True), ([TWO], False)):
        stored = await Entries(SqlStore(world.database, Cipher(keys))).every()
        if opens:
            refuse_unreadable(stored)
        else:
            with pytest.raises(SettingsError, match='the entry of provider "north"'):
                refuse_unreadable(stored)


def test_keys_in_the_settings(tmp_path: Path) -> None:
    def read(text: str) -> tuple[str, ...]:
        file = tmp_path / "causerie.toml"
        file.write_text(text, encoding="utf-8")
        return read_credentials(load(file=file, environ={}), {"K": ONE, "SHORT": "x"}).store

    (tmp_path / "old").write_text(TWO)
    assert read('[store]\nsecret_keys = [{ env = "K" }, { file = "old" }]\n') == (ONE, TWO)
    for text, words in (
        ('secret_keys = [{ env = "SHORT" }]', "too short"),
        ("secret_keys = [{}]", "has nothing"),
        ('secret_keys = ["inline"]', "stands in the file itself"),
        ('url = "postgresql://localhost/x"', "the same for all replicas"),
    ):
        with pytest.raises(SettingsError, match=words) as caught:
            read(f"[store]\n{text}\n")
        assert "inline" not in str(caught.value)
