"""SCIM 2.0 (RFC 7643, 7644) at ``/scim/v2``: a directory manages people and their groups.

The key of a request says which directory asks. Answers have the form of SCIM, failures too.

Directories differ in how they write a patch: ``"Replace"`` or ``"replace"``, with a path or with an
object, ``"False"`` for ``false``, members to remove as a value or as a filter in the path. All of
it is read, and attributes that this service does not keep are ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import msgspec
from msgspec import Struct

from causerie.access.keys import KeyDigest, matching, no_key, wrong_key
from causerie.access.limits import MemoryCounters, Rates, RateScope, Tokens
from causerie.errors import InvalidRequest, NotFound, ServiceError
from causerie.hosted.accounts.people import GroupClaims, IdentityGroup, User
from causerie.hosted.accounts.provisioning import (
    ProvisionedPerson,
    Provisioning,
    WantedGroup,
)
from causerie.hosted.management.routing import query_of
from causerie.http.exchange import BodyLimits, Exchange, check_json_type, decompressed, read_body
from causerie.http.routing import method_not_allowed
from causerie.protocol import bounded_json

PREFIX = "/scim"
_VERSION = f"{PREFIX}/v2"
_TYPE = "application/scim+json"
_CORE = "urn:ietf:params:scim:schemas:core:2.0:"
_MESSAGES = "urn:ietf:params:scim:api:messages:2.0:"
_LIMITS = BodyLimits(max_bytes=1024 * 1024)
_WORK = bounded_json.Bounds(values=50_000, exponents=0)
_LAST = 2**31  # resource that a page begins with
_COUNT, _MOST = 100, 200  # resources of a page; the latter is in the descriptions too
_AT_ONCE = 16
_DESCRIPTIONS = files(__package__).joinpath("scim.json").read_text()
_KINDS = frozenset({"invalidFilter", "invalidPath", "invalidSyntax", "invalidValue"})


class ScimQuery(Struct, frozen=True, rename="camel"):
    """The used parameters of a query."""

    filter: str = ""
    start_index: int = 1
    count: int = _COUNT
    excluded_attributes: str = ""

    @property
    def page(self) -> tuple[int, int]:
        """Return offset and number of the wanted resources (RFC 7644, section 3.4.2.4)."""
        return min(max(self.start_index, 1), _LAST) - 1, min(max(self.count, 0), _MOST)


@dataclass(frozen=True, slots=True)
class ScimCall:
    """One request of a directory; ``base`` is the address of SCIM without a slash at its end."""

    directory: GroupClaims
    base: str
    method: str
    query: ScimQuery
    body: Mapping[str, Any]


@dataclass(eq=False)
class Scim:
    """Answers identity directories; each key may send ``requests_per_minute`` requests.

    ``keys`` returns those that are known now, and ``base`` the service's address for a request.
    """

    _provisioning: Provisioning
    keys: Callable[[], Mapping[KeyDigest, GroupClaims]]
    base: Callable[[Exchange], str]
    requests_per_minute: int
    _rate_limits: MemoryCounters = field(default_factory=MemoryCounters)

    async def answer(self, exchange: Exchange) -> None:
        """Answer one request; raises :class:`~causerie.errors.ServiceError`."""
        known, credential = self.keys(), exchange.head.credential
        key = matching(known, credential)
        if key is None:
            raise no_key() if credential is None else wrong_key(credential)
        rates = Rates(requests_per_minute=self.requests_per_minute, concurrent=_AT_ONCE)
        with self._rate_limits.take_now([RateScope("key", key.id, rates)], Tokens):
            kind, _, id = exchange.path.removeprefix(_VERSION).strip("/").partition("/")
            method = "GET" if exchange.method == "HEAD" else exchange.method
            found = {"Users": self._answer_users, "Groups": self._answer_groups}.get(kind)
            if not exchange.path.startswith(f"{_VERSION}/") or "/" in id:
                found, kind = None, ""
            described = (
                _find_discovery(kind, id, self._get_scim_url(exchange)) if found is None else None
            )
            allowed = ("GET", "PUT", "PATCH", "DELETE") if id else ("GET", "POST")
            if method not in (allowed if found else allowed[:1]):
                raise method_not_allowed(method, allowed if found else allowed[:1])
            if found is None:
                self._respond(exchange, 200, described)
                return
            body = await _read_json_body(exchange) if method in ("POST", "PUT", "PATCH") else {}
            query = query_of(exchange.head.query, ScimQuery)
            call = ScimCall(known[key], self._get_scim_url(exchange), method, query, body)
            status = {"POST": 201, "DELETE": 204}.get(method, 200)
            self._respond(exchange, status, await found(call, id))

    def refuse(self, exchange: Exchange, failure: ServiceError) -> None:
        """Send a failure in the form of SCIM (RFC 7644, section 3.12)."""
        detail = {"schemas": [f"{_MESSAGES}Error"], "detail": failure.message}
        detail["status"] = str(failure.status)
        if failure.code == "taken":
            detail["scimType"] = "uniqueness"
        elif failure.status == 400:
            detail["scimType"] = failure.code if failure.code in _KINDS else "invalidValue"
        headers = {name.lower(): value for name, value in failure.headers.items()}
        exchange.respond(
            failure.status, msgspec.json.encode(detail), content_type=_TYPE, headers=headers
        )

    def _get_scim_url(self, exchange: Exchange) -> str:
        return f"{self.base(exchange)}{_VERSION}"

    def _respond(self, exchange: Exchange, status: int, resource: Mapping[str, Any] | None) -> None:
        headers = {"cache-control": "no-store"}
        if resource is None:
            exchange.respond(204, b"", headers=headers)
            return
        if status == 201:
            headers["location"] = resource["meta"]["location"]
        body = msgspec.json.encode(resource)
        exchange.respond(status, body, content_type=_TYPE, headers=headers)

    async def _answer_users(self, call: ScimCall, user_id: str) -> Mapping[str, Any] | None:
        service, directory = self._provisioning, call.directory
        if call.method == "GET" and not user_id:
            where = conditions(call.query.filter, USER_FILTERS)
            total, people = await service.people(where, *call.query.page)
            listed = [_render_user(call, each) for each in people]
            return _build_list_response(total, call.query.page[0], listed)
        if call.method == "DELETE":
            await service.remove(directory, user_id)
            return None
        if call.method == "POST":
            return _render_user(call, await service.create(directory, person_of(call.body)))
        if call.method == "GET":
            return _render_user(call, await service.person(user_id))

        def described(user: User) -> ProvisionedPerson:
            if call.method == "PUT":
                return person_of(call.body)
            # A new `name` counts where there is no new `displayName`.
            return person_of(patched({**_render_user(call, user), "displayName": None}, call.body))

        return _render_user(call, await service.change(directory, user_id, described))

    async def _answer_groups(self, call: ScimCall, group_id: str) -> Mapping[str, Any] | None:
        service, directory = self._provisioning, call.directory
        if call.method == "GET" and not group_id:
            where = conditions(call.query.filter, GROUP_FILTERS)
            total, found = await service.groups(directory, where, *call.query.page)
            return _build_list_response(
                total, call.query.page[0], await self._render_groups(call, found)
            )
        if call.method == "DELETE":
            await service.remove_group(directory, group_id)
            return None
        if call.method == "POST":
            group = await service.create_group(directory, group_of(call.body))
        elif call.method == "GET":
            group = await service.group(directory, group_id)
        else:

            def described(group: IdentityGroup, members: Sequence[User]) -> WantedGroup:
                if call.method == "PUT":
                    return group_of(call.body)
                return group_of(patched(_render_group(call, group, members), call.body))

            group = await service.change_group(directory, group_id, described)
            if call.method == "PATCH":
                return None  # its members may be very many
        return (await self._render_groups(call, [group]))[0]

    async def _render_groups(
        self, call: ScimCall, groups: Sequence[IdentityGroup]
    ) -> Sequence[Mapping[str, Any]]:
        if call.method == "GET" and "members" in call.query.excluded_attributes:
            return [_render_group(call, each, None) for each in groups]
        members = await self._provisioning.members([each.id for each in groups])
        return [_render_group(call, each, members[each.id]) for each in groups]


def _build_list_response(
    total: int, zero_based_start: int, items: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any]:
    return {
        "schemas": [f"{_MESSAGES}ListResponse"],
        "totalResults": total,
        "startIndex": zero_based_start + 1,
        "itemsPerPage": len(items),
        "Resources": items,
    }


def _render_resource(
    call: ScimCall, kind: str, entity: User | IdentityGroup, **more: Any
) -> dict[str, Any]:
    external = {"externalId": entity.external_id} if entity.external_id else {}
    place = f"{call.base}/{kind}s/{entity.id}"
    meta = {"resourceType": kind, "created": entity.created_at.isoformat(), "location": place}
    return {"schemas": [_CORE + kind], "id": entity.id, **external, **more, "meta": meta}


def _render_user(call: ScimCall, user: User) -> dict[str, Any]:
    return _render_resource(
        *(call, "User", user),
        userName=user.user_name or user.email,
        name={"formatted": user.name},
        displayName=user.name,
        active=user.disabled_at is None,
        emails=[{"value": user.email, "type": "work", "primary": True}],
    )


def _render_group(
    call: ScimCall, group: IdentityGroup, members: Sequence[User] | None
) -> dict[str, Any]:
    if members is None:
        return _render_resource(call, "Group", group, displayName=group.name)
    place = f"{call.base}/Users/"
    shown = [{"value": one.id, "display": one.name, "$ref": place + one.id} for one in members]
    return _render_resource(call, "Group", group, displayName=group.name, members=shown)


def _find_discovery(endpoint: str, id: str, base_url: str) -> Mapping[str, Any]:
    described = msgspec.json.decode(_DESCRIPTIONS.replace("{base}", base_url), type=dict[str, Any])
    found: Mapping[str, Any] | list[Any] | None = described.get(endpoint)
    if isinstance(found, list):
        known = {each["id"]: each for each in found}
        found = known.get(id) if id else _build_list_response(len(found), 0, found)
    elif id:
        found = None
    if found is None:
        raise NotFound(f"SCIM is at {_VERSION}: Users, Groups, {', '.join(described)}.")
    return found


async def _read_json_body(exchange: Exchange) -> Mapping[str, Any]:
    body = await read_body(exchange, _LIMITS)
    check_json_type(exchange.headers)
    body = await decompressed(exchange.headers, body, _LIMITS)
    try:
        return bounded_json.decode(body, dict[str, Any], _WORK)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(
            "The body is no JSON object of a bounded size.", code="invalidSyntax"
        ) from error


_MOST_OPERATIONS = 100
_LONGEST = 254
_LONGEST_NAME = 100  # of a person here

_BOTH = {"externalid": "external_id", "id": "id"}
USER_FILTERS = _BOTH | {"username": "user_name", "emails": "email", "emails.value": "email"}
"""Fields of accounts, by the attributes of people that a filter may have."""
GROUP_FILTERS = _BOTH | {"displayname": "name", "members": "member", "members.value": "member"}


def person_of(body: Mapping[str, Any]) -> ProvisionedPerson:
    """Return a person as the body describes them; raise :class:`InvalidRequest`."""
    user_name, name = _require_text(body, "userName"), body.get("name")
    parts = name if isinstance(name, dict) else {}
    emails = [
        each for each in _index_by_value(body.get("emails")).values() if _read_text(each, "value")
    ]
    emails.sort(key=lambda each: (not _is_true(each.get("primary")), each.get("type") != "work"))
    both = " ".join(filter(None, (_read_text(parts, "givenName"), _read_text(parts, "familyName"))))
    shown = _read_text(body, "displayName") or _read_text(parts, "formatted") or both
    return ProvisionedPerson(
        user_name=user_name,
        email=emails[0]["value"] if emails else user_name,
        name=(shown or user_name.partition("@")[0])[:_LONGEST_NAME],
        external_id=_read_text(body, "externalId"),
        active=body.get("active") is None or _is_true(body["active"]),
    )


def group_of(body: Mapping[str, Any]) -> WantedGroup:
    """Return a group as the body describes it; raise :class:`InvalidRequest`."""
    members = frozenset(_index_by_value(body.get("members")))
    return WantedGroup(_require_text(body, "displayName"), _read_text(body, "externalId"), members)


def _read_text(body: Mapping[str, Any], attribute: str) -> str:
    value = body.get(attribute) or ""
    if not isinstance(value, str) or len(value) > _LONGEST:
        words = f"`{attribute}` is a text of at most {_LONGEST} characters."
        raise InvalidRequest(words, param=attribute, code="invalidValue")
    return value


def _require_text(body: Mapping[str, Any], attribute: str) -> str:
    if not (found := _read_text(body, attribute)):
        raise InvalidRequest(f"`{attribute}` is missing.", param=attribute, code="invalidValue")
    return found


def _is_true(value: object) -> bool:
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
        result[name] = _index_by_value(result.get(name))
    operations = body.get("Operations")
    if not isinstance(operations, list) or len(operations) > _MOST_OPERATIONS:
        words = f"`Operations` is a list of at most {_MOST_OPERATIONS} operations."
        raise InvalidRequest(words, code="invalidSyntax")
    for operation in operations:
        verb = _read_text(operation, "op").lower() if isinstance(operation, dict) else ""
        if verb not in ("add", "replace", "remove"):
            raise InvalidRequest("`op` is add, replace or remove.", code="invalidSyntax")
        for path, value in _read_path_value_pairs(operation):
            found = _PATH.fullmatch(path)
            if found is None:
                raise InvalidRequest(f"There is no path {path[:200]}.", code="invalidPath")
            name, sub = _canonicalize_case(found["name"]), _canonicalize_case(found["sub"] or "")
            if name in _LISTS:
                match = (_canonicalize_case(found["key"] or ""), found["wanted"] or "")
                result[name] = _patch_elements_keyed_by_value(result[name], verb, match, sub, value)
            else:
                _patch_attribute(result, verb, (name, sub), value)
    return {**result, **{name: [*result[name].values()] for name in _LISTS}}


def _read_path_value_pairs(operation: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    path, value = operation.get("path"), operation.get("value")
    if isinstance(path, str) and path:
        return [(path, value)]
    if isinstance(value, dict):
        return value.items()
    raise InvalidRequest("An operation without a path has an object.", code="invalidValue")


def _canonicalize_case(attribute: str) -> str:
    return _NAMES.get(attribute.lower(), attribute)


def _index_by_value(elements: Any) -> _Elements:
    listed = elements if isinstance(elements, list) else [] if elements is None else [elements]
    found = [each if isinstance(each, dict) else {"value": each} for each in listed]
    return {str(each.get("value", number)): dict(each) for number, each in enumerate(found)}


def _patch_elements_keyed_by_value(
    elements: _Elements, op: str, value_filter: tuple[str, str], subattribute: str, value: Any
) -> _Elements:
    key, wanted = value_filter
    if not key and not subattribute:
        given = _index_by_value(value)
        if op == "remove":
            return {name: each for name, each in elements.items() if given and name not in given}
        return elements | given if op == "add" else given
    if key == "value":
        names = [wanted] if wanted in elements else []
    else:
        fits = wanted.lower()
        names = [
            name for name, each in elements.items() if not key or str(each.get(key)).lower() == fits
        ]
    if op == "remove" and not subattribute:
        return {name: each for name, each in elements.items() if name not in names}
    if not names and key and op != "remove":
        elements[wanted], names = {key: wanted}, [wanted]
    for name in names:
        given = {subattribute: value} if subattribute else value if isinstance(value, dict) else {}
        elements[name] = {**elements[name], **given}
    return elements


def _patch_attribute(resource: dict[str, Any], op: str, path: tuple[str, str], value: Any) -> None:
    name, sub = path
    before = resource.get(name)
    whole = dict(before) if isinstance(before, dict) else {}
    if sub:
        resource[name] = {**whole, sub: None if op == "remove" else value}
    elif op == "remove":
        resource.pop(name, None)
    else:
        resource[name] = {**whole, **value} if isinstance(value, dict) else value
