"""Resources of SCIM: their schemas, what a directory sends of them, filters, and patches.

Directories differ in how they write a patch: ``"Replace"`` or ``"replace"``, with a path or with an
object, ``"False"`` for ``false``, members to remove as a value or as a filter in the path. All of
it is read, and attributes that this service does not keep are ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from causerie.errors import InvalidRequest
from causerie.hosted.accounts.provisioning import ProvisionedPerson, WantedGroup

_MOST_OPERATIONS = 100
_LONGEST = 254
_LONGEST_NAME = 100  # of a person here

_BOTH = {"externalid": "external_id", "id": "id"}
USER_FILTERS = _BOTH | {"username": "user_name", "emails": "email", "emails.value": "email"}
"""Fields of accounts, by the attributes of people that a filter may have."""
GROUP_FILTERS = _BOTH | {"displayname": "name", "members": "member", "members.value": "member"}


def person_of(body: Mapping[str, Any]) -> ProvisionedPerson:
    """Return a person as the body describes them; raise :class:`InvalidRequest`."""
    user_name, name = _required(body, "userName"), body.get("name")
    parts = name if isinstance(name, dict) else {}
    emails = [each for each in _elements(body.get("emails")).values() if _text(each, "value")]
    emails.sort(key=lambda each: (not _truth(each.get("primary")), each.get("type") != "work"))
    both = " ".join(filter(None, (_text(parts, "givenName"), _text(parts, "familyName"))))
    shown = _text(body, "displayName") or _text(parts, "formatted") or both
    return ProvisionedPerson(
        user_name=user_name,
        email=emails[0]["value"] if emails else user_name,
        name=(shown or user_name.partition("@")[0])[:_LONGEST_NAME],
        external_id=_text(body, "externalId"),
        active=body.get("active") is None or _truth(body["active"]),
    )


def group_of(body: Mapping[str, Any]) -> WantedGroup:
    """Return a group as the body describes it; raise :class:`InvalidRequest`."""
    members = frozenset(_elements(body.get("members")))
    return WantedGroup(_required(body, "displayName"), _text(body, "externalId"), members)


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name) or ""
    if not isinstance(value, str) or len(value) > _LONGEST:
        words = f"`{name}` is a text of at most {_LONGEST} characters."
        raise InvalidRequest(words, param=name, code="invalidValue")
    return value


def _required(body: Mapping[str, Any], name: str) -> str:
    if not (found := _text(body, name)):
        raise InvalidRequest(f"`{name}` is missing.", param=name, code="invalidValue")
    return found


def _truth(value: object) -> bool:
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
    operations = body.get("Operations")
    if not isinstance(operations, list) or len(operations) > _MOST_OPERATIONS:
        words = f"`Operations` is a list of at most {_MOST_OPERATIONS} operations."
        raise InvalidRequest(words, code="invalidSyntax")
    for operation in operations:
        verb = _text(operation, "op").lower() if isinstance(operation, dict) else ""
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


def _targets(operation: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    path, value = operation.get("path"), operation.get("value")
    if isinstance(path, str) and path:
        return [(path, value)]
    if isinstance(value, dict):
        return value.items()
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
