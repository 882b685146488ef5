"""``causerie prices``: which prices apply, and a newer list of what providers publish."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from causerie.cli import command

if TYPE_CHECKING:
    from causerie.providers.price_list import PriceList
    from causerie.settings.prices import Prices
    from causerie.settings.tree import Settings

prices = typer.Typer()
_AMOUNTS = ("prompt", "completion", "cached", "cache_write")


@prices.command("list")
def show_prices(
    provider: Annotated[
        str, typer.Argument(metavar="[PROVIDER]", help="Rows of the price list, like openai.")
    ] = "",
    config: command.Config = None,
    pairs: command.Set = None,
    json: command.AsJson = False,
) -> None:
    """Show what the targets of aliases cost, or the price list of a provider.

    Prices are for a million tokens. Those of entries in the database are not
    among them; the console shows them too.

    **Examples**

    `causerie prices list`

    `causerie prices list anthropic`
    """
    from causerie.settings.prices import Prices

    settings = command.settings_in_force(config, pairs).settings
    found = Prices(settings)
    rows = _price_list_rows(found.list, provider) if provider else _alias_rows(settings, found)
    made = list(rows)
    if provider and not made:
        names = ", ".join(sorted({name for name, _ in found.list.models}))
        raise command.WrongUsage(f"the price list has no provider {provider}; it has {names}")
    titles, cells = list(made[0]) if made else [], [list(row.values()) for row in made]
    command.print_found(made, titles, cells, json=json, right=("above", *_AMOUNTS))


def _alias_rows(settings: Settings, prices: Prices) -> Iterator[Mapping[str, str]]:
    for alias in settings.aliases:
        for target in alias.targets:
            found = prices.of(alias, target)
            named = {"alias": alias.id, "target": target.name}
            if found is None:
                wild = "*" in target.model and not prices.unpriced(alias)
                origin = "list price of each model" if wild else "no price"
                yield {**named, **_build_price_columns({}), "origin": origin}
                continue
            origin = f"list price, {found.rows[0].date}" if found.rows else "set"
            for each in (found.price, *found.price.tiers):
                amounts = {name: getattr(each, name) or "" for name in _AMOUNTS}
                above = getattr(each, "above", 0)
                yield {**named, **_build_price_columns(amounts, above), "origin": origin}


def _price_list_rows(price_list: PriceList, provider: str) -> Iterator[Mapping[str, str]]:
    for (name, model), rows in price_list.models.items():
        for row in rows if name == provider else ():
            amounts = _build_price_columns(row.prices, row.above)
            yield {"model": model, **amounts, "date": f"{row.date}", "source": row.source}


def _build_price_columns(prices: Mapping[str, str], above_tokens: int = 0) -> Mapping[str, str]:
    return {"above": str(above_tokens or "")} | {name: prices.get(name, "") for name in _AMOUNTS}


@prices.command("update")
def update_prices(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A price list as CSV.")],
    config: command.Config = None,
    pairs: command.Set = None,
) -> None:
    """Store a newer price list, and show what it changes.

    It is written to `list_prices.file`, or else to `prices.csv` in
    `store.folder`. Of two rows for a model the newer one applies. A running
    service takes it with `causerie reload`.

    **Examples**

    `causerie prices update prices-2026-12.csv`
    """
    from causerie.providers.price_list import WrongList, parsed_list
    from causerie.settings.prices import Prices, price_list_file

    settings = command.settings_in_force(config, pairs).settings
    before = Prices(settings).list
    try:
        text = file.read_text(encoding="utf-8-sig")
        after = before.updated(given := parsed_list(text))
    except (OSError, UnicodeError) as failure:
        raise command.WrongUsage(f"{file} cannot be read as text") from failure
    except WrongList as failure:
        raise command.WrongUsage(f"{file}: {failure}") from failure
    place = price_list_file(settings)
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        written = place.with_name(f"{place.name}.new")
        written.write_text(text, encoding="utf-8")
        written.replace(place)
    except OSError as failure:
        raise command.CommandFailed(f"{place} cannot be written: {failure.strerror}") from failure
    changed = [name for name, rows in after.models.items() if before.models.get(name) != rows]
    for name in changed:
        typer.echo(f"{' '.join(name)}: {_price_text(before, name)} -> {_price_text(after, name)}")
    older = f"; {len(given.models) - len(changed)} models are as before"
    typer.echo(f"{place}: {len(changed)} models changed{older}")


def _price_text(price_list: PriceList, provider_and_model: tuple[str, str]) -> str:
    rows = [
        (f"above {row.above}: " if row.above else "") + "/".join(row.prices.values())
        for row in price_list.models.get(provider_and_model, ())
    ]
    return ", ".join(rows) or "none"
