"""Views of a provider with very many models: others have their turn, and nothing is made twice."""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest.mock import MagicMock

import pytest

from causerie.composition import operations as provider_views
from causerie.composition.operations import ProviderViews
from causerie.hosted.operations import probes
from causerie.protocol.targets import UNKNOWN_STATS
from causerie.settings.catalog import CatalogEndpointSettings, CatalogModelSettings
from causerie.settings.provider import ProviderModelSettings, ProviderSettings
from causerie.settings.tree import Settings

MODELS = 300


async def test_a_large_provider_is_viewed_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    did = Counter[str]()

    class Turns:
        async def pause(self) -> None:
            did["turns"] += 1

    def price(*args: Any) -> Any:
        did["prices"] += 1
        return real(*args)

    real = probes.price
    monkeypatch.setattr(provider_views, "Turns", Turns)
    monkeypatch.setattr(probes, "price", price)
    provider_views.probe_cost.cache_clear()
    known = tuple(
        ProviderModelSettings(id=f"m{n}", context_length=n % 3 + 1) for n in range(MODELS)
    )
    one = ProviderSettings(name="a", base_url="http://a/v1", models=known)
    settings = Settings(
        providers=(one,),
        catalog=tuple(
            CatalogModelSettings(
                id=f"b/m{n}", endpoints=(CatalogEndpointSettings(provider="a", model=f"m{n}"),)
            )
            for n in range(MODELS)
        ),
    )
    now = MagicMock(settings=settings)
    now.router.status.return_value = ()
    now.router.target_stats.return_value = UNKNOWN_STATS
    views = await ProviderViews.of(now)
    view = await views.provider(one, {}, None)
    assert [target.serves[0].model for target in view.targets] == [f"b/m{n}" for n in range(MODELS)]
    assert [model.id for model in view.models] == [f"m{n}" for n in range(MODELS)]
    assert did["turns"] >= 4 * MODELS
    assert did["prices"] == 3
