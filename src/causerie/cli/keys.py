"""``causerie keys``: the keys of projects, in the database. ``causerie key`` makes others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import typer

from causerie.accounts.issuing import KeyDraft, NewKey
from causerie.accounts.keys import ApiKey, Purpose
from causerie.accounts.people import SYSTEM
from causerie.cli.accounts import as_json, day, with_accounts
from causerie.cli.exits import reporting
from causerie.cli.options import Config, Set
from causerie.cli.tables import print_table
from causerie.management.views import KeyView, NewKeyView
from causerie.settings import Settings
from causerie.settings.addresses import door_addresses, names

if TYPE_CHECKING:
    from causerie.accounts.accounts import Accounts


def drafted(
    name: str,
    lasts: timedelta | None,
    doors: Sequence[str] | None,
    models: Sequence[str] | None,
    *,
    management: bool,
) -> KeyDraft:
    """Return the key that is wanted; without doors or models it may use all."""
    return KeyDraft(
        name=name,
        purpose=Purpose.MANAGEMENT if management else Purpose.INFERENCE,
        expires_at=None if lasts is None else datetime.now(UTC) + lasts,
        doors=frozenset(doors) if doors else None,
        models=frozenset(models) if models else None,
    )


def warn_of_unknown(draft: KeyDraft, settings: Settings) -> None:
    """Name models and doors on stderr that a key may use, and that there are not."""
    _warn("model", draft.models, names(settings))
    _warn("door", draft.doors, [each.door.name for each in door_addresses(settings)])


def change_key(
    change: Callable[[Accounts], Awaitable[ApiKey]], config: Config, pairs: Set, json: bool
) -> None:
    """Carry out a change of a key, and print the key."""
    with reporting():

        async def work(accounts: Accounts) -> tuple[str, ApiKey]:
            key = await change(accounts)
            return (await accounts.projects.see(SYSTEM, key.project_id)).project.name, key

        _, found = with_accounts(config, pairs, work)
        if json:
            as_json(KeyView.of(found[1], datetime.now(UTC)))
        else:
            show_keys([found])


def show_keys(keys: list[tuple[str, ApiKey]]) -> None:
    """Print keys, each with the name of its project, as a table."""
    now = datetime.now(UTC)
    rows = [
        (key.id, key.name, project, key.purpose, key.state(now), day(key.expires_at))
        for project, key in keys
    ]
    print_table(("KEY", "NAME", "PROJECT", "PURPOSE", "STATE", "ENDS"), rows)


def _warn(kind: str, wanted: frozenset[str] | None, there: Sequence[str]) -> None:
    """Say which names the configuration does not have: they may come, or be mistaken."""
    for name in sorted((wanted or frozenset()) - set(there)):
        known = ", ".join(there)
        typer.echo(f"No {kind} is named {name!r} in the configuration; known: {known}.", err=True)


def show_new_key(made: NewKey, json: bool) -> None:
    if json:
        as_json(NewKeyView.made(made, datetime.now(UTC)))
        return
    typer.echo(made.credential)
    typer.echo("This is the whole key, shown this once.", err=True)
