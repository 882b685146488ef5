"""Public model names, and who answers for them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from causerie.settings.limits import LimitSettings
from causerie.settings.price import PriceSettings
from causerie.settings.values import DoorName, ModelPattern, Natural, Text


class AliasTarget(Struct, frozen=True, kw_only=True):
    """One that can answer: a model of a provider, or one that this service runs itself."""

    model: Annotated[Text, Meta(description="Id of the model, there or of an entry of `models`.")]
    provider: Annotated[
        DoorName | None,
        Meta(description="Name of the provider. Unset: a model that this service runs itself."),
    ] = None
    priority: Annotated[
        Natural, Meta(description="0 is asked first; higher ones when no lower one answers.")
    ] = 0
    weight: Annotated[
        Annotated[float, Meta(gt=0, le=1_000_000)],
        Meta(description="Share of the requests among targets of one priority."),
    ] = 1.0

    @property
    def name(self) -> str:
        """Return the name of the target in routing, headers and logs."""
        return self.model if self.provider is None else f"{self.provider}/{self.model}"


class AliasSettings(Struct, frozen=True, kw_only=True):
    """A public model name, and the targets that answer for it."""

    id: Annotated[
        ModelPattern,
        Meta(
            description="What a request names as `model`; with `*` at its end every name that "
            "begins so, see [wildcards](../guides/doors.md#every-model-of-a-provider)."
        ),
    ]
    targets: Annotated[tuple[AliasTarget, ...], Meta(description="Who answers, at least one.")]
    name: Annotated[Text | None, Meta(description="Name for people. Unset: the id.")] = None
    description: Annotated[str, Meta(description="One sentence for the catalog.")] = ""
    limits: Annotated[
        LimitSettings, Meta(description="How much it is used at most, over all who use it.")
    ] = LimitSettings()
    price: Annotated[PriceSettings, Meta(description="What its use costs.")] = PriceSettings()
