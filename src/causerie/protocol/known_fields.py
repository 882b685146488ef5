"""The known fields of a request, removal of all others, and names of privileged fields."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from msgspec import Struct, convert

from causerie.errors import InvalidRequest
from causerie.protocol import parameters
from causerie.protocol.body import unsupported
from causerie.protocol.declaration import declared
from causerie.protocol.parameters import HINT_NAMES, REFUSED
from causerie.protocol.request import ROLES, Role, Unlisted

Privilege = Literal[
    "model", "provider", "price", "plugin", "limit", "transport", "address", "secret"
]

_LISTED = convert(parameters.LISTED_FIELDS["privileges"], dict[Privilege, dict[str, Any]])
PRIVILEGES: Mapping[Privilege, str] = {each: _LISTED[each]["gain"] for each in _LISTED}
"""What a client gains by fields of each kind."""

_BY_NAME: Mapping[str, Privilege] = {
    name: privilege for privilege in _LISTED for name in _LISTED[privilege]["names"]
}
_ADDRESS = re.compile(
    r"(?:^|_)(?:addr|address|addresses|callback|callbacks|domain|domains|provider|providers|host|"
    r"hostname|hosts|ip|origin|port|proxies|proxy|redirect|server|servers|uri|uris|url|urls|"
    r"webhook|webhooks|website|websites)(?:_|$)"
)
_RUN_TOGETHER = re.compile(r"(?:url|uri|webhook|hostname|callback)s?$")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def privilege_of(name: str) -> Privilege | None:
    """Return the privilege that a field of this name would use, in any spelling of the name."""
    plain = _HUMP.sub("_", name[:256]).replace("-", "_").replace(".", "_").strip("_ ").lower()
    found = _BY_NAME.get(plain)
    if found is None and (_ADDRESS.search(plain) or _RUN_TOGETHER.search(plain)):
        return "address"
    return found


_MESSAGES = "messages"
# No path that a configuration lists is longer.
_LONGEST_NAME = 128
_LONGEST_PATH = 16 * (_LONGEST_NAME + 1)


@dataclass(frozen=True, slots=True)
class Known:
    """Known field names of a value or of its elements; ``others`` says which more may pass."""

    fields: Mapping[str, Known] = field(default_factory=dict)
    others: Literal["closed", "passed", "open"] = "closed"
    """``closed``: no other names; ``passed``: others but privileged ones; ``open``: all."""
    objects: frozenset[str] = frozenset()
    """Fields of which only what is inside is listed: a value that is no object is not."""


LEAF = Known()
OPEN = Known(others="open")
PASSED = Known(others="passed")


def known_of(kind: Any) -> Known:
    bare = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    origin = get_origin(bare)
    if origin in (Union, UnionType):
        return reduce(_merge_known_fields, map(known_of, get_args(bare)))
    if origin is tuple:
        return known_of(get_args(bare)[0])
    if isinstance(origin or bare, type) and issubclass(origin or bare, Mapping):
        return OPEN
    if isinstance(bare, type) and issubclass(bare, Struct):
        fields = {each.name: known_of(each.type) for each in declared(bare)}
        tag = bare.__struct_config__.tag_field
        return Known(fields | ({tag: LEAF} if tag else {}))
    return LEAF


def _merge_known_fields(left: Known, right: Known) -> Known:
    fields = dict(left.fields)
    for name, known in right.fields.items():
        fields[name] = _merge_known_fields(fields[name], known) if name in fields else known
    return Known(fields, "open" if "open" in (left.others, right.others) else "closed")


KNOWN = Known(
    {
        **dict.fromkeys(REFUSED, LEAF),
        # A hint of an unexpected type is not sent on.
        **{
            name: known if (known := known_of(each.type)).fields else OPEN
            for name, each in parameters.HINTS.items()
        },
        **{name: known_of(each.type) for name, each in parameters.PARAMETERS.items()},
    }
)
"""The fields of the interface."""


def grown(known: Known, path: str, below: Known) -> Known:
    """Return ``known`` with a further field, whose path (``a.b``) has no indexes."""
    name, _, rest = path.partition(".")
    objects = known.objects
    if rest:
        objects = objects if name in known.fields else objects | {name}
        below = grown(known.fields.get(name, LEAF), rest, below)
    elif name in known.fields:
        objects -= {name}
        below = replace(below, fields={**known.fields[name].fields, **below.fields})
    return replace(known, fields={**known.fields, name: below}, objects=objects)


def lists(known: Known, path: str) -> bool:
    name, _, rest = path.partition(".")
    if name not in known.fields:
        return known.others == "open"
    return not rest or lists(known.fields[name], rest)


def privilege_in(path: str) -> Privilege | None:
    """Return the first privilege that an unknown field of a path would use, or ``None``."""
    known: Known | None = KNOWN
    for name in path.split("."):
        known = known.fields.get(name) if known is not None else None
        if known is None and (privilege := privilege_of(name)) is not None:
            return privilege
    return privilege_of(path) if path in HINT_NAMES else None


def sift(body: Mapping[str, Any], known: Known) -> tuple[Mapping[str, Any], Unlisted | None]:
    """Return the known fields of the body (itself if it has no others), and the unknown ones."""
    found = _Found()
    kept = _drop_unknown_in_object(body, known, "", found)
    if kept is body:
        return body, None
    return kept, Unlisted(body, tuple(found.names), found.more)


def refusal(body: Mapping[str, Any], known: Known) -> InvalidRequest | None:
    """Return the error for the first unknown field outside of past messages, if there is one."""
    place = next(_find_unknown_paths(without_past(body), known, ""), None)
    if place is None:
        return None
    advice = "Nobody who would answer knows it or gets it; leave it out."
    return unsupported(place[:256], advice)


class _Found(Struct, eq=False):
    names: dict[str, None] = {}
    more: int = 0
    message: int = 0  # index of the message that is read, if one is

    def note(self, path: str, value: Mapping[str, Any], known: Known, count: int) -> None:
        """Record the paths of an object's ``count`` unknown fields; beyond 32, their number."""
        if path == _MESSAGES or path.startswith(f"{_MESSAGES}."):
            path = f"{_MESSAGES}[{self.message}]{path.removeprefix(_MESSAGES)}"
        for name in value:
            if _may_keep_field(name, value, known):
                continue
            if len(self.names) >= 32:
                self.more += count
                return
            count -= 1
            if value[name] is not None:
                self.names[_join_path(path, name)] = None


def _drop_unknown_in_value(json_value: Any, known: Known, path: str, unknown_fields: _Found) -> Any:
    if json_value.__class__ is dict:
        return _drop_unknown_in_object(json_value, known, path, unknown_fields)
    kept: list[Any] | None = None
    are_messages = path == _MESSAGES
    for index, each in enumerate(json_value):
        if are_messages:
            unknown_fields.message = index
        if each.__class__ is dict or each.__class__ is list:
            new = _drop_unknown_in_value(each, known, path, unknown_fields)
            if new is not each:
                kept = list(json_value) if kept is None else kept
                kept[index] = new
    return json_value if kept is None else kept


def _drop_unknown_in_object(
    members: Mapping[str, Any], known: Known, path: str, unknown_fields: _Found
) -> Mapping[str, Any]:
    fields = known.fields
    kept: dict[str, Any] | None = None
    if not members.keys() <= fields.keys() or any(
        _is_or_contains_non_object(members, name) for name in known.objects
    ):
        kept = _select_known_fields(members, known)
        if len(kept) < len(members):
            unknown_fields.note(path, members, known, len(members) - len(kept))
        else:
            kept = None
    for name, each in members.items() if kept is None else kept.items():
        if each.__class__ is dict or each.__class__ is list:
            below = _get_child_fields_or_open(known, name)
            if below is not OPEN:
                new = _drop_unknown_in_value(each, below, _join_path(path, name), unknown_fields)
                if new is not each:
                    kept = dict(members) if kept is None else kept
                    kept[name] = new
    return members if kept is None else kept


def _select_known_fields(members: Mapping[str, Any], known: Known) -> dict[str, Any]:
    fields = known.fields
    if known.others == "closed" and not known.objects:
        if len(members) > 2 * len(fields):  # which may be as many as a body has bytes for
            return {name: members[name] for name in fields if name in members}
        return {name: each for name, each in members.items() if name in fields}
    return {name: each for name, each in members.items() if _may_keep_field(name, members, known)}


def _may_keep_field(name: str, members: Mapping[str, Any], known: Known) -> bool:
    if name in known.fields:
        return name not in known.objects or not _is_or_contains_non_object(members, name)
    return known.others == "open" or (known.others == "passed" and privilege_of(name) is None)


def _is_or_contains_non_object(members: Mapping[str, Any], name: str) -> bool:
    waiting = [members[name]] if name in members else []
    while waiting:
        each = waiting.pop()
        if isinstance(each, list):
            waiting += each
        elif not isinstance(each, dict):
            return True
    return False


def _get_child_fields_or_open(known: Known, name: str) -> Known:
    return known.fields.get(name) or (OPEN if known.others == "open" else PASSED)


def _join_path(path: str, name: str) -> str:
    # Cut: a name may be as long as a body and hold many fields.
    return f"{path[:_LONGEST_PATH]}.{name[:_LONGEST_NAME]}" if path else name[:_LONGEST_NAME]


def _find_unknown_paths(json_value: Any, known: Known, path: str) -> Iterator[str]:
    if known is OPEN:
        return
    if isinstance(json_value, list):
        for index, each in enumerate(json_value):
            yield from _find_unknown_paths(each, known, f"{path}[{index}]")
    elif isinstance(json_value, dict):
        for name, each in json_value.items():
            place = _join_path(path, name)
            if _may_keep_field(name, json_value, known):
                yield from _find_unknown_paths(each, _get_child_fields_or_open(known, name), place)
            elif each is not None:
                yield place


def without_past(body: Mapping[str, Any]) -> Mapping[str, Any]:
    values = body.get("messages")
    if not isinstance(values, list):
        return body
    past = past_roles(values)
    new = [{} if index in past else value for index, value in enumerate(values)]
    return {**body, "messages": new}


def past_roles(values: Sequence[Any]) -> Mapping[int, Role]:
    """Return past roles by index: assistant, tool, or before the last user or tool message."""
    roles = {index: role for index, value in enumerate(values) if (role := role_of(value))}
    last = max((index for index, role in roles.items() if role in ("user", "tool")), default=0)
    return {
        index: role
        for index, role in roles.items()
        if index < last or role in ("assistant", "tool")
    }


def role_of(value: Any) -> Role | None:
    role = value.get("role") if isinstance(value, dict) else None
    return ROLES.get(role) if isinstance(role, str) else None
