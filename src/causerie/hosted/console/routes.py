"""Routes of the console: paths and their page functions, read from ``routes.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

from msgspec import Struct

from causerie.hosted.accounts.people import Action
from causerie.hosted.console import (
    activity,
    audit,
    bounds,
    catalog,
    explain,
    health,
    keys,
    operator,
    overview,
    playground,
    project,
    providers,
    settings_entries,
    sign_in,
    usage,
)
from causerie.hosted.console.entries import EntryPages
from causerie.hosted.console.request_context import RequestContext
from causerie.hosted.console.settings_entries import ALIASES, CHANNELS, DOORS, MODELS, POLICIES

Page = Callable[[RequestContext], Awaitable[None]]


class PageRoute(Struct, frozen=True):
    """A path and its page; ``open`` needs no sign-in, the page of a ``raw`` one reads the body.

    ``form`` is shown again, with the problem, if the page refuses what was sent. The typed fields
    of a ``kept`` one come back after a new sign-in; it must have a ``form`` without secret fields.
    Those that ``enrols`` marks are open to people who first have to set up a second factor.
    """

    method: str
    path: str
    page: Page
    form: Page | None = None
    open: bool = False
    raw: bool = False
    kept: bool = False
    enrols: bool = False


def _build_form_routes(
    path: str, show_page: Page, act_page: Page, *, open: bool = False, kept: bool = False
) -> tuple[PageRoute, PageRoute]:
    return (
        PageRoute("GET", path, show_page, open=open),
        PageRoute("POST", path, act_page, show_page, open=open, kept=kept),
    )


def _build_entry_routes(pages: EntryPages, *, kept: bool = True) -> tuple[PageRoute, ...]:
    path = pages.path or pages.list_path
    entry = f"{path}/{{entry}}"
    return (
        *([PageRoute("GET", pages.list_path, pages.list)] if pages.list_template else []),
        *_build_form_routes(f"{path}/new", pages.new, pages.create, kept=kept),
        *_build_form_routes(entry, pages.see, pages.change, kept=kept),
        PageRoute("POST", f"{entry}/enable", partial(pages.switch, enabled=True)),
        PageRoute("POST", f"{entry}/disable", partial(pages.switch, enabled=False)),
        *_build_form_routes(f"{entry}/delete", pages.ask_deletion, pages.delete),
    )


_MODULES: Mapping[str, ModuleType] = {
    module.__name__.rpartition(".")[2]: module
    for module in (
        *(activity, audit, bounds, catalog, explain, health, keys, operator, overview),
        *(playground, project, providers, settings_entries, sign_in, usage),
    )
}


async def _show_template(context: RequestContext, *, template: str, needs: str = "") -> None:
    if needs:
        await context.check_right(Action(needs))
    await context.send_page(template)


def _resolve_page(page_name: str, fixed_arguments: Mapping[str, Any]) -> Page:
    if page_name.endswith(".html"):
        return partial(_show_template, template=page_name, **fixed_arguments)
    module, _, page = page_name.partition(".")
    found: Page = getattr(_MODULES[module], page)
    return partial(found, **fixed_arguments) if fixed_arguments else found


def _build_routes_of_row(method_and_path: str, *parts: Any) -> tuple[PageRoute, ...]:
    # A row of routes.toml, which says what its parts are.
    method, path = method_and_path.split()
    fixed: dict[str, Any] = parts[-1] if isinstance(parts[-1], dict) else {}
    names = [each for each in parts if each is not fixed and "." in each]
    marks: dict[str, Any] = {each: True for each in parts if each is not fixed and "." not in each}
    page = _resolve_page(names[0], fixed)
    other = _resolve_page(names[1], {}) if len(names) > 1 else None
    if method == "FORM" and other is not None:
        return _build_form_routes(path, page, other, **marks)
    return (PageRoute(method, path, page, other, **marks),)


_ROWS = tomllib.loads(Path(__file__).with_name("routes.toml").read_text("utf-8"))
_LISTED = [route for place, row in _ROWS.items() for route in _build_routes_of_row(place, *row)]
SIGN_UP_ROUTES = [each for each in _LISTED if each.path == "/sign-up"]
ROUTES: Sequence[PageRoute] = (
    *(each for each in _LISTED if each.path != "/sign-up"),
    *_build_entry_routes(CHANNELS, kept=False),
    *chain.from_iterable(
        map(_build_entry_routes, (providers.CATALOG_MODELS, ALIASES, MODELS, DOORS, POLICIES))
    ),
)
"""All pages, their paths below the console's own."""
