"""Resources of SCIM: their schemas, what a directory sends of them, filters, and patches.

Directories differ in how they write a patch: ``"Replace"`` or ``"replace"``, with a path or with an
object, ``"False"`` for ``false``, members to remove as a value or as a filter in the path. All of
it is read, and attributes that this service does not keep are ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from causerie.errors import InvalidRequest
from causerie.hosted.accounts.provisioning import ProvisionedPerson, WantedGroup

_MOST_OPERATIONS = 100
_LONGEST_NAME = 100  # of a person here


_BOTH = {"externalid": "external_id", "id": "id"}
USER_FILTERS = _BOTH | {"username": "user_name", "emails": "email", "emails.value": "email"}
"""Fields of accounts, by the attributes of people that a filter may have."""
GROUP_FILTERS = _BOTH | {"displayname": "name", "members": "member", "members.value": "member"}


class _Name(Struct, rename="camel"):
    formatted: str | None = None
    given_name: str | None = None
    family_name: str | None = None


class _Email(Struct):
    value: str | None = None
    type: str | None = None
    primary: bool | str | None = None


class _Person(Struct, rename="camel"):
    user_name: Annotated[str, Meta(min_length=1, max_length=254)]
    external_id: Annotated[str, Meta(max_length=254)] | None = None
    display_name: str | None = None
    name: _Name | None = None
    emails: list[_Email] | None = None
    active: bool | str | None = True


class _Member(Struct):
    value: str


class _Group(Struct, rename="camel"):
    display_name: Annotated[str, Meta(min_length=1, max_length=254)]
    external_id: Annotated[str, Meta(max_length=254)] | None = None
    members: list[_Member] | None = None


class _Operation(Struct):
    op: str
    path: str | None = None
    value: Any = None


class _Patch(Struct, rename="pascal"):
    operations: Annotated[list[_Operation], Meta(max_length=_MOST_OPERATIONS)]


T = TypeVar("T", bound=Struct)


def _read(body: Mapping[str, Any], kind: type[T]) -> T:
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        words = str(error).replace("`", "").replace("$.", "")
        raise InvalidRequest(f"The resource is not right: {words}.", code="invalidValue") from error


def person_of(body: Mapping[str, Any]) -> ProvisionedPerson:
    """Return a person as the body describes them; raise :class:`InvalidRequest`."""
    found = _read(body, _Person)
    name, emails = found.name or _Name(), [each for each in found.emails or () if each.value]
    emails.sort(key=lambda each: (not _truth(each.primary), each.type != "work"))
    email = emails[0].value if emails else None
    both = " ".join(filter(None, (name.given_name, name.family_name)))
    shown = found.display_name or name.formatted or both or found.user_name.partition("@")[0]
    return ProvisionedPerson(
        user_name=found.user_name,
        email=email or found.user_name,
        name=shown[:_LONGEST_NAME],
        external_id=found.external_id or "",
        active=found.active is None or _truth(found.active),
    )


def group_of(body: Mapping[str, Any]) -> WantedGroup:
    """Return a group as the body describes it; raise :class:`InvalidRequest`."""
    found = _read(body, _Group)
    members = frozenset(each.value for each in found.members or ())
    return WantedGroup(found.display_name, found.external_id or "", members)


def _truth(value: bool | str | None) -> bool:
    return value.lower() == "true" if isinstance(value, str) else value is True


_TERM = (
    r"(?:urn:[\w:.]*:)?(?P<name>\w+)(?:\[type eq \"\w+\"\])?(?P<sub>\.\w+)?\s+eq\s+"
    r"(?P<value>\"(?:[^\"\\]|\\.)*\")"
)
_terms = re.compile(_TERM, re.IGNORECASE | re.ASCII).finditer
_PLAIN_TERM = re.sub(r"\?P<\w+>", "?:", _TERM)
_is_filter = re.compile(
    rf"\s*{_PLAIN_TERM}(?:\s+and\s+{_PLAIN_TERM}){{0,7}}\s*", re.IGNORECASE | re.ASCII
).fullmatch


def conditions(filter: str, fields: Mapping[str, str]) -> Mapping[str, str]:
    """Return the values that a filter wants, by fields of accounts; raise :class:`InvalidRequest`.

    Filters are of ``eq``, joined by ``and``.
    """
    try:
        if filter and not _is_filter(filter):
            raise ValueError
        return {
            fields[(term["name"] + (term["sub"] or "")).lower()]: json.loads(term["value"])
            for term in _terms(filter)
        }
    except (LookupError, ValueError) as failure:
        raise InvalidRequest(
            f'The filter {filter[:200]} is not supported; one is `NAME eq "VALUE"`, several with '
            f"`and`, of {', '.join(sorted(fields))}.",
            code="invalidFilter",
        ) from failure


_PATH = re.compile(
    r"(?:urn:[\w:.-]*:)?(?P<name>[\w$-]+)"
    r"(?:\[\s*(?P<key>\w+)\s+eq\s+\"?(?P<wanted>[^\"\]]*)\"?\s*\])?(?:\.(?P<sub>\w+))?",
    re.IGNORECASE | re.ASCII,
)
_NAMES = {
    each.lower(): each
    for each in (
        *("userName", "externalId", "displayName", "name", "active", "emails", "members"),
        *("formatted", "givenName", "familyName", "value", "type", "primary", "display"),
    )
}
_LISTS = ("emails", "members")
_Elements = dict[str, dict[str, Any]]


def patched(resource: Mapping[str, Any], body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a resource after the operations of a patch; raise :class:`InvalidRequest`."""
    result = dict(resource)
    for name in _LISTS:  # by value, for there may be thousands
        result[name] = _elements(result.get(name))
    for operation in _read(body, _Patch).operations:
        verb = operation.op.lower()
        if verb not in ("add", "replace", "remove"):
            raise InvalidRequest("`op` is add, replace or remove.", code="invalidSyntax")
        for path, value in _targets(operation):
            found = _PATH.fullmatch(path)
            if found is None:
                raise InvalidRequest(f"There is no path {path[:200]}.", code="invalidPath")
            name, sub = _name(found["name"]), _name(found["sub"] or "")
            if name in _LISTS:
                match = (_name(found["key"] or ""), found["wanted"] or "")
                result[name] = _changed(result[name], verb, match, sub, value)
            else:
                _set(result, verb, (name, sub), value)
    return {**result, **{name: [*result[name].values()] for name in _LISTS}}


def _targets(operation: _Operation) -> Iterator[tuple[str, Any]]:
    if operation.path:
        yield operation.path, operation.value
    elif isinstance(operation.value, dict):
        yield from operation.value.items()
    else:
        raise InvalidRequest("An operation without a path has an object.", code="invalidValue")


def _name(given: str) -> str:
    return _NAMES.get(given.lower(), given)


def _elements(value: Any) -> _Elements:
    listed = value if isinstance(value, list) else [] if value is None else [value]
    found = [each if isinstance(each, dict) else {"value": each} for each in listed]
    return {str(each.get("value", number)): dict(each) for number, each in enumerate(found)}


def _changed(held: _Elements, verb: str, match: tuple[str, str], sub: str, value: Any) -> _Elements:
    key, wanted = match
    if not key and not sub:
        given = _elements(value)
        if verb == "remove":
            return {name: each for name, each in held.items() if given and name not in given}
        return held | given if verb == "add" else given
    if key == "value":
        names = [wanted] if wanted in held else []
    else:
        fits = wanted.lower()
        names = [
            name for name, each in held.items() if not key or str(each.get(key)).lower() == fits
        ]
    if verb == "remove" and not sub:
        return {name: each for name, each in held.items() if name not in names}
    if not names and key and verb != "remove":
        held[wanted], names = {key: wanted}, [wanted]
    for name in names:
        given = {sub: value} if sub else value if isinstance(value, dict) else {}
        held[name] = {**held[name], **given}
    return held


def _set(resource: dict[str, Any], verb: str, parts: tuple[str, str], value: Any) -> None:
    name, sub = parts
    before = resource.get(name)
    whole = dict(before) if isinstance(before, dict) else {}
    if sub:
        resource[name] = {**whole, sub: None if verb == "remove" else value}
    elif verb == "remove":
        resource.pop(name, None)
    else:
        resource[name] = {**whole, **value} if isinstance(value, dict) else value
