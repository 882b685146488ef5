"""Reading a parameter by its declared type and range; errors are those of ``fields``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from causerie.protocol.declaration import Number, Parameter
from causerie.protocol.parameters import PARAMETERS
from causerie.protocol.parsing.fields import ObjectReader


def read(body: ObjectReader, name: str) -> Any:
    """Return the value of a number, a text or a switch, or ``None`` where it is not given."""
    if body.values.get(name) is None:
        return None
    return _READERS[name](body)


def _reader(parameter: Parameter) -> Callable[[ObjectReader], Any] | None:
    """Return the reader of a parameter with a simple type."""
    name, number, most = parameter.name, parameter.number, parameter.most_characters
    if number is not None:
        return _number_reader(name, number)
    if parameter.bare is bool:
        return lambda body: body.boolean(name)
    if parameter.bare is not str or most is None:
        return None
    return lambda body: body.string(name, most=most)


def _number_reader(name: str, number: Number) -> Callable[[ObjectReader], Any]:
    least, most, above = number.least, number.most, number.above
    if number.kind is float:
        return lambda body: body.number(name, least, most, above=above)
    first, last = int(least), int(most)
    return lambda body: body.integer(name, first, last)


_READERS: Mapping[str, Callable[[ObjectReader], Any]] = MappingProxyType(
    {name: reader for name, each in PARAMETERS.items() if (reader := _reader(each)) is not None}
)
