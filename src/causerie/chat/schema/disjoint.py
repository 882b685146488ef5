"""Proves that options of a ``oneOf`` exclude each other, and tells if patterns may overlap."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache

from llguidance import LLMatcher, LLParserLimits

from causerie.chat.schema.compiled import HEADER, Work, matcher_of
from causerie.chat.schema.keywords import Schema, as_list, as_mapping, constants, one_or_several
from causerie.chat.schema.rewriting import declared_types, is_never
from causerie.chat.schema.values import canonical, is_number, json_type_name

# Patterns with different fixed beginnings are told apart at once. To compare two others takes about
# a millisecond, so a few pairs of a schema are compared, and all others may overlap. Python's own
# matcher gets no pattern of a client, because some make it backtrack without end.

_LIMITS = LLParserLimits(initial_lexer_fuel=100_000, max_lexer_states=10_000, verbose_errors=False)
MOST_MATCHED = 4_000
"""Pairs of a name and a pattern that are compared in one schema."""
MOST_COMPARED = 6
"""Pairs of patterns that are compared in one schema."""
_MOST_HEAD = 24  # characters of a fixed beginning that are looked at
_HEAD = re.compile(r"\^([\w :/-]*)(\$\Z)?")
_REPEATED = frozenset("?*+{")
_LITERAL = re.compile(r"(\^?)([\w :/-]*)(\$?)")


def matches(pattern: str, name: str) -> bool:
    """Return whether a rewritten pattern matches ``name``; true if that takes too long to tell."""
    literal = _LITERAL.fullmatch(pattern)
    if literal is not None:
        start, text, end = literal.groups()
        if start:
            return name == text if end else name.startswith(text)
        return name.endswith(text) if end else text in name
    matcher = _compile_matcher_requiring_all_patterns(pattern).deep_copy()
    raw = list(json.dumps(name, ensure_ascii=False).encode(errors="replace"))
    taken = matcher.try_consume_tokens(raw)
    return (taken == len(raw) and matcher.is_accepting()) or matcher.is_error()


def beginnings_meet(one: str, other: str) -> bool:
    """Return whether one text can begin with the fixed beginnings of both patterns."""
    first, second = _extract_literal_prefix(one), _extract_literal_prefix(other)
    return first.startswith(second) or second.startswith(first)


@lru_cache(maxsize=1024)
def _extract_literal_prefix(pattern: str) -> str:
    found = _HEAD.match(pattern)
    if found is None or "|" in pattern:
        return ""
    head = found[1] + (found[2] or "")
    if pattern[len(head) + 1 : len(head) + 2] in _REPEATED:
        head = head[:-1]
    return head[:_MOST_HEAD]


@lru_cache(maxsize=256)
def may_overlap(one: str, other: str) -> bool:
    matcher = _compile_matcher_requiring_all_patterns(one, other)
    return not (matcher.is_error() and "empty" in matcher.get_error().lower())


@lru_cache(maxsize=256)
def _compile_matcher_requiring_all_patterns(*patterns: str) -> LLMatcher:
    schema = {"type": "string", "allOf": [{"pattern": each} for each in patterns]}
    return matcher_of(f"{HEADER}%json {json.dumps(schema, ensure_ascii=False)}", _LIMITS)


# Only reasons that can be proven count: other types, other constants, a required property whose
# schemas exclude each other, or one that the other option does not allow.

_KINDS = {name: frozenset({name}) for name in ("object", "array", "string", "boolean", "null")}
_KINDS |= {"integer": frozenset({"whole"}), "number": frozenset({"whole", "fraction"})}
_ALL = frozenset[str]().union(*_KINDS.values())
_MAX_STEPS = 8_000  # of one document, of some 20 µs each
_MAX_DEPTH = 24
_CONSTANTS_A_STEP = 5
_NAMES_A_STEP = 50
_CHARACTERS_A_STEP = 200


class SchemaDisjointness:
    """Proves that schemas exclude each other; ``resolve`` finds what a ``$ref`` names."""

    def __init__(self, resolve: Callable[[str], object]) -> None:
        self._resolve_reference = resolve
        self._work_counter = Work(_MAX_STEPS)
        self._kept_schemas: list[object] = []  # kept, so that no other has the identity of one
        self._is_disjoint_by_pair: dict[tuple[int, int, frozenset[str]], bool] = {}  # by identity
        self._constant_kinds_by_schema_id: dict[int, Mapping[str, str]] = {}  # likewise

    def overlaps(self, options: Sequence[object], *, within: object) -> Iterator[tuple[int, int]]:
        """Yield index pairs of options that may overlap; ``within`` is the ``type`` beside them."""
        frame = _expand_to_kinds(within)
        for second in range(len(options)):
            for first in range(second):
                if not self._are_disjoint(options[first], options[second], frame, 0):
                    yield first, second

    def possible(self, options: Sequence[object]) -> list[int]:
        """Return the indexes of the options that may be the only one to hold."""
        # One that is there twice is never alone; beside one that always holds, no other is.
        always = [at for at, option in enumerate(options) if option is True or option == {}]
        texts = [self._write_canonical_text_or_empty(option) for option in options]
        times = Counter(texts)
        alone = always or range(len(options))
        return [at for at in alone if not texts[at] or times[texts[at]] == 1]

    def _write_canonical_text_or_empty(self, option: object) -> str:
        text = canonical(option) if self._try_spend(1) else ""
        self._try_spend(len(text) // _CHARACTERS_A_STEP)
        return text

    def _are_disjoint(self, a: object, b: object, types: frozenset[str], depth: int) -> bool:
        pair = id(a), id(b), types
        if pair not in self._is_disjoint_by_pair:
            self._kept_schemas += (a, b)
            found = self._prove_disjoint(a, b, types, depth)
            if self._work_counter.left > 0:
                self._is_disjoint_by_pair[pair] = found
            return found
        return self._is_disjoint_by_pair[pair]

    def _prove_disjoint(self, a: object, b: object, types: frozenset[str], depth: int) -> bool:
        if not self._try_spend(1) or depth > _MAX_DEPTH:
            return False
        if is_never(a) or is_never(b):
            return True
        if not isinstance(a, Mapping) or not isinstance(b, Mapping):
            return False
        types = types & _expand_to_kinds(declared_types(a)) & _expand_to_kinds(declared_types(b))
        if not types or self._has_disjoint_constants_or_properties(a, b, types, depth):
            return True
        return self._prove_by_parts_of_a(a, b, types, depth) or self._prove_by_parts_of_a(
            b, a, types, depth
        )

    def _has_disjoint_constants_or_properties(
        self, a: Schema, b: Schema, types: frozenset[str], depth: int
    ) -> bool:
        mine, theirs = self._read_kinds_by_constant_text(a), self._read_kinds_by_constant_text(b)
        if mine is not None and theirs is not None:
            few = min(len(mine), len(theirs))
            return self._try_spend(few // _NAMES_A_STEP) and mine.keys().isdisjoint(theirs.keys())
        for values in (mine, theirs):
            if values is not None and not types.intersection(values.values()):
                return True
        if types != {"object"}:
            return False
        names = len(as_list(a.get("required"))) + len(as_list(b.get("required")))
        if not self._try_spend(names // _NAMES_A_STEP):
            return False
        if _is_closed_to_any_of(a, b.get("required")) or _is_closed_to_any_of(b, a.get("required")):
            return True
        mine_named, theirs_named = (as_mapping(each.get("properties")) for each in (a, b))
        required = {*_list_strings(a.get("required")), *_list_strings(b.get("required"))}
        return any(
            self._are_disjoint(mine_named[name], theirs_named[name], _ALL, depth + 1)
            for name in required
            if None not in (mine_named.get(name), theirs_named.get(name))
        )

    def _read_kinds_by_constant_text(self, schema: Schema) -> Mapping[str, str] | None:
        values = constants(schema)
        if values is None:
            return None
        known = self._constant_kinds_by_schema_id.get(id(schema))
        if known is None:
            known = {canonical(value): _get_kind_of_constant(value) for value in values}
            self._constant_kinds_by_schema_id[id(schema)] = known
            characters = sum(map(len, known)) // _CHARACTERS_A_STEP
            self._try_spend(len(known) // _CONSTANTS_A_STEP + characters)
        return known

    def _try_spend(self, steps: int) -> bool:
        self._work_counter.left -= steps
        return self._work_counter.left > 0

    def _prove_by_parts_of_a(self, a: Schema, b: object, types: frozenset[str], depth: int) -> bool:
        reference = a.get("$ref")
        target = self._resolve_reference(reference) if isinstance(reference, str) else True
        if self._are_disjoint(target, b, types, depth + 1):
            return True
        if any(self._are_disjoint(part, b, types, depth + 1) for part in as_list(a.get("allOf"))):
            return True
        for key in ("anyOf", "oneOf"):
            options = as_list(a.get(key))
            if options and all(self._are_disjoint(one, b, types, depth + 1) for one in options):
                return True
        return False


def _expand_to_kinds(type_keyword: object) -> frozenset[str]:
    names = one_or_several(type_keyword)
    known = [_KINDS[name] for name in names if isinstance(name, str) and name in _KINDS]
    return frozenset[str]().union(*known) if known else _ALL


def _get_kind_of_constant(constant: object) -> str:
    if is_number(constant):
        return "whole" if constant == int(constant) else "fraction"
    return json_type_name(constant)


def _is_closed_to_any_of(schema: Schema, required: object) -> bool:
    if schema.get("additionalProperties") is not False or "patternProperties" in schema:
        return False
    named = schema.get("properties", {})
    return isinstance(named, Mapping) and any(name not in named for name in _list_strings(required))


def _list_strings(items: object) -> list[str]:
    return [name for name in as_list(items) if isinstance(name, str)]
