"""The form of a declared parameter: ``Annotated[TYPE, Meta(...), Facts(...)]`` in a struct."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from functools import reduce
from operator import or_
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from msgspec import Meta, Struct, structs

Origin = Literal["", "common", "openai", "engines"]
"""Servers that know a parameter: all (``common``), those that follow OpenAI's reference closely, or
open engines such as vLLM. Dialects name origins, exceptions, and parameters without origin.
"""
Effect = Literal["", "narrows", "penalises"]
"""``narrows``: it cuts unlikely candidates off; ``penalises``: it makes repetition less likely."""


class Control(Struct, frozen=True):
    """Input field of a parameter in the playground: its label, place and text while unset."""

    label: str = ""  # empty: the name of the parameter in words
    first: bool = False
    unset: str = ""  # empty: the neutral value


class Facts(Struct, frozen=True):
    """Facts of a parameter besides type and range: who knows it, its other names, its effect."""

    origin: Origin = ""
    neutral: tuple[Any, ...] = ()  # values that ask for nothing; engines get the first one
    effect: Effect = ""
    visible_at: float | None = None  # a value with so strong an effect that a probe sees it
    engines: Mapping[str, str | None] = {}  # names at our engines that differ; `None`: refused
    gguf: str = ""  # its key below `general.sampling.` in GGUF files; empty: its own name
    router: bool = False  # only routers describe it
    responses: str | None = ""  # its name in Responses, empty: the same; ``None``: it has none
    messages: str | None = ""  # its name in the Messages API, likewise
    takes: str = ""  # the values in words, where the type does not say them well
    control: Control | None = None  # of the playground; a number has one anyway


class Number(Struct, frozen=True):
    """A number of the type ``kind`` from ``least`` (itself left out if ``above``) to ``most``."""

    kind: type[int] | type[float]
    least: float
    most: float
    above: bool = False


class Parameter(Struct, frozen=True):
    """One parameter, as it was declared. ``type`` is that of its values, without ``None``."""

    name: str
    annotation: Any  # as it was written
    type: Any
    facts: Facts
    required: bool = False
    description: str = ""

    @property
    def optional(self) -> Any:
        inner, notes = _split_annotated(self.annotation)
        return Annotated[(inner | None, *notes)] if notes else inner | None

    @property
    def bare(self) -> Any:
        return _split_annotated(self.type)[0]

    @property
    def number(self) -> Number | None:
        """Return type and range of a numeric parameter, ``None`` for any other parameter."""
        if self.bare not in (int, float):
            return None
        bounds = {
            name: value
            for meta in metas(self.type)
            for name in ("ge", "gt", "le")
            if (value := getattr(meta, name)) is not None
        }
        above = "gt" in bounds
        return Number(self.bare, bounds["gt" if above else "ge"], bounds["le"], above)

    @property
    def most_characters(self) -> int | None:
        lengths = (meta.max_length for meta in metas(self.type))
        return next((length for length in lengths if length is not None), None)

    @property
    def label(self) -> str:
        given = self.facts.control.label if self.facts.control else ""
        return given or self.name.replace("_", " ").capitalize()


def declared(group: type[Struct]) -> Iterator[Parameter]:
    hints = typing.get_type_hints(group, include_extras=True)
    for each in structs.fields(group):
        annotation = hints[each.name]
        inner, notes = _split_annotated(annotation)
        kind = without_none(inner)
        yield Parameter(
            name=each.encode_name,
            annotation=annotation,
            type=annotation if kind is inner else kind,
            facts=next((note for note in notes if isinstance(note, Facts)), Facts()),
            required=each.required,
            description=next(
                (note.description for note in notes if isinstance(note, Meta) and note.description),
                "",
            ),
        )


def metas(kind: Any) -> list[Meta]:
    return [note for note in _split_annotated(kind)[1] if isinstance(note, Meta)]


def without_none(kind: Any) -> Any:
    if get_origin(kind) not in (Union, UnionType):
        return kind
    return reduce(or_, (each for each in get_args(kind) if each is not NoneType))


def _split_annotated(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    if get_origin(annotation) is not Annotated:
        return annotation, ()
    inner, *notes = get_args(annotation)
    return inner, tuple(notes)
