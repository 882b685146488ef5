"""``causerie key`` and ``causerie keys``: keys for the configuration, and keys of projects."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from causerie.cli.accounts import day, find_project, with_accounts
from causerie.cli.command import AsJson, Config, Set, WrongUsage, print_found, print_json

if TYPE_CHECKING:
    from causerie.hosted.accounts.accounts import Accounts
    from causerie.hosted.accounts.issuing import KeyDraft, NewKey
    from causerie.hosted.accounts.keys import ApiKey
    from causerie.hosted.accounts.people import Actor
    from causerie.settings.tree import Settings


def key(
    digest: Annotated[
        bool, typer.Option("--digest", help="Read an existing key from stdin; print its digest.")
    ] = False,
) -> None:
    """Make a new key, and the digest that goes into the configuration.

    The key is shown once and kept nowhere; the configuration holds only its
    digest.

    **Examples**

    `causerie key` creates a key

    `pass show llm/key | causerie key --digest` gives the digest of one you have
    """
    if digest:
        found = sys.stdin.readline().strip()
        if not found:
            raise WrongUsage("--digest reads a key from stdin, and there was none")
        typer.echo(digest_line(found))
        return
    made = new_key()
    typer.echo(f"key:    {made}")
    typer.echo(f'digest: "{digest_line(made)}"')
    typer.echo(
        "Give the key to the client. Put the digest into `keys` of a door, or of [server].",
        err=True,
    )


def new_key() -> str:
    """Return a new key ``ck_<public>_<secret>`` with a secret of more than 256 random bits."""
    from causerie.hosted.accounts.tokens import letters, new_token

    return f"ck_{letters(8)}_{new_token()}"


def digest_line(made: str) -> str:
    """Return the line for the configuration: the public part, if there is one, and the SHA-256."""
    found = hashlib.sha256(made.encode()).hexdigest()
    public = re.match(r"(ck_[a-zA-Z0-9]+)_.", made, re.DOTALL)
    return f"{public[1]}:{found}" if public else found


keys = typer.Typer()
Which = Annotated[str, typer.Argument(metavar="KEY", help="Its public part, like ck_5RkT0yQzAbCd.")]


@keys.command("create")
def create_key(
    project: Annotated[str, typer.Argument(metavar="PROJECT", help="Its id, or its name.")],
    name: Annotated[str, typer.Option("--name", help="Its name.")] = "command line",
    management: Annotated[
        bool, typer.Option("--management", help="For the management API, not for requests.")
    ] = False,
    days: Annotated[
        int | None, typer.Option("--days", min=1, max=36_500, help="How long it works.")
    ] = None,
    models: Annotated[
        list[str] | None, typer.Option("--model", help="A model it may use; else all.")
    ] = None,
    doors: Annotated[
        list[str] | None, typer.Option("--door", help="A door it may use; else all.")
    ] = None,
    config: Config = None,
    pairs: Set = None,
    json: AsJson = False,
) -> None:
    """Create a key of a project. It is shown once.

    **Examples**

    `causerie keys create rockets --name "build bot" --days 30 --model small`

    `causerie keys create rockets --management`
    """
    from causerie.hosted.accounts.issuing import KeyDraft
    from causerie.hosted.accounts.keys import Purpose

    draft = KeyDraft(
        name=name,
        purpose=Purpose.MANAGEMENT if management else Purpose.INFERENCE,
        expires_at=None if days is None else datetime.now(UTC) + timedelta(days=days),
        doors=frozenset(doors) if doors else None,
        models=frozenset(models) if models else None,
    )

    async def create(accounts: Accounts, by: Actor) -> NewKey:
        found = await find_project(accounts, by, project)
        return await accounts.keys.create(by, found.id, draft)

    settings, created = with_accounts(config, pairs, create)
    _print_new_key(created, json)
    warn_of_unknown(draft, settings)


@keys.command("list")
def list_keys(
    project: Annotated[
        str | None, typer.Argument(metavar="[PROJECT]", help="Its id, or its name; else all.")
    ] = None,
    config: Config = None,
    pairs: Set = None,
    json: AsJson = False,
) -> None:
    """List keys, never their secrets.

    **Examples**

    `causerie keys list rockets`
    """

    async def find(accounts: Accounts, by: Actor) -> list[tuple[str, ApiKey]]:
        projects = await accounts.projects.every(by)
        if project is not None:
            projects = [await find_project(accounts, by, project)]
        return [(one.name, key) for one in projects for key in await accounts.keys.of(by, one.id)]

    _print_keys(with_accounts(config, pairs, find)[1], json)


@keys.command("rotate")
def rotate_key(
    which: Which,
    grace: Annotated[
        int | None,
        typer.Option(
            "--grace", min=0, max=720, help="Hours that the old secret goes on. [default: 24]"
        ),
    ] = None,
    config: Config = None,
    pairs: Set = None,
    json: AsJson = False,
) -> None:
    """Give a key a new secret. It is shown once.

    **Examples**

    `causerie keys rotate ck_5RkT0yQzAbCd --grace 0`
    """
    from causerie.hosted.accounts.issuing import GRACE

    lasting = GRACE if grace is None else timedelta(hours=grace)
    _, rotated = with_accounts(
        config, pairs, lambda accounts, by: accounts.keys.rotate(by, which, lasting)
    )
    _print_new_key(rotated, json)


@keys.command("disable")
def disable_key(
    which: Which, config: Config = None, pairs: Set = None, json: AsJson = False
) -> None:
    """Stop a key, within a second, also in a service that runs.

    **Examples**

    `causerie keys disable ck_5RkT0yQzAbCd`
    """
    _edit_and_print_key(lambda accounts, by: accounts.keys.disable(by, which), config, pairs, json)


@keys.command("enable")
def enable_key(
    which: Which, config: Config = None, pairs: Set = None, json: AsJson = False
) -> None:
    """Let a key work again.

    **Examples**

    `causerie keys enable ck_5RkT0yQzAbCd`
    """
    _edit_and_print_key(lambda accounts, by: accounts.keys.enable(by, which), config, pairs, json)


@keys.command("delete")
def delete_key(which: Which, config: Config = None, pairs: Set = None) -> None:
    """End a key for good. Its usage stays.

    **Examples**

    `causerie keys delete ck_5RkT0yQzAbCd`
    """
    _ = with_accounts(config, pairs, lambda accounts, by: accounts.keys.delete(by, which))
    typer.echo(f"{which} is deleted.", err=True)


def warn_of_unknown(draft: KeyDraft, settings: Settings) -> None:
    """Print the models and doors of a key that the configuration does not have."""
    from causerie.settings.doors import door_addresses, model_names

    doors = tuple(each.door.name for each in door_addresses(settings))
    wanted = (("model", draft.models, model_names(settings)), ("door", draft.doors, doors))
    for kind, names, there in wanted:
        for name in sorted((names or frozenset()) - set(there)):
            known = ", ".join(there)
            words = f"No {kind} is named {name!r} in the configuration; known: {known}."
            typer.echo(words, err=True)


def _edit_and_print_key(
    edit: Callable[[Accounts, Actor], Awaitable[ApiKey]], config: Config, overrides: Set, json: bool
) -> None:
    async def work(accounts: Accounts, by: Actor) -> tuple[str, ApiKey]:
        key = await edit(accounts, by)
        return (await accounts.projects.see(by, key.project_id)).project.name, key

    _print_keys([with_accounts(config, overrides, work)[1]], json, alone=True)


def _print_keys(keys: list[tuple[str, ApiKey]], as_json: bool, *, alone: bool = False) -> None:
    from causerie.hosted.management.views import KeyView, viewed

    now = datetime.now(UTC)
    views = [viewed(KeyView, key, state=key.state(now)) for _, key in keys]
    rows = [
        (key.id, key.name, project, key.purpose, key.state(now), day(key.expires_at))
        for project, key in keys
    ]
    titles = ("KEY", "NAME", "PROJECT", "PURPOSE", "STATE", "ENDS")
    print_found(views[0] if alone else views, titles, rows, json=as_json)


def _print_new_key(new_key: NewKey, as_json: bool) -> None:
    from causerie.hosted.management.views import NewKeyView, viewed

    if as_json:
        state, credential = new_key.key.state(datetime.now(UTC)), new_key.credential
        print_json(viewed(NewKeyView, new_key.key, state=state, credential=credential))
        return
    typer.echo(new_key.credential)
    typer.echo("This is the whole key, shown this once.", err=True)
