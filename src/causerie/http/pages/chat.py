"""The chat page of a service without accounts: one page, whose script is a client of the API.

The page holds nothing of the service but the paths of its doors. Models come from `GET /models`
and replies from `POST /chat/completions`, with the key that the visitor types, if a door wants
one. Whoever opens the page can therefore do and see what the API lets them, and no more.
"""

from __future__ import annotations

from msgspec import Struct

from causerie.http.exchange import Exchange
from causerie.http.pages.branding import Branding
from causerie.http.pages.templating import StandalonePage
from causerie.protocol.declaration import Control, Number, Parameter
from causerie.protocol.parameters import PARAMETERS, SAMPLING

_LARGEST = 2**53 - 1  # integer that a script can tell from its neighbours
_FINEST = 0.01  # step of a number with a fraction


class NumberField(Struct, frozen=True):
    """A number field of the form: its parameter, label, range, step, and the hint while empty."""

    name: str
    label: str
    least: float
    most: float
    step: float
    unset: str
    first: bool  # shown at once, others under "More"


def number_fields() -> tuple[NumberField, ...]:
    """Return a form field for each numeric parameter that is for sampling or declares a control."""
    drawn = {each.name for each in SAMPLING}
    return tuple(
        _build_number_field(one, one.number, one.facts.control or Control())
        for one in PARAMETERS.values()
        if one.number is not None and (one.facts.control is not None or one.name in drawn)
    )


def _build_number_field(parameter: Parameter, number: Number, control: Control) -> NumberField:
    step = 1 if number.kind is int else _FINEST
    neutral = parameter.facts.neutral
    return NumberField(
        name=parameter.name,
        label=parameter.label,
        least=max(number.least + (step if number.above else 0), -_LARGEST),
        most=min(number.most, _LARGEST),
        step=step,
        unset=control.unset or (f"{neutral[0]:g}" if neutral else "not sent"),
        first=control.first,
    )


class ChatPage(StandalonePage):
    def __init__(self, static_prefix: str, brand: Branding) -> None:
        super().__init__("chat.html", static_prefix, brand)

    async def show(self, exchange: Exchange, base_urls: tuple[str, ...]) -> None:
        values: dict[str, object] = {
            "base_urls": base_urls,
            "doors": (),  # the script knows by which address it came
            "numbers": number_fields(),
            "keys_at": "",
        }
        await self.send(exchange, base_urls, lambda: values, "accept, accept-encoding")
