"""A schema rewritten into the part of JSON Schema that is enforced exactly.

A schema of draft 4 to 2020-12 becomes one of few keywords, for a grammar or for the check of a
finished answer; or a refusal names the place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from causerie.chat.schema import keywords as words
from causerie.chat.schema.certain import CHECKED
from causerie.chat.schema.disjoint import MOST_COMPARED, beginnings_meet, may_overlap
from causerie.chat.schema.finite import Contradictions, Endless, circle, without_endless
from causerie.chat.schema.keywords import Place, Schema, as_list, one_or_several, part_at, step
from causerie.chat.schema.narrowing import SchemaNarrowing
from causerie.chat.schema.pattern import LOOKS, Refused, searches
from causerie.chat.schema.references import placed, without_siblings
from causerie.chat.schema.rewriting import SIZES, plain, satisfiable
from causerie.chat.schema.values import LEAKY_RANGE, MAX_DEPTH, Values, is_leaky_range, is_number

Node = dict[str, object]
JsonSchema = Schema | bool

MAX_LENGTH = 100_000  # of a string that has a bound
MAX_ITEMS = 1_000  # of an array that has a bound
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_DEPENDENCIES = ("dependentRequired", "dependentSchemas", "dependencies")
_SUBSCHEMAS = ("contains", "propertyNames", "not", "if", "then", "else", "unevaluatedItems",
               "unevaluatedProperties", "additionalProperties")  # fmt: skip
_MOST_PATTERNS = 200  # of names in a grammar, each of which is compared with all others
_MOST_IGNORED = 32  # unknown keywords and formats that are named


@dataclass(slots=True)
class Rewriter:
    """Rewrites one schema into few keywords; ``param`` names the request's field in errors.

    The result says all that the schema says. With ``for_grammar``, it is what a grammar can say:
    conditions are alternatives (:mod:`causerie.chat.schema.narrowing`), bounds are those that a
    grammar has, and an object that names its properties and says nothing of others is written with
    no others: a model left free to invent some often never stops. Each admits only valid documents,
    apart from the rules that :meth:`left` names.

    With ``for_parts``, it is what our own grammars of calls say, which combine the parts that hold
    at once: each part tells where it stood (``AT``), and none is closed. Constants, patterns and
    formats are as they were sent.

    Unknown keywords and formats are annotations; :meth:`ignored` names them.
    """

    root: JsonSchema
    param: str
    for_grammar: bool = False
    for_parts: bool = False
    checked: set[str] = field(default_factory=set)
    """Pointers of schemas of which the grammar admits more than they do; they are marked."""
    _definition_names: dict[tuple[str, bool], str] = field(default_factory=dict)
    _unwritten_definitions: list[tuple[str, bool]] = field(default_factory=list)
    _notices: dict[str, str] = field(default_factory=dict)  # by the pointer of one that has it
    _ignored_keywords: set[str] = field(default_factory=set)
    _unenforced_keywords: dict[str, str] = field(default_factory=dict)  # by pointer
    _marked_pointers: set[str] = field(default_factory=set)
    _value_checker: Values = field(init=False)
    _narrowing: SchemaNarrowing = field(init=False)
    _contradiction_finder: Contradictions = field(init=False)
    _pattern_comparisons_left: int = MOST_COMPARED

    def __post_init__(self) -> None:
        self._value_checker = Values(self._new_refusal)
        self._narrowing = SchemaNarrowing(self._resolve_reference)
        self._contradiction_finder = Contradictions(self._resolve_reference)
        if not isinstance(self.root, bool):
            said, siblings = without_siblings(self.root)
            for key in siblings:
                self._add_ignored_notice(f"$ref {key}", words.ignored_sibling(key))
            self.root = placed(said)

    def rewrite(self) -> Node:
        """Return the whole schema rewritten; raise :class:`SchemaRefused`."""
        top = self._rewrite_schema(self.root, "#", 0, True)
        if top is False:
            raise self._new_refusal("#", "`false` admits no document at all.")
        top = {} if isinstance(top, bool) else top
        definitions: Node = {}
        while self._unwritten_definitions:
            pointer, alone = self._unwritten_definitions.pop()
            target = self._rewrite_schema(self._resolve_reference(pointer), pointer, 0, alone)
            named = {"$comment": pointer, **target} if isinstance(target, dict) else target
            definitions[self._definition_names[pointer, alone]] = named
        if not self.for_grammar and self.checked - self._marked_pointers:
            top[CHECKED] = True
        turning = circle(definitions)
        if turning is not None:
            pointer = next(
                at for (at, _), name in self._definition_names.items() if name == turning
            )
            raise self._new_refusal(pointer, "it refers to itself in the same place.")
        try:
            return without_endless({**top, "$defs": definitions} if definitions else top)
        except Endless as endless:
            raise self._new_refusal(endless.pointer, str(endless)) from None

    def ignored(self) -> tuple[str, ...]:
        """Return header texts for ignored keywords and formats that hold no definition in use."""
        used = [reference for reference, _ in self._definition_names]
        names = [
            name
            for pointer, name in self._notices.items()
            if not any(reference.startswith(pointer + "/") for reference in used)
        ]
        return tuple(f"{self.param} {name}" for name in names)

    def left(self) -> tuple[tuple[str, str], ...]:
        """Return pointer and keyword of each rule that the grammar does not enforce exactly."""
        return tuple(self._unenforced_keywords.items())

    def _leave_to_check(self, schema_pointer: str, keyword_pointer: str, keyword: str) -> None:
        # Equal items are watched for in another way.
        self._unenforced_keywords[keyword_pointer] = keyword
        if keyword != "uniqueItems":
            self.checked.add(schema_pointer)

    def _note_ignored_keyword(self, pointer: str, keyword: str) -> None:
        if len(self._ignored_keywords) < _MOST_IGNORED and keyword not in self._ignored_keywords:
            self._ignored_keywords.add(keyword)
            self._add_ignored_notice(step(pointer, keyword), words.ignored_keyword(keyword))

    def _add_ignored_notice(self, pointer: str, notice: str) -> None:
        if len(self._notices) < _MOST_IGNORED and notice not in self._notices.values():
            self._notices[pointer] = notice

    def _new_refusal(self, pointer: str, reason: str) -> words.SchemaRefused:
        return words.SchemaRefused(self.param, reason, pointer)

    def _rewrite_schema(self, schema: object, pointer: str, depth: int, alone: bool) -> Node | bool:
        self._value_checker.count(pointer, subschemas=1)
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, Mapping):
            raise self._new_refusal(pointer, "a schema is an object or a boolean.")
        if depth > MAX_DEPTH:
            raise self._new_refusal(pointer, f"it nests deeper than {MAX_DEPTH} levels.")
        out: Node = {}
        if self.for_parts and schema:
            schema, pointer = _unwrap_single_all_of(schema, pointer)
            alone, out = False, {words.AT: pointer}
        schema = self._simplify_schema(schema, pointer, alone)
        if isinstance(schema, bool):
            return schema
        place = Place(schema, pointer, depth, alone, out)
        self._write_keywords(place)
        self._mark_checked_and_close(place, out)
        if is_leaky_range(out):
            raise self._new_refusal(step(pointer, "exclusiveMinimum"), LEAKY_RANGE)
        return out

    def _write_keywords(self, place: Place) -> None:
        for key, value in place.schema.items():
            handler = _HANDLERS.get(key)
            if handler is not None:
                handler(self, place, key, value, step(place.pointer, key))
            elif key in words.REFUSED:
                raise self._new_refusal(place.pointer, f"`{key}` is not supported; use $ref.")
            elif words.is_unknown(key):
                self._note_ignored_keyword(place.pointer, key)

    def _simplify_schema(self, schema: Schema, pointer: str, alone: bool) -> Schema | bool:
        if not (self.for_grammar or self.for_parts):
            return satisfiable(schema)
        said = self._contradiction_finder.possible(plain(schema, pointer, self._resolve_reference))
        if isinstance(said, bool):
            return said
        narrowed, left = self._narrowing.of(said, pointer, alone=alone)
        for keyword in left if self.for_grammar else ():
            self._leave_to_check(pointer, step(pointer, keyword), keyword)
        return narrowed

    def _rewrite_child(
        self, place: Place, subschema: object, *keys: str | int, alone: bool = True
    ) -> Node | bool:
        return self._rewrite_schema(subschema, step(place.pointer, *keys), place.depth + 1, alone)

    def _refuse_inner_id(self, place: Place, key: str, value: object, pointer: str) -> None:
        if place.pointer != "#":
            raise self._new_refusal(
                pointer,
                "a schema inside another may have no address of its own, but a plain name that "
                "nothing else has, and then no references that begin with `#`; leave `$id` out.",
            )

    # Keywords that hold for any value

    def _write_type(self, place: Place, key: str, value: object, pointer: str) -> None:
        named = one_or_several(value)
        if not named or any(name not in words.TYPES for name in named):
            raise self._new_refusal(
                pointer, f"it must be one or several of {', '.join(words.TYPES)}."
            )
        place.out["type"] = named[0] if len(named) == 1 else list(dict.fromkeys(named))

    def _write_const(self, place: Place, key: str, value: object, pointer: str) -> None:
        written = self._value_checker.constant(value, pointer)
        place.out[key] = value if self.for_parts else written

    def _write_enum(self, place: Place, key: str, value: object, pointer: str) -> None:
        if not isinstance(value, list):
            raise self._new_refusal(pointer, "it must be an array.")
        if not value:
            raise self._new_refusal(pointer, "it lists nothing, so no document can satisfy it.")
        places = (step(pointer, index) for index in range(len(value)))
        written = [*map(self._value_checker.constant, value, places)]
        place.out[key] = value if self.for_parts else written

    def _write_reference(self, place: Place, key: str, value: object, pointer: str) -> None:
        if not isinstance(value, str) or not (value == "#" or value.startswith("#/")):
            raise self._new_refusal(
                pointer,
                f"{str(value)[:200]!r} names a document that is not in the schema; "
                "put it below `$defs`, with its `$id`.",
            )
        self._resolve_reference(value, pointer=pointer)
        target = (value, self._is_keyword_only_schema_of_value(place, key))
        if target not in self._definition_names:
            self._definition_names[target] = f"d{len(self._definition_names)}"
            self._unwritten_definitions.append(target)
        place.out["$ref"] = f"#/$defs/{self._definition_names[target]}"

    def _resolve_reference(self, reference: str, pointer: str = "#") -> object:
        try:
            return part_at(self.root, reference)
        except LookupError:
            reason = f"{reference[:200]!r} points to nothing in the schema."
            raise self._new_refusal(pointer, reason) from None

    def _append_to_all_of(self, place: Place, key: str, value: object, pointer: str) -> None:
        options = self._rewrite_schema_list(place, key, value, alone=False)
        place.out["allOf"] = [*as_list(place.out.get("allOf")), *options]

    def _write_alternatives(self, place: Place, key: str, value: object, pointer: str) -> None:
        options = self._rewrite_schema_list(
            place, key, value, alone=self._is_keyword_only_schema_of_value(place, key)
        )
        _add_keyword(place.out, "anyOf" if self.for_grammar else key, options)

    def _write_subschema(self, place: Place, key: str, value: object, pointer: str) -> None:
        place.out[key] = self._rewrite_child(place, value, key, alone=key == "additionalProperties")

    def _append_dependency_ifs(self, place: Place, key: str, value: object, pointer: str) -> None:
        for name, needs in self._list_named_schemas(value, pointer):
            if isinstance(needs, str | list):
                needs = {"required": [needs] if isinstance(needs, str) else needs}
            held: Node = {"type": "object", "required": [name]}
            part = self._rewrite_child(place, needs, key, name, alone=False)
            place.out["allOf"] = [*as_list(place.out.get("allOf")), {"if": held, "then": part}]

    def _is_keyword_only_schema_of_value(self, place: Place, keyword: str) -> bool:
        return place.alone and words.APPLIES.isdisjoint(place.schema.keys() - {keyword})

    def _rewrite_schema_list(
        self, place: Place, key: str, value: object, *, alone: bool = True
    ) -> list[Node | bool]:
        if not isinstance(value, list) or not value:
            at = step(place.pointer, key)
            raise self._new_refusal(at, "it must be an array of at least one schema.")
        return [self._rewrite_child(place, of, key, at, alone=alone) for at, of in enumerate(value)]

    # Keywords of strings and numbers

    def _write_size(self, place: Place, key: str, value: object, pointer: str) -> None:
        number = self._value_checker.finite(value, pointer)
        if not isinstance(number, int) or number < 0:
            raise self._new_refusal(pointer, "it must be a whole number from 0 up.")
        limit = MAX_LENGTH if key.endswith("Length") else MAX_ITEMS
        if number > limit and key.startswith("min"):
            raise self._new_refusal(pointer, f"it is beyond {limit}, the most that is enforced.")
        place.out[key] = min(number, limit) if self.for_grammar else number

    def _write_pattern(self, place: Place, key: str, value: object, pointer: str) -> None:
        for pattern in self._rewrite_to_required_patterns(value, pointer):
            _add_keyword(place.out, "pattern", pattern)

    def _rewrite_to_required_patterns(self, pattern: object, pointer: str) -> list[str]:
        if not isinstance(pattern, str):
            raise self._new_refusal(pointer, "it must be a string.")
        self._value_checker.count(pointer, text=len(pattern))
        try:
            rewritten = searches(pattern)
        except Refused as refused:
            raise self._new_refusal(pointer, str(refused)) from None
        return [pattern] if self.for_parts else rewritten

    def _write_format(self, place: Place, key: str, value: object, pointer: str) -> None:
        if "string" not in one_or_several(place.schema.get("type", "string")):
            return  # says nothing about other values (`int32`, `double`)
        if not isinstance(value, str):
            raise self._new_refusal(pointer, "it must be a string.")
        if value in words.FORMATS or (self.for_parts and value in words.SPELLED):
            place.out[key] = value
        elif value in words.SPELLED:
            _add_keyword(place.out, "pattern", f"^(?:{words.SPELLED[value]})$")
        elif value not in words.NOTES and not (
            value in words.SAID_BY_PATTERN and place.schema.keys() & {"pattern", "allOf"}
        ):
            self._add_ignored_notice(pointer, words.ignored_format(value))

    def _write_bound(self, place: Place, key: str, value: object, pointer: str) -> None:
        plain = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}.get(key)
        if plain is not None and isinstance(value, bool):
            if not value:
                return
            value = place.schema.get(plain)
        number = self._value_checker.finite(value, pointer)
        if not self.for_grammar:
            place.out[key] = number
            return
        _add_keyword(place.out, *self._value_checker.bound(key, number, pointer))

    def _write_multiple_of(self, place: Place, key: str, value: object, pointer: str) -> None:
        number = self._value_checker.finite(value, pointer)
        if number <= 0:
            raise self._new_refusal(pointer, "it must be above 0.")
        most, below = place.schema.get("maximum"), place.schema.get("exclusiveMaximum")
        if (is_number(most) and most < 0) or (is_number(below) and below <= 0):
            raise self._new_refusal(
                pointer, "multiples of negative numbers alone are not supported."
            )
        if not self.for_grammar:
            place.out[key] = number
            return
        kind = place.schema.get("type")
        number = self._value_checker.multiple(number, pointer, whole=kind == "integer")
        if not (kind == "integer" and number == 1):
            place.out[key] = number

    # Keywords of arrays

    def _write_items(self, place: Place, key: str, value: object, pointer: str) -> None:
        if not isinstance(value, list):
            place.out["items"] = self._rewrite_child(place, value, key)
            return
        if "prefixItems" in place.schema:
            raise self._new_refusal(place.pointer, "it has both prefixItems and an array of items.")
        self._write_prefix_items(place, key, value, pointer)
        if "additionalItems" in place.schema:
            rest = place.schema["additionalItems"]
            place.out["items"] = self._rewrite_child(place, rest, "additionalItems")

    def _write_prefix_items(self, place: Place, key: str, value: object, pointer: str) -> None:
        options = self._rewrite_schema_list(place, key, value)
        if len(options) > MAX_ITEMS:
            raise self._new_refusal(pointer, f"it lists more than {MAX_ITEMS} items.")
        place.out["prefixItems"] = options

    def _copy_unique_items(self, place: Place, key: str, value: object, pointer: str) -> None:
        if not isinstance(value, bool):
            raise self._new_refusal(pointer, "it must be true or false.")
        place.out[key] = value

    # Keywords of objects

    def _write_properties(self, place: Place, key: str, value: object, pointer: str) -> None:
        place.out[key] = {
            name: self._rewrite_child(place, schema, key, name)
            for name, schema in self._list_named_schemas(value, pointer)
        }

    def _list_named_schemas(self, schemas: object, pointer: str) -> Sequence[tuple[str, object]]:
        if not isinstance(schemas, Mapping):
            raise self._new_refusal(pointer, "it must be an object of schemas.")
        self._value_checker.count(pointer, text=sum(map(len, schemas)))
        return list(schemas.items())

    def _write_pattern_properties(
        self, place: Place, key: str, value: object, pointer: str
    ) -> None:
        if self.for_grammar and not place.by_itself:
            # Alongside other schemas of the object, grammars have none.
            self._leave_to_check(place.pointer, pointer, key)
            return
        parts: dict[str, object] = {}
        for pattern, schema in self._list_named_schemas(value, pointer):
            inside = step(pointer, pattern)
            rewritten, *ahead = self._rewrite_to_required_patterns(pattern, inside)
            if ahead:
                raise self._new_refusal(inside, LOOKS)
            part = self._rewrite_child(place, schema, key, pattern)
            if not self.for_grammar:
                held = [parts[rewritten]] if rewritten in parts else []
                parts[rewritten] = {"allOf": [*held, part]} if held else part
                continue
            rival = next((one for one in parts if self._is_rival(one, rewritten, parts, part)), "")
            if len(parts) == _MOST_PATTERNS or (rival and parts[rival] != part):
                self._leave_to_check(place.pointer, inside, key)
            elif rival:
                del parts[rival]
                parts[f"(?:{rival})|(?:{rewritten})"] = part
            else:
                parts[rewritten] = part
        place.out[key] = parts

    def _is_rival(
        self, pattern: str, other: str, schemas: Mapping[str, object], schema: object
    ) -> bool:
        if not beginnings_meet(pattern, other):
            return False
        if schemas[pattern] == schema or pattern == other or not self._pattern_comparisons_left:
            return True
        self._pattern_comparisons_left -= 1
        return may_overlap(pattern, other)

    def _write_required(self, place: Place, key: str, value: object, pointer: str) -> None:
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise self._new_refusal(pointer, "it must be an array of property names.")
        self._value_checker.count(pointer, values=len(value), text=sum(map(len, value)))
        place.out[key] = list(dict.fromkeys(value))

    def _mark_checked_and_close(self, place: Place, out: Node) -> None:
        if not self.for_grammar and place.pointer in self.checked:
            self._marked_pointers.add(place.pointer)
            out[CHECKED] = True
        required = as_list(out.get("required"))
        fewest = out.get("minProperties")
        if self.for_grammar and isinstance(fewest, int) and fewest <= len(required):
            del out["minProperties"]
        named = out.get("properties")
        if not (self.for_grammar and place.by_itself and named and isinstance(named, Mapping)):
            return
        silent = "additionalProperties" not in out and "patternProperties" not in out
        names_some = any(of is not False for of in named.values())
        if silent and names_some and all(name in named for name in required):
            out["additionalProperties"] = False


def _unwrap_single_all_of(schema: Schema, pointer: str) -> tuple[Schema, str]:
    match schema:
        case {"allOf": [Mapping() as part], **rest} if all(map(words.is_annotation, rest)):
            return {**rest, **part}, step(pointer, "allOf", 0)
    return schema, pointer


def _add_keyword(schema: Node, keyword: str, value: object) -> None:
    if keyword in schema:
        schema["allOf"] = [*as_list(schema.get("allOf")), {keyword: value}]
    else:
        schema[keyword] = value


_Handler = Callable[[Rewriter, Place, str, object, str], None]
_HANDLERS: Mapping[str, _Handler] = {
    "$id": Rewriter._refuse_inner_id,
    "type": Rewriter._write_type,
    "const": Rewriter._write_const,
    "enum": Rewriter._write_enum,
    "$ref": Rewriter._write_reference,
    "allOf": Rewriter._append_to_all_of,
    **dict.fromkeys(("anyOf", "oneOf"), Rewriter._write_alternatives),
    **dict.fromkeys(SIZES, Rewriter._write_size),
    "pattern": Rewriter._write_pattern,
    "format": Rewriter._write_format,
    **dict.fromkeys(_BOUNDS, Rewriter._write_bound),
    "multipleOf": Rewriter._write_multiple_of,
    "items": Rewriter._write_items,
    "prefixItems": Rewriter._write_prefix_items,
    "uniqueItems": Rewriter._copy_unique_items,
    **dict.fromkeys(_SUBSCHEMAS, Rewriter._write_subschema),
    **dict.fromkeys(_DEPENDENCIES, Rewriter._append_dependency_ifs),
    "properties": Rewriter._write_properties,
    "patternProperties": Rewriter._write_pattern_properties,
    "required": Rewriter._write_required,
}
