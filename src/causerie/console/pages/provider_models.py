"""Models of a provider: read from it, compared with the configuration, and taken over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from causerie.console.entries import EntryProblems, picked_model
from causerie.console.request_context import RequestContext
from causerie.errors import InvalidRequest
from causerie.operations.configuring import EntryView
from causerie.operations.ports import Operations
from causerie.operations.provider_models import (
    ComparedModel,
    compared,
    provider_in_force,
    taken_over,
)
from causerie.operations.trial import ListedModel, Trial

_PATH = "/operator/providers"
_TEMPLATE = "operator/provider_models.html"
_LONGEST_PREFIX = 64


class ProviderModelPages:
    """Nothing is taken over unless it is picked."""

    def __init__(self, operations: Operations) -> None:
        self._configuration = operations.configuration

    async def show(self, context: RequestContext) -> None:
        """``GET /operator/providers/{provider}/models``: reads the list of the provider now."""
        await self._show(context)

    async def take_over(self, context: RequestContext) -> None:
        """``POST /operator/providers/{provider}/models``: what was picked, in one step."""
        provider, entries = await self._provider(context)
        prefix = context.form.get("prefix")[:_LONGEST_PREFIX]
        try:
            context.check_form()
            picked = [picked_model(each) for each in context.form.every("pick")]
            gone = context.form.every("gone")
            steps = [*taken_over(provider, entries, picked, gone, prefix)]
            if context.form.get("all"):
                every = prefix or f"{provider.name}/"
                steps += taken_over(provider, entries, [ListedModel(id="*")], prefix=every)
            if not steps:
                raise InvalidRequest("Nothing was picked that would change.", param="pick")
            await self._configuration.apply(context.actor, steps)
        except InvalidRequest as failure:
            await self._show(context, failure, prefix)
            return
        context.go(f"{_PATH}/{provider.name}", done="models-taken")

    async def _show(
        self, context: RequestContext, failure: InvalidRequest | None = None, prefix: str = ""
    ) -> None:
        provider, entries = await self._provider(context)
        trial = await self._listing(context, provider)
        find = context.query.get("find")
        rows = compared(provider, trial.models, entries) if trial.listing.ok else ()
        picked = context.form.every("pick"), context.form.every("gone")
        values: dict[str, Any] = {
            "provider": provider,
            "listing": trial.listing,
            "find": find,
            "rows": [(each, _value(each)) for each in rows if find.casefold() in _text(each)],
            "states": [each.state for each in rows],
            "picked": frozenset([*picked[0], *picked[1]]),
            "prefix_typed": prefix,
            "problems": EntryProblems(failure),
            "wildcard": any("*" in _targets(each, provider.name) for each in entries),
        }
        await context.show_form(_TEMPLATE, failure, **values)

    async def _listing(self, context: RequestContext, provider: EntryView) -> Trial:
        return await self._configuration.listed(context.actor, provider.name)

    async def _provider(self, context: RequestContext) -> tuple[EntryView, Sequence[EntryView]]:
        """Return the provider that is in force, and all entries."""
        entries = await self._configuration.every(context.actor)
        return provider_in_force(entries, context.params["provider"]), entries


def _value(row: ComparedModel) -> str:
    """Return what the form sends for a row: all that is taken over, as it was shown."""
    if row.listed is None:
        return row.id
    taken = msgspec.structs.replace(row.listed, description=None, max_output_tokens=None)
    return msgspec.json.encode(taken).decode()


def _text(row: ComparedModel) -> str:
    name = row.listed.name if row.listed is not None else None
    return f"{row.id} {name or ''}".casefold()


def _targets(entry: EntryView, provider: str) -> Sequence[str]:
    if entry.kind != "alias":
        return ()
    targets = entry.settings.get("targets", ())
    return [each["model"] for each in targets if each.get("provider") == provider]
