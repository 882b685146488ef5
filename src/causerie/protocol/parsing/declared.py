"""Reading a parameter by its declared type and range; errors are those of ``fields``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from causerie.protocol.declaration import Parameter
from causerie.protocol.parameters import PARAMETERS
from causerie.protocol.parsing.fields import ObjectReader


def read(body: ObjectReader, name: str) -> Any:
    """Return the value of a number, a text or a switch, or ``None`` where it is not given."""
    return _READERS[name](body)


def _reader(parameter: Parameter) -> Callable[[ObjectReader], Any] | None:
    """Return the reader of a parameter with a simple type."""
    name, number = parameter.name, parameter.number
    if number is not None and number.kind is float:
        return partial(
            ObjectReader.number,
            name=name,
            least=number.least,
            most=number.most,
            above=number.above,
        )
    if number is not None:
        least, most = int(number.least), int(number.most)
        return partial(ObjectReader.integer, name=name, least=least, most=most)
    if parameter.bare is bool:
        return partial(ObjectReader.boolean, name=name)
    if parameter.bare is str and parameter.most_characters is not None:
        kind = ObjectReader.required_string if parameter.required else ObjectReader.string
        return partial(kind, name=name, most=parameter.most_characters)
    return None


_READERS: Mapping[str, Callable[[ObjectReader], Any]] = MappingProxyType(
    {name: reader for name, each in PARAMETERS.items() if (reader := _reader(each)) is not None}
)
