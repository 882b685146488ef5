"""Public model names, and who answers for them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from causerie.settings.limits import Limits
from causerie.settings.price import Price
from causerie.settings.values import DoorName, Name, Natural, Text


class Target(Struct, frozen=True, kw_only=True):
    """One that can answer: a model of an endpoint, or one that this service runs itself."""

    model: Annotated[Text, Meta(description="Id of the model, there or of an entry of `models`.")]
    endpoint: Annotated[
        DoorName | None,
        Meta(description="Name of the endpoint. Unset: a model that this service runs itself."),
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
        """What routing, headers and logs call it."""
        return self.model if self.endpoint is None else f"{self.endpoint}/{self.model}"


class Alias(Struct, frozen=True, kw_only=True):
    """A public model name, and the targets that answer for it."""

    id: Annotated[Name, Meta(description="What a request names as `model`.")]
    targets: Annotated[tuple[Target, ...], Meta(description="Who answers, at least one.")]
    name: Annotated[Text | None, Meta(description="Name for people. Unset: the id.")] = None
    description: Annotated[str, Meta(description="One sentence for the catalog.")] = ""
    hedge_seconds: Annotated[
        Annotated[float, Meta(gt=0, le=3600)] | None,
        Meta(
            description="After so long without an answer a second target is asked too, for a "
            "small share of the requests; the first to answer serves. Unset: never."
        ),
    ] = None
    limits: Annotated[
        Limits, Meta(description="How much it is used at most, over all who use it.")
    ] = Limits()
    price: Annotated[Price, Meta(description="What its use costs.")] = Price()
