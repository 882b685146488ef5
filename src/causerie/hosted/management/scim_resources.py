"""Resources of SCIM: their schemas, what a directory sends of them, filters, and patches.

Directories differ in how they write a patch: ``"Replace"`` or ``"replace"``, with a path or with an
object, ``"False"`` for ``false``, members to remove as a value or as a filter in the path. All of
it is read, and attributes that this service does not keep are ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from causerie.errors import InvalidRequest
from causerie.hosted.accounts.provisioning import ProvisionedPerson

_CORE = "urn:ietf:params:scim:schemas:core:2.0:"
_MOST_OPERATIONS = 100
_MOST_TERMS = 8
_LONGEST_NAME = 100  # of a person here


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """A kind of resource: the URN of its schema, its attributes, and those that filters may have.

    An attribute is a name, a type, and what the schema says of it; filters name fields of accounts.
    """

    id: str
    name: str
    attributes: Sequence[tuple[str, str, Mapping[str, Any]]]
    filters: Mapping[str, str]


def _parts(**types: str) -> Mapping[str, Any]:
    return {"subAttributes": [_attribute(name, type, {}) for name, type in types.items()]}


def _attribute(name: str, type: str, more: Mapping[str, Any]) -> dict[str, Any]:
    usual = {
        "multiValued": False,
        "required": False,
        "caseExact": False,
        "mutability": "readWrite",
        "returned": "default",
        "uniqueness": "none",
    }
    return {"name": name, "type": type, **usual, **more}


USER = ResourceKind(
    f"{_CORE}User",
    "User",
    (
        ("userName", "string", {"required": True, "uniqueness": "server"}),
        ("externalId", "string", {"caseExact": True}),
        ("displayName", "string", {}),
        ("name", "complex", _parts(formatted="string")),
        ("active", "boolean", {}),
        (
            "emails",
            "complex",
            {"multiValued": True, **_parts(value="string", type="string", primary="boolean")},
        ),
    ),
    MappingProxyType(
        {
            "username": "user_name",
            "externalid": "external_id",
            "id": "id",
            "emails": "email",
            "emails.value": "email",
        }
    ),
)
GROUP = ResourceKind(
    f"{_CORE}Group",
    "Group",
    (
        ("displayName", "string", {"required": True, "uniqueness": "server"}),
        ("externalId", "string", {"caseExact": True}),
        (
            "members",
            "complex",
            {
                "multiValued": True,
                "subAttributes": [
                    _attribute("value", "string", {"mutability": "immutable"}),
                    _attribute("display", "string", {"mutability": "readOnly"}),
                    _attribute(
                        "$ref",
                        "reference",
                        {"referenceTypes": ["User"], "mutability": "immutable"},
                    ),
                ],
            },
        ),
    ),
    MappingProxyType(
        {
            "displayname": "name",
            "externalid": "external_id",
            "id": "id",
            "members": "member",
            "members.value": "member",
        }
    ),
)
_KINDS = (USER, GROUP)


def schemas(base: str) -> Sequence[Mapping[str, Any]]:
    return [
        {
            "schemas": [f"{_CORE}Schema"],
            "id": kind.id,
            "name": kind.name,
            "attributes": [_attribute(*each) for each in kind.attributes],
            "meta": {"resourceType": "Schema", "location": f"{base}/Schemas/{kind.id}"},
        }
        for kind in _KINDS
    ]


def resource_types(base: str) -> Sequence[Mapping[str, Any]]:
    return [
        {
            "schemas": [f"{_CORE}ResourceType"],
            "id": kind.name,
            "name": kind.name,
            "endpoint": f"/{kind.name}s",
            "schema": kind.id,
            "meta": {
                "resourceType": "ResourceType",
                "location": f"{base}/ResourceTypes/{kind.name}",
            },
        }
        for kind in _KINDS
    ]


def service_provider(base: str, most: int) -> Mapping[str, Any]:
    """Return the capabilities; ``most`` is the greatest number of resources of a page."""
    absent = {"supported": False}
    return {
        "schemas": [f"{_CORE}ServiceProviderConfig"],
        "patch": {"supported": True},
        "bulk": {**absent, "maxOperations": 0, "maxPayloadSize": 0},
        "filter": {"supported": True, "maxResults": most},
        "changePassword": absent,
        "sort": absent,
        "etag": absent,
        "authenticationSchemes": [
            {
                "type": "oauthbearertoken",
                "name": "Bearer token",
                "description": "A key of `identity_providers.scim_keys`.",
                "primary": True,
            }
        ],
        "meta": {
            "resourceType": "ServiceProviderConfig",
            "location": f"{base}/ServiceProviderConfig",
        },
    }


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


def group_of(body: Mapping[str, Any]) -> tuple[str, str, frozenset[str]]:
    """Return name, external id and ids of members; raise :class:`InvalidRequest`."""
    found = _read(body, _Group)
    members = frozenset(each.value for each in found.members or ())
    return found.display_name, found.external_id or "", members


def _truth(value: bool | str | None) -> bool:
    return value.lower() == "true" if isinstance(value, str) else value is True


_TERM = re.compile(
    r"\s*(?:urn:[\w:.]*:)?(?P<name>\w+)(?:\[type eq \"\w+\"\])?(?P<sub>\.\w+)?\s+eq\s+"
    r"(?P<value>\"(?:[^\"\\]|\\.)*\")\s*",
    re.IGNORECASE | re.ASCII,
)
_AND = re.compile(r"and\s", re.IGNORECASE)


def conditions(filter: str, kind: ResourceKind) -> Mapping[str, str]:
    """Return the values that a filter wants, by fields of accounts; raise :class:`InvalidRequest`.

    Filters are of ``eq``, joined by ``and``.
    """
    found: dict[str, str] = {}
    at = 0
    while filter.strip() and at <= len(filter):
        term = _TERM.match(filter, at)
        name = (term["name"] + (term["sub"] or "")).lower() if term is not None else ""
        if term is None or name not in kind.filters or len(found) >= _MOST_TERMS:
            raise InvalidRequest(
                f'The filter {filter[:200]} is not supported; one is `NAME eq "VALUE"`, several '
                f"with `and`, of {', '.join(sorted(kind.filters))}.",
                code="invalidFilter",
            )
        try:
            found[kind.filters[name]] = json.loads(term["value"])
        except ValueError as error:
            raise InvalidRequest("A value of the filter is no text.", code="invalidFilter") from (
                error
            )
        if term.end() == len(filter):
            break
        joint = _AND.match(filter, term.end())
        at = joint.end() if joint is not None else len(filter)
    return found


_PATH = re.compile(
    r"(?:urn:[\w:.-]*:)?(?P<name>[\w$-]+)"
    r"(?:\[\s*(?P<key>\w+)\s+eq\s+\"?(?P<wanted>[^\"\]]*)\"?\s*\])?(?:\.(?P<sub>\w+))?",
    re.IGNORECASE | re.ASCII,
)
_NAMES = {
    each.lower(): each
    for kind in _KINDS
    for name, _, more in kind.attributes
    for each in (name, *(one["name"] for one in more.get("subAttributes", ())))
} | {each.lower(): each for each in ("givenName", "familyName")}  # read, not kept
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
    known: str = _NAMES.get(given.lower(), given)
    return known


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
