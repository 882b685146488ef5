"""SCIM 2.0 (RFC 7643 and 7644) at ``/scim/v2``: a directory creates, changes and disables people,
and moves them between groups.

The key of a request says which directory asks. Answers have the form of SCIM, failures too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import msgspec
from msgspec import Struct

from causerie.access.keys import KeyDigest, matching, no_key, wrong_key
from causerie.access.limits import Rates, RateScope, Tokens
from causerie.access.windows import MemoryCounters
from causerie.errors import InvalidRequest, NotFound, ServiceError
from causerie.hosted.accounts.people import IdentityGroup, User
from causerie.hosted.accounts.provisioning import ProvisionedPerson, Provisioning, WantedGroup
from causerie.hosted.accounts.sso_provisioning import GroupClaims
from causerie.hosted.management.routing import query_of
from causerie.hosted.management.scim_resources import (
    GROUP_FILTERS,
    USER_FILTERS,
    conditions,
    group_of,
    patched,
    person_of,
)
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
        """Offset and number of the wanted resources (RFC 7644, section 3.4.2.4)."""
        return min(max(self.start_index, 1), _LAST) - 1, min(max(self.count, 0), _MOST)


@dataclass(frozen=True, slots=True)
class ScimCall:
    """One request of a directory; ``base`` is the address of SCIM without a slash at its end."""

    directory: GroupClaims
    base: str
    method: str
    query: ScimQuery
    body: Mapping[str, Any]


class Scim:
    """Answers directories; each key may ask ``requests_per_minute`` times.

    ``keys`` returns those that are known now, and ``base`` the service's address for a request.
    """

    def __init__(
        self,
        provisioning: Provisioning,
        keys: Callable[[], Mapping[KeyDigest, GroupClaims]],
        base: Callable[[Exchange], str],
        requests_per_minute: int,
    ) -> None:
        self._provisioning = provisioning
        self._base = base
        self._rates = Rates(requests_per_minute=requests_per_minute, concurrent=_AT_ONCE)
        self._limits = MemoryCounters()
        self._keys = keys

    async def answer(self, exchange: Exchange) -> None:
        """Answer one request; raises :class:`~causerie.errors.ServiceError`."""
        known = self._keys()
        key = matching(known, exchange.credential)
        if key is None:
            raise no_key() if exchange.credential is None else wrong_key(exchange.credential)
        with self._limits.take_now([RateScope("key", key.id, self._rates)], Tokens):
            kind, _, id = exchange.path.removeprefix(_VERSION).strip("/").partition("/")
            method = "GET" if exchange.method == "HEAD" else exchange.method
            found = {"Users": self._user, "Groups": self._group}.get(kind)
            if not exchange.path.startswith(f"{_VERSION}/") or "/" in id:
                found, kind = None, ""
            described = _described(kind, id, self._url(exchange)) if found is None else None
            allowed = ("GET", "PUT", "PATCH", "DELETE") if id else ("GET", "POST")
            if method not in (allowed if found else allowed[:1]):
                raise method_not_allowed(method, allowed if found else allowed[:1])
            if found is None:
                self._send(exchange, 200, described)
                return
            body = await _body(exchange) if method in ("POST", "PUT", "PATCH") else {}
            query = query_of(exchange.query, ScimQuery)
            call = ScimCall(known[key], self._url(exchange), method, query, body)
            status = {"POST": 201, "DELETE": 204}.get(method, 200)
            self._send(exchange, status, await found(call, id))

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

    def _url(self, exchange: Exchange) -> str:
        return f"{self._base(exchange)}{_VERSION}"

    def _send(self, exchange: Exchange, status: int, value: Mapping[str, Any] | None) -> None:
        headers = {"cache-control": "no-store"}
        if value is None:
            exchange.respond(204, b"", headers=headers)
            return
        if status == 201:
            headers["location"] = value["meta"]["location"]
        body = msgspec.json.encode(value)
        exchange.respond(status, body, content_type=_TYPE, headers=headers)

    async def _user(self, call: ScimCall, id: str) -> Mapping[str, Any] | None:
        service, directory = self._provisioning, call.directory
        if call.method == "GET" and not id:
            where = conditions(call.query.filter, USER_FILTERS)
            total, people = await service.people(where, *call.query.page)
            listed = [_shown_user(call, each) for each in people]
            return _list(total, call.query.page[0], listed)
        if call.method == "DELETE":
            await service.remove(directory, id)
            return None
        if call.method == "POST":
            return _shown_user(call, await service.create(directory, person_of(call.body)))
        if call.method == "GET":
            return _shown_user(call, await service.person(id))

        def described(user: User) -> ProvisionedPerson:
            if call.method == "PUT":
                return person_of(call.body)
            # A new `name` counts where there is no new `displayName`.
            return person_of(patched({**_shown_user(call, user), "displayName": None}, call.body))

        return _shown_user(call, await service.change(directory, id, described))

    async def _group(self, call: ScimCall, id: str) -> Mapping[str, Any] | None:
        service, directory = self._provisioning, call.directory
        if call.method == "GET" and not id:
            where = conditions(call.query.filter, GROUP_FILTERS)
            total, found = await service.groups(directory, where, *call.query.page)
            return _list(total, call.query.page[0], await self._shown_groups(call, found))
        if call.method == "DELETE":
            await service.remove_group(directory, id)
            return None
        if call.method == "POST":
            group = await service.create_group(directory, group_of(call.body))
        elif call.method == "GET":
            group = await service.group(directory, id)
        else:

            def described(group: IdentityGroup, members: Sequence[User]) -> WantedGroup:
                if call.method == "PUT":
                    return group_of(call.body)
                return group_of(patched(_shown_group(call, group, members), call.body))

            group = await service.change_group(directory, id, described)
            if call.method == "PATCH":
                return None  # its members may be very many
        return (await self._shown_groups(call, [group]))[0]

    async def _shown_groups(
        self, call: ScimCall, groups: Sequence[IdentityGroup]
    ) -> Sequence[Mapping[str, Any]]:
        if call.method == "GET" and "members" in call.query.excluded_attributes:
            return [_shown_group(call, each, None) for each in groups]
        members = await self._provisioning.members([each.id for each in groups])
        return [_shown_group(call, each, members[each.id]) for each in groups]


def _list(total: int, start: int, found: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    return {
        "schemas": [f"{_MESSAGES}ListResponse"],
        "totalResults": total,
        "startIndex": start + 1,
        "itemsPerPage": len(found),
        "Resources": found,
    }


def _shown(call: ScimCall, kind: str, one: User | IdentityGroup, **more: Any) -> dict[str, Any]:
    external = {"externalId": one.external_id} if one.external_id else {}
    place = f"{call.base}/{kind}s/{one.id}"
    meta = {"resourceType": kind, "created": one.created_at.isoformat(), "location": place}
    return {"schemas": [_CORE + kind], "id": one.id, **external, **more, "meta": meta}


def _shown_user(call: ScimCall, user: User) -> dict[str, Any]:
    return _shown(
        *(call, "User", user),
        userName=user.user_name or user.email,
        name={"formatted": user.name},
        displayName=user.name,
        active=user.disabled_at is None,
        emails=[{"value": user.email, "type": "work", "primary": True}],
    )


def _shown_group(
    call: ScimCall, group: IdentityGroup, members: Sequence[User] | None
) -> dict[str, Any]:
    if members is None:
        return _shown(call, "Group", group, displayName=group.name)
    place = f"{call.base}/Users/"
    shown = [{"value": one.id, "display": one.name, "$ref": place + one.id} for one in members]
    return _shown(call, "Group", group, displayName=group.name, members=shown)


def _described(kind: str, id: str, base: str) -> Mapping[str, Any]:
    described = msgspec.json.decode(_DESCRIPTIONS.replace("{base}", base), type=dict[str, Any])
    found: Mapping[str, Any] | list[Any] | None = described.get(kind)
    if isinstance(found, list):
        known = {each["id"]: each for each in found}
        found = known.get(id) if id else _list(len(found), 0, found)
    elif id:
        found = None
    if found is None:
        raise NotFound(f"SCIM is at {_VERSION}: Users, Groups, {', '.join(described)}.")
    return found


async def _body(exchange: Exchange) -> Mapping[str, Any]:
    body = await read_body(exchange, _LIMITS)
    check_json_type(exchange.headers)
    body = await decompressed(exchange.headers, body, _LIMITS)
    try:
        return bounded_json.decode(body, dict[str, Any], _WORK)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(
            "The body is no JSON object of a bounded size.", code="invalidSyntax"
        ) from error
