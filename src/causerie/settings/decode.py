"""Decodes plain values into the tree of settings, and finds every problem, not only the first.

``describe`` says in words what a setting takes; the messages and the
configuration reference use the same words.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin

import msgspec
from msgspec.inspect import is_struct_type
from msgspec.structs import FieldInfo

from causerie.protocol.declaration import metas, without_none
from causerie.protocol.nearest import ALIKE, nearest
from causerie.settings.problems import Problem, dotted
from causerie.settings.toml import KeyPath

S = TypeVar("S", bound=msgspec.Struct)
_WRONG: Any = object()  # the value of a setting that cannot be used
_USER = re.compile(r"//[^/\s]*@")


@cache
def fields(kind: type[msgspec.Struct]) -> Mapping[str, FieldInfo]:
    """Return the fields of a struct type by name, cached since this evaluates all annotations."""
    return {field.name: field for field in msgspec.structs.fields(kind)}


class SettingsDecoder:
    """Decodes plain values into structs of settings, and collects all problems.

    ``where`` gives the place (file and line, variable, flag) of a path. A value that is wrong
    is replaced by its default, or by a stand-in where there is none, so that the rest can be
    checked; ``faults`` holds the paths of those values.
    """

    def __init__(self, where: Callable[[KeyPath], str]) -> None:
        self._find_origin = where
        self.problems: list[Problem] = []
        self.faults: list[KeyPath] = []

    def struct(self, kind: type[S], value: object, path: KeyPath = ()) -> S:
        """Decode a table to a struct of type ``kind``; wrong values are replaced and noted."""
        if not isinstance(value, Mapping):
            self._add_problem(path, f"is {shown(value)}; it takes a table")
            return cast(S, self._build_placeholder(kind))
        known = fields(kind)
        for key in value:
            if key not in known:
                near = nearest(str(key), list(known), ALIKE)
                advice = f"did you mean `{near}`?" if near else f"known here: {', '.join(known)}"
                meant = near if near and near not in value else str(key)
                self._add_problem((*path, str(key)), f"is not a setting; {advice}", (*path, meant))
        decoded: dict[str, Any] = {}
        for name, field in known.items():
            if name in value:
                found = self._decode_or_wrong(field.type, value[name], (*path, name))
                if found is not _WRONG:
                    decoded[name] = found
            elif field.required:
                self._add_problem((*path, name), f"is missing; it takes {describe(field.type)}")
            if field.required and name not in decoded:
                decoded[name] = self._build_placeholder(field.type)
        return kind(**decoded)

    def _build_placeholder(self, value_type: Any) -> Any:
        # No two texts are the same, so that rules on names report nothing in addition.
        bare = plain(alone(value_type))
        if is_struct_type(bare):
            required = [field for field in fields(bare).values() if field.required]
            return bare(**{field.name: self._build_placeholder(field.type) for field in required})
        if get_origin(bare) is Literal:
            return get_args(bare)[0]
        if get_origin(bare) is tuple:
            return ()
        return f"wrong-{len(self.problems)}" if bare is str else bare()

    def _decode_or_wrong(self, value_type: Any, value: object, path: KeyPath) -> Any:
        only = alone(value_type)
        if value is None and only is not value_type:  # of no file: a flag hands on whole tables
            return None
        bare = plain(only)
        inline = extras(only).get("inline")
        if inline is not None and not isinstance(value, Mapping):
            self._add_problem(path, str(inline))
            return _WRONG
        if is_struct_type(bare):
            return self.struct(bare, value, path)
        table = table_of(bare)
        if table is not None and isinstance(value, Mapping):
            return self.struct(table, value, path)
        item = item_of(bare)
        if is_struct_type(plain(item)):
            if isinstance(value, list | tuple):
                found = [
                    self._decode_or_wrong(item, one, (*path, i)) for i, one in enumerate(value)
                ]
                return tuple(one for one in found if one is not _WRONG)
            if "inline" not in extras(item):
                self._add_problem(path, f"is {shown(value)}; it takes a list of tables")
                return _WRONG
        try:
            return msgspec.convert(value, value_type)
        except msgspec.ValidationError:
            known = "empty" if value == "" else shown(value)
            if _may_be_secret(value_type):
                known = "not usable"
            self._add_problem(path, f"is {known}; it takes {describe(value_type)}")
            return _WRONG

    def _add_problem(self, path: KeyPath, advice: str, as_fault: KeyPath | None = None) -> None:
        self.faults.append(path if as_fault is None else as_fault)
        self.problems.append(Problem(self._find_origin(path), dotted(path), advice))


def item_of(bare: Any) -> Any:
    """Return the type of the items in a tuple type; ``None`` for any other type."""
    return get_args(bare)[0] if get_origin(bare) is tuple else None


def shown(value: object) -> str:
    """Return a value as JSON text for messages, cut when long, without passwords in addresses."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "a table"
    text = _USER.sub("//…@", msgspec.json.encode(value, enc_hook=str).decode())
    return text if len(text) <= 60 else f"{text[:57]}..."


def names_user(text: str) -> bool:
    """Return true if a URL in ``text`` has a user name, and so perhaps a password."""
    return _USER.search(text) is not None


def plain(kind: Any) -> Any:
    """Return the type inside ``Annotated``, or the type itself if it is not annotated."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def alone(kind: Any) -> Any:
    """Return the type that an optional type has beside ``None``; any other type as it is."""
    bare = plain(kind)
    only = without_none(bare)
    return kind if only is bare else only


def table_of(bare: Any) -> type[msgspec.Struct] | None:
    """Return the struct type in a union of struct and literal; ``None`` for any other type."""
    kinds = get_args(bare) if get_origin(bare) in (Union, types.UnionType) else ()
    if not any(get_origin(kind) is Literal for kind in kinds):
        return None
    return next(filter(is_struct_type, kinds), None)


def extras(kind: Any) -> dict[str, Any]:
    """Return the extra notes in the annotations of a setting's type, by their names.

    - ``variable``: a variable of other programs that is read too.
    - ``words``: the accepted values, as text.
    - ``inline``: a secret itself may be the value.
    - ``secret``, ``digest``: the value is never shown, or not if it is wrong.
    """
    return {key: value for meta in metas(kind) for key, value in (meta.extra or {}).items()}


def is_secret(kind: Any) -> bool:
    return bool(extras(kind).get("secret"))


def _may_be_secret(value_type: Any) -> bool:
    if any(extras(value_type).get(mark) for mark in ("secret", "inline", "digest")):
        return True
    bare = plain(value_type)
    return get_origin(bare) is not Literal and any(map(_may_be_secret, get_args(bare)))


def describe(kind: Any) -> str:
    """Return words that say which values a setting of this type takes."""
    limits = metas(kind)
    bare = plain(kind)
    words = extras(kind).get("words")
    if words is not None:
        return str(words)
    origin = get_origin(bare)
    if origin in (Union, types.UnionType):
        options = [option for option in get_args(bare) if option is not type(None)]
        return " or ".join(describe(option) for option in options)
    if origin is Literal:
        return joined_by_or([f'`"{option}"`' for option in get_args(bare)])
    if origin is tuple:
        return f"a list, each {describe(get_args(bare)[0])}"
    if bare is bool:
        return "`true` or `false`"
    if bare is int or bare is float:
        return ("a whole number" if bare is int else "a number") + _format_bounds(limits)
    if bare is str:
        return "a text"
    return "a table"


def _format_bounds(constraints: list[msgspec.Meta]) -> str:
    words = []
    for meta in constraints:
        bounds = {"from": meta.ge, "above": meta.gt, "to": meta.le, "below": meta.lt}
        words += [f" {word} {value:.15g}" for word, value in bounds.items() if value is not None]
    return "".join(words)


def joined_by_or(options: Iterable[str]) -> str:
    *first, last = options
    return f"{', '.join(first)} or {last}" if first else last
