"""How a service sells credits."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from urllib.parse import quote

from msgspec import Struct

from causerie.hosted.payments.stripe import Stripe


class Sales(Struct, frozen=True):
    """How credits are sold, if they are, and from when a balance is low."""

    stripe: Stripe | None = None
    page: str | None = None
    amounts: Sequence[Decimal] = ()
    least: Decimal = Decimal(0)
    most: Decimal = Decimal(0)
    low: Decimal = Decimal(0)

    @property
    def open(self) -> bool:
        """Return whether somebody can buy credits."""
        return self.stripe is not None or self.page is not None

    def page_for(self, project_id: str) -> str:
        """Return the page of a shop of the operator's; empty without one."""
        return (self.page or "").replace("{project}", quote(project_id))
