"""Inputs that are expensive by little: how they are named, built, drawn from a seed, and shrunk.

A case is an entry of the service and parts, each a place of its input and what stands there: a
chain of families with a size each, the outer ones around the inner ones. A line such as
``schema.format; schema=oneOf:40/enum:9/words:100; document=keys:3`` names a case wholly, so that
what was found can be sent again. The service is not known here: :mod:`entrykit` sends.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

Inner = Callable[[int], Any]
Build = Callable[[int, Inner], Any]
Link = tuple[str, int]

_SIZES = (1, 2, 4, 8, 20, 64, 200, 500, 1_000, 4_000, 10_000, 30_000, 100_000, 300_000)
_DIGITS = (1, 2, 3, 4, 5, 6, 7)  # of an exponent
_DEPTHS = (2, 8, 30, 60, 100, 200)  # what nests more is no JSON that Python writes
_BYTES = 8  # about what one item of a list is at least
_LONG_CHAIN = 3
_SHORT = 20  # bytes


@dataclass(frozen=True)
class Family:
    """Inputs that are expensive in one way; ``build`` takes a size and what stands inside.

    A leaf has nothing inside, and its size is about its bytes. What stands inside of others is made
    once for each number below their size.
    """

    build: Build
    sizes: Sequence[int] = _SIZES
    leaf: bool = False
    single: bool = False
    """What stands inside is there once, however large the size is."""


def _text(unit: str) -> Family:
    return Family(lambda n, _: (unit * (n // len(unit) + 1))[:n], leaf=True)


def _made(make: Callable[[int], Any], sizes: Sequence[int] = _SIZES) -> Family:
    return Family(lambda n, _: make(n), sizes, leaf=True)


def _number(make: Callable[[int], str], sizes: Sequence[int] = _SIZES) -> Family:
    """Numbers in JSON, as written."""
    return _made(lambda n: msgspec.Raw(make(n).encode()), sizes)


TEXTS: Mapping[str, Family] = {
    "letters": _text("x"),
    "digits": _text("9"),
    "zeros": _text("0"),
    "fraction": _made(lambda n: "0." + "0" * n + "1"),
    "up": _made(lambda n: "1e" + "9" * n, _DIGITS),
    "down": _made(lambda n: "1e-" + "9" * n, _DIGITS),
    "nan": _made(lambda n: "nan" + "7" * (n - 1)),
    "date": _made(lambda n: "2026-11-28T00:00:00." + "9" * n + "Z"),
    "commas": _text(","),
    "words": _made(lambda n: " ".join(f"w{at}" for at in range(n // 6 + 1))),
    "names": _made(lambda n: ",".join(f"w{at}" for at in range(n // 6 + 1))),
    "resembling": _text("author-model-1/0-2-led-rot"),
    "spaces": _text(" "),
    "lines": _text("\n"),
    "blank lines": _text("a\n\n"),
    "escapes": _text('\\"'),
    "quotes": _text('"'),
    "percents": _text("%"),
    "codes": _text("%41"),
    "brackets": _text("["),
    "braces": _text("{"),
    "tags": _text("<a "),
    "entities": _text("&amp;&"),
    "stars": _text("*a **b "),
    "ticks": _text("`"),
    "quoted": _text("> "),
    "tables": _text("|a|-"),
    "links": _text("[a](b"),
    "marks": _text("<|im_start|>"),
    "half marks": _text("<|"),
    "calls": _text('<tool_call>{"name":"f","arguments":{'),
    "thoughts": _text("<think></think>"),
    "template": _text("{{ x }}{% if"),
    "folding": _text("İﬃΐŉ"),
    "composing": _text("a\u0323\u0301\u0328\u0302"),
    "compatible": _text("ﷺ"),
    "wide": _text("😀"),
    "foreign": _text("日本"),
    "dots": _text("a."),
    "dashes": _text("a-"),
    "underscores": _text("a_"),
    "climbing": _text("../"),
    "addresses": _text("a@b.c,"),
    "ats": _text("@"),
    "urls": _text("http://a.b/c?d#"),
    "numbered hosts": _text("1.2.3.4:5 "),
    "colons": _text("a:"),
    "image": _made(lambda n: "data:image/png;base64," + "QUJD" * (n // 4)),
    "repeats": _text("(a+)+"),
    "counted": _made(lambda n: f"(a?){{{n}}}a{{{n}}}"),
    "counted twice": _made(lambda n: f"((a{{0,{n}}}){{0,{n}}})", _DEPTHS),
    "choices": _text("(a|b|ab)*"),
    "classes": _text("[a-z日]{0,9}"),
    "pairs": _text("a=b;"),
    "weights": _text("gzip;q=0.001,"),
    "tags of pages": _text('W/"a",'),
    "bearer": _text("Bearer "),
    "secrets": _text("api key: abcdefgh1"),
    "traces": _text("at 0x12 .py line "),
    "json": _text('{"a":['),
    "numbers": _text("[1e9,"),
}
NUMBERS: Mapping[str, Family] = {
    "number": _number(lambda n: "9" * n),
    "number fraction": _number(lambda n: "0." + "0" * n + "12345678901234567891"),
    "number up": _number(lambda n: "1e" + "9" * n, _DIGITS),
    "number down": _number(lambda n: "1e-" + "9" * n, _DIGITS),
    "number slow": _number(lambda n: "1234567890123456789e289"),
    "whole": _number(lambda n: str(2 ** min(n, 63) - 1)),
}


def _each(value: Any, at: int) -> Any:
    """Return a text that differs from those of other numbers, or the value."""
    return f"{value}{at}" if isinstance(value, str) else value


def _nested(wrap: Callable[[Any], Any]) -> Family:
    def build(n: int, inner: Inner) -> Any:
        value = inner(0)
        for _ in range(n):
            value = wrap(value)
        return value

    return Family(build, _DEPTHS, single=True)


def _more(n: int, inner: Inner) -> Any:
    value = inner(0)
    if isinstance(value, dict):
        return {f"{name}{at}": each for at in range(n) for name, each in value.items()}
    return value * n if isinstance(value, list | str) else value


VALUES: Mapping[str, Family] = {
    "more": Family(_more),
    "list": Family(lambda n, inner: [inner(0)] * n),
    "different": Family(lambda n, inner: [_each(inner(at), at) for at in range(n)]),
    "keys": Family(lambda n, inner: {f"k{at}": inner(at) for at in range(n)}),
    "numeric keys": Family(lambda n, inner: {str(at): inner(at) for at in range(n)}),
    "long keys": Family(lambda n, inner: {f"{'k' * 60}{at}": inner(at) for at in range(n)}),
    "parts": Family(lambda n, _: [{"type": "text", "text": "x"}] * n),
    "images": Family(
        lambda n, _: [{"type": "image_url", "image_url": {"url": f"https://a.b/{n}"}}] * n
    ),
    "deep": _nested(lambda value: [value]),
    "chain": _nested(lambda value: {"a": value}),
}


def _schema(value: Any) -> Any:
    """Return a schema; a value that is none is the only one that fits."""
    return value if isinstance(value, dict | bool) else {"const": value}


def _options(keyword: str, **more: Any) -> Family:
    return Family(lambda n, inner: {keyword: [_schema(inner(at)) for at in range(n)], **more})


def _named(keyword: str, name: str = "p{}", **more: Any) -> Family:
    return Family(
        lambda n, inner: {
            "type": "object",
            keyword: {name.format(at): _schema(inner(at)) for at in range(n)},
            **more,
        }
    )


def _required(n: int, inner: Inner) -> Any:
    properties = {f"p{at}": _schema(inner(at)) for at in range(n)}
    return {"type": "object", "properties": properties, "required": list(properties)}


def _graph(joint: Callable[[list[Any]], Any]) -> Build:
    """Definitions that name the next one twice: what they unfold to doubles with each."""

    def build(n: int, inner: Inner) -> Any:
        definitions = {
            f"d{at}": joint([{"$ref": f"#/$defs/d{at + 1}"} for _ in range(2)]) for at in range(n)
        }
        return {"$defs": {**definitions, f"d{n}": _schema(inner(0))}, "$ref": "#/$defs/d0"}

    return build


def _dense(n: int, inner: Inner) -> Any:
    """Definitions that each name all."""
    every = {f"p{at}": {"$ref": f"#/$defs/d{at}"} for at in range(n)}
    definitions = {f"d{at}": {"type": "object", "properties": every} for at in range(n)}
    return {"$defs": {**definitions, "end": _schema(inner(0))}, "$ref": "#/$defs/d0"}


def _conditions(n: int, inner: Inner) -> Any:
    rules = [
        {
            "if": {"properties": {f"p{at}": _schema(inner(at))}, "required": [f"p{at}"]},
            "then": {"required": [f"p{at + 1}"]},
            "else": {"required": [f"q{at}"]},
        }
        for at in range(n)
    ]
    return {"type": "object", "allOf": rules}


def _overlapping(n: int, inner: Inner) -> Any:
    """Options that differ in nothing that is cheap to see."""
    options = [
        {
            "type": "object",
            "properties": {"a": _schema(inner(at)), f"b{at}": {"type": "integer"}},
            "required": ["a"],
        }
        for at in range(n)
    ]
    return {"oneOf": options}


SCHEMAS: Mapping[str, Family] = {
    "oneOf": _options("oneOf"),
    "overlapping": Family(_overlapping),
    "anyOf": _options("anyOf"),
    "allOf": _options("allOf"),
    "prefixItems": _options("prefixItems", type="array"),
    "properties": _named("properties"),
    "required": Family(_required),
    "patternProperties": _named("patternProperties", "p.*{}"),
    "anchored": _named("patternProperties", "^p{}[a-z]*$"),
    "dependentSchemas": _named("dependentSchemas"),
    "examples": _named("properties", "example{}"),
    "definitions": Family(
        lambda n, inner: {
            "$defs": {f"d{at}": _schema(inner(at)) for at in range(n)},
            "anyOf": [{"$ref": f"#/$defs/d{at}"} for at in range(n)],
        }
    ),
    "doubling": Family(_graph(lambda two: {"anyOf": two}), _DEPTHS, single=True),
    "doubling properties": Family(
        _graph(lambda two: {"type": "object", "properties": dict(zip("ab", two, strict=True))}),
        _DEPTHS,
        single=True,
    ),
    "doubling oneOf": Family(_graph(lambda two: {"oneOf": two}), _DEPTHS, single=True),
    "dense": Family(_dense, (2, 8, 15), single=True),
    "items": _nested(lambda value: {"type": "array", "items": _schema(value)}),
    "not": _nested(lambda value: {"not": _schema(value)}),
    "if": _nested(lambda value: {"if": _schema(value), "then": {"minProperties": 1}, "else": True}),
    "optional": _nested(lambda value: {"type": "object", "properties": {"a": _schema(value)}}),
    "alternatives": _nested(lambda value: {"anyOf": [_schema(value), {"type": "null"}]}),
    "conditions": Family(_conditions),
    "contains": Family(
        lambda n, inner: {
            "type": "array",
            "allOf": [{"contains": _schema(inner(at)), "minContains": 2} for at in range(n)],
        }
    ),
    "unique": Family(
        lambda n, inner: {
            "type": "array", "items": _schema(inner(0)), "minItems": n, "uniqueItems": True
        },
        single=True,
    ),
    "counted items": Family(
        lambda n, inner: {"type": "array", "items": _schema(inner(0)), "minItems": n}, single=True
    ),
    "enum": Family(lambda n, inner: {"enum": [_each(inner(at), at) for at in range(n)]}),
    "const": Family(lambda _, inner: {"const": inner(0)}, (1,), single=True),
    "pattern": Family(
        lambda n, inner: {"type": "string", "pattern": f"^({_words(inner(0))}){{0,{n}}}$"},
        single=True,
    ),
    "propertyNames": Family(
        lambda n, inner: {"propertyNames": {"pattern": f"^{_words(inner(0))}{{0,{n}}}$"}},
        single=True,
    ),
    "needs": Family(
        lambda n, _: {"dependentRequired": {f"p{at}": [f"p{at + 1}"] for at in range(n)}}
    ),
    "count": Family(lambda n, _: {"type": "object", "minProperties": n, "maxProperties": n}),
    "lengths": Family(lambda n, _: {"type": "string", "minLength": n, "maxLength": 2 * n}),
    "range": Family(lambda n, _: {"type": "integer", "minimum": -n, "maximum": 7 * n + 1}),
    "multiple": Family(
        lambda n, inner: {"type": "number", "multipleOf": inner(0), "minimum": n}, single=True
    ),
    "formats": Family(
        lambda n, _: {"anyOf": [{"type": "string", "format": f} for f in ("date", "uri")] * n}
    ),
    "anchors": Family(
        lambda n, inner: {
            "$defs": {
                f"d{at}": {"$id": f"http://x/{at}", "$anchor": f"a{at}", **_object(inner(at))}
                for at in range(n)
            },
            "allOf": [{"$ref": f"http://x/{at}#a{at}"} for at in range(n)],
        }
    ),
    "nearly known": Family(lambda n, _: {f"propertie{'s' * at}_": 1 for at in range(n)}),
}  # fmt: skip


def _words(value: Any) -> str:
    return value if isinstance(value, str) else "a|b"


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


FAMILIES: Mapping[str, Family] = {**SCHEMAS, **VALUES, **NUMBERS, **TEXTS}
assert len(FAMILIES) == sum(map(len, (SCHEMAS, VALUES, NUMBERS, TEXTS)))  # no name is there twice


@dataclass(frozen=True, order=True)
class Part:
    """A place of an input, as steps into it, and the chain of families that stands there."""

    place: str
    chain: tuple[Link, ...]

    def __str__(self) -> str:
        links = "/".join(f"{name}:{size}" for name, size in self.chain)
        return f"{self.place}={links}"

    @staticmethod
    def parse(text: str) -> Part:
        place, _, links = text.partition("=")
        chain = [link.rpartition(":") for link in links.split("/")]
        return Part(place, tuple((name, int(size)) for name, _, size in chain))


@dataclass(frozen=True)
class Case:
    """What is sent to one entry."""

    entry: str
    parts: tuple[Part, ...]

    def __str__(self) -> str:
        return "; ".join([self.entry, *map(str, self.parts)])

    @staticmethod
    def parse(line: str) -> Case:
        entry, *parts = line.split("; ")
        return Case(entry, tuple(map(Part.parse, parts)))

    @property
    def weight(self) -> int:
        """About how many bytes it has."""
        return sum(_weight(part.chain) for part in self.parts)


@dataclass(frozen=True)
class Entry:
    """A public entry: its usual input, and how one is sent; ``send`` returns a status or 0.

    ``places`` are steps into the usual input, joined by dots, and the families that stand there.
    """

    name: str
    usual: Any
    send: Callable[[Any], Awaitable[int]]
    places: Mapping[str, Sequence[str]] = field(default_factory=dict)
    most: int = 1_000_000  # bytes

    def input(self, case: Case) -> Any:
        """Return the usual input with the parts of a case, the inner ones first."""
        made = copy.deepcopy(self.usual)
        for part in sorted(case.parts, key=lambda part: part.place.count("."), reverse=True):
            _replace(made, part.place.split("."), part.chain)
        return made


def every_place(usual: Any, families: Sequence[str], above: str = "") -> dict[str, Sequence[str]]:
    """Return all places of an input, each with these families."""
    found: dict[str, Sequence[str]] = {}
    steps = usual.items() if isinstance(usual, dict) else ()
    steps = enumerate(usual) if isinstance(usual, list) else steps
    for step, value in steps:
        place = f"{above}.{step}" if above else str(step)
        found |= {place: families} | every_place(value, families, place)
    return found


def _replace(made: Any, steps: Sequence[str], chain: Sequence[Link]) -> None:
    holder: Any = made
    for step in steps[:-1]:
        holder = holder[_step(holder, step)]
    last = _step(holder, steps[-1])
    holder[last] = build(chain, holder[last])


def _step(holder: Any, step: str) -> Any:
    return int(step) if isinstance(holder, list) else step


def build(chain: Sequence[Link], usual: Any) -> Any:
    """Return what a chain stands for; where no leaf ends it, the usual value is innermost."""
    inner: Inner = lambda _: usual  # noqa: E731 - wrapped again and again
    for name, size in reversed(chain):
        inner = _wrapped(FAMILIES[name], size, inner)
    return inner(0)


def _wrapped(family: Family, size: int, inner: Inner) -> Inner:
    return lambda at: _each(family.build(size, inner), at) if at else family.build(size, inner)


def _weight(chain: Sequence[Link]) -> int:
    weight = _BYTES
    for name, size in reversed(chain):
        family = FAMILIES[name]
        if family.leaf:
            weight = _BYTES if family.sizes is _DIGITS else size
        else:
            weight = weight + _BYTES * size if family.single else (weight + _BYTES) * size
    return weight


def draw(entry: Entry, rng: random.Random) -> Case:
    """Return a case of one to three places, or now and then of all."""
    places = list(entry.places)
    count = rng.choice((1, 1, 1, 2, 3, len(places)))
    chosen = rng.sample(places, min(count, len(places)))
    most = entry.most // len(chosen)
    parts = [Part(one, _chain(entry.places[one], rng, most)) for one in chosen]
    return Case(entry.name, tuple(parts))


def drawing(entry: Entry, rng: random.Random) -> Iterator[Case]:
    """Yield cases without end: all pairs of a place and a family among those that are drawn.

    A case is made when it is its turn: those of all entries take hundreds of megabytes, which would
    be measured together with what the service keeps.
    """
    pairs = list(_families(entry))
    rng.shuffle(pairs)
    for pair in pairs:
        yield _as_large(entry, rng, *pair)
        yield draw(entry, rng)
    while True:
        yield draw(entry, rng)


def each_family(entry: Entry, rng: random.Random) -> Iterator[Case]:
    """Yield cases for each pair of a place and a family: as large as may be, and a short one."""
    for pair in _families(entry):
        yield _as_large(entry, rng, *pair)


def _families(entry: Entry) -> Iterator[tuple[str, str, int]]:
    for place, names in entry.places.items():
        for name in dict.fromkeys(names):
            for most in (entry.most, min(entry.most, _SHORT)):
                yield place, name, most


def _as_large(entry: Entry, rng: random.Random, place: str, name: str, most: int) -> Case:
    return Case(entry.name, (Part(place, _chain((name,), rng, most, largest=True)),))


def _chain(
    names: Sequence[str], rng: random.Random, most: int, *, largest: bool = False
) -> tuple[Link, ...]:
    chain: list[Link] = []
    left = most
    for _ in range(1 if largest else rng.randint(1, _LONG_CHAIN)):
        name = rng.choice(names)
        family = FAMILIES[name]
        fitting = [size for size in family.sizes if _weight([*chain, (name, size)]) <= left]
        if not fitting or (_nests(name) and any(_nests(one) for one, _ in chain)):
            break
        chain.append((name, fitting[-1] if largest else rng.choice(fitting)))
        if family.leaf:
            break
    return tuple(chain) or ((names[0], 1),)


def _nests(name: str) -> bool:
    return FAMILIES[name].sizes is _DEPTHS


def smaller(case: Case) -> Iterator[Case]:
    """Yield cases that are the same but for one part, one link, or the size of one."""
    for at, part in enumerate(case.parts):
        others = case.parts[:at], case.parts[at + 1 :]
        if others[0] or others[1]:
            yield replace(case, parts=others[0] + others[1])
        for chain in _smaller_chains(part.chain):
            yield replace(case, parts=(*others[0], replace(part, chain=chain), *others[1]))


def _smaller_chains(chain: tuple[Link, ...]) -> Iterator[tuple[Link, ...]]:
    for at, (name, size) in enumerate(chain):
        if len(chain) > 1:
            yield chain[:at] + chain[at + 1 :]
        for less in (size // 8, size // 2, size * 7 // 8, size - 1 if size < _BYTES + 2 else 0):
            if 0 < less < size:
                yield (*chain[:at], (name, less), *chain[at + 1 :])


async def shrink(case: Case, fails: Callable[[Case], Awaitable[bool]], tries: int = 60) -> Case:
    """Return a small case that still fails, as far as so many tries find one."""
    left = tries
    while left > 0:
        for one in smaller(case):
            left -= 1
            if left <= 0 or await fails(one):
                break
        else:
            return case
        if left > 0:
            case = one
    return case
