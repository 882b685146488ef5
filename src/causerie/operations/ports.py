"""Interface of operations for pages and the management API: providers and routes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from causerie.accounts.people import Actor
from causerie.operations.alerts import AlertDesk
from causerie.operations.configuring import Configuring
from causerie.operations.explanation import RoutingExplanation
from causerie.operations.views import AppliedResult, ProbeView, ProviderView


class RouteQuery(Struct, frozen=True):
    """A request that nobody has sent: its body as JSON, the door it would come to.

    ``key`` is the id of the key that it would come with (empty: one that may everything),
    ``session`` what its header ``x-session-id`` would say, ``strict`` whether it says
    ``x-unknown-params: reject``.
    """

    body: bytes
    door: str = ""
    key: str = ""
    session: str = ""
    strict: bool = False


class Operations(Protocol):
    """Providers and routes. Everything raises ``Forbidden`` for those who are no operators."""

    @property
    def configuration(self) -> Configuring: ...
    @property
    def alerts(self) -> AlertDesk: ...

    def doors(self) -> Sequence[str]:
        """The names of all doors, the usual one first."""

    def models(self) -> Sequence[str]:
        """The ids of all models."""

    async def providers(self, actor: Actor) -> Sequence[ProviderView]:
        """All providers, in the configured order, and this service if it runs models."""

    async def provider(self, actor: Actor, name: str) -> ProviderView:
        """One provider; raises ``NotFound``."""

    async def probe(self, actor: Actor, name: str, model: str, *, quick: bool = False) -> ProbeView:
        """Begin to probe a model there; ``quick``: what usual clients need, for a minute at most.

        Raises ``NotFound``, and ``InvalidRequest`` where a probe is under way or none can be.
        """

    async def cancel(self, actor: Actor, name: str) -> ProbeView:
        """End the probe under way; raises ``NotFound`` where there was none."""

    async def use(self, actor: Actor, name: str, model: str) -> AppliedResult:
        """Put the newest result in force; raises ``NotFound`` and ``InvalidRequest``."""

    async def explain(self, actor: Actor, question: RouteQuery) -> RoutingExplanation:
        """Explain the routing of a request now."""
