"""SCIM 2.0 (RFC 7643 and 7644) at ``/scim/v2``: a directory creates, changes and disables people,
and moves them between groups.

The key of a request says which directory asks. Answers have the form of SCIM, failures too.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from causerie.access.keys import Credential, KeyDigest, no_key, wrong_key
from causerie.access.limits import Rates, RateScope, Tokens
from causerie.access.windows import MemoryCounters
from causerie.errors import InvalidRequest, NotFound, ServiceError
from causerie.hosted.accounts.people import IdentityGroup, User
from causerie.hosted.accounts.provisioning import Directory, Provisioning
from causerie.hosted.management.routing import query_of
from causerie.hosted.management.scim_resources import (
    GROUP,
    USER,
    conditions,
    group_of,
    patched,
    person_of,
    resource_types,
    schemas,
    service_provider,
)
from causerie.http.exchange import BodyLimits, Exchange, check_json_type, decompressed, read_body
from causerie.http.routing import method_not_allowed
from causerie.protocol import bounded_json

PREFIX = "/scim"
_VERSION = f"{PREFIX}/v2"
_TYPE = "application/scim+json"
_MESSAGES = "urn:ietf:params:scim:api:messages:2.0:"
_LIMITS = BodyLimits(max_bytes=1024 * 1024)
_WORK = bounded_json.Bounds(values=50_000, exponents=0)
_COUNT, _MOST = 100, 200  # resources of a page
_AT_ONCE = 16
_KINDS = frozenset(
    {"invalidFilter", "invalidPath", "invalidSyntax", "invalidValue", "mutability", "tooMany"}
)


@dataclass(frozen=True, slots=True)
class DirectoryKey:
    """A key by which a directory provisions."""

    digest: KeyDigest
    directory: Directory


class ScimQuery(Struct, frozen=True, rename="camel"):
    """The used parameters of a query."""

    filter: str = ""
    start_index: int = 1
    count: int = _COUNT
    attributes: str = ""
    excluded_attributes: str = ""

    @property
    def page(self) -> tuple[int, int]:
        """Offset and number of the wanted resources (RFC 7644, section 3.4.2.4)."""
        return max(self.start_index, 1) - 1, min(max(self.count, 0), _MOST)


@dataclass(frozen=True, slots=True)
class ScimCall:
    """One request of a directory; ``base`` is the address of SCIM without a slash at its end."""

    directory: Directory
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
        keys: Callable[[], Sequence[DirectoryKey]],
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
        key = self._key(exchange.credential)
        with self._limits.take_now([RateScope("key", key.digest.id, self._rates)], Tokens):
            kind, _, id = exchange.path.removeprefix(_VERSION).strip("/").partition("/")
            method = "GET" if exchange.method == "HEAD" else exchange.method
            found = {"Users": self._user, "Groups": self._group}.get(kind)
            if not exchange.path.startswith(f"{_VERSION}/") or "/" in id:
                found, kind = None, ""
            if found is None:
                self._send(exchange, 200, _described(kind, id, method, self._url(exchange)))
                return
            allowed = ("GET", "PUT", "PATCH", "DELETE") if id else ("GET", "POST")
            if method not in allowed:
                raise method_not_allowed(method, allowed)
            body = await _body(exchange) if method in ("POST", "PUT", "PATCH") else {}
            query = query_of(exchange.query, ScimQuery)
            call = ScimCall(key.directory, self._url(exchange), method, query, body)
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

    def _key(self, credential: Credential | None) -> DirectoryKey:
        if credential is None:
            raise no_key()
        found = None
        for key in self._keys():  # all of them, in constant time, whichever matches
            if hmac.compare_digest(key.digest.digest, credential.digest):
                found = key
        if found is None:
            raise wrong_key(credential)
        return found

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
            where = conditions(call.query.filter, USER)
            total, found = await service.people(where, *call.query.page)
            listed = [_without(call, _shown_user(call, each)) for each in found]
            return _list(total, call.query.page[0], listed)
        if call.method == "DELETE":
            await service.remove(directory, id)
            return None
        if call.method == "POST":
            return _shown_user(call, await service.create(directory, person_of(call.body)))
        user = await service.person(id)
        if call.method != "GET":
            whole = call.body
            if call.method == "PATCH":  # a new `name` counts where there is no new `displayName`
                whole = patched({**_shown_user(call, user), "displayName": None}, call.body)
            user = await service.change(directory, id, person_of(whole))
        return _without(call, _shown_user(call, user))

    async def _group(self, call: ScimCall, id: str) -> Mapping[str, Any] | None:
        service, directory = self._provisioning, call.directory
        if call.method == "GET" and not id:
            where = conditions(call.query.filter, GROUP)
            total, found = await service.groups(directory, where, *call.query.page)
            listed = [_without(call, each) for each in await self._shown_groups(call, found)]
            return _list(total, call.query.page[0], listed)
        if call.method == "DELETE":
            await service.remove_group(directory, id)
            return None
        if call.method in ("POST", "PUT"):
            made = await service.put_group(directory, id or None, *group_of(call.body))
            return (await self._shown_groups(call, [made]))[0]
        [shown] = await self._shown_groups(call, [await service.group(directory, id)])
        if call.method == "PATCH":
            await service.put_group(directory, id, *group_of(patched(shown, call.body)))
            return None  # its members may be very many
        return _without(call, shown)

    async def _shown_groups(
        self, call: ScimCall, groups: Sequence[IdentityGroup]
    ) -> Sequence[Mapping[str, Any]]:
        unwanted = call.method == "GET" and "members" in call.query.excluded_attributes
        ids = [] if unwanted else [each.id for each in groups]
        members = await self._provisioning.members(ids)
        return [_shown_group(call, each, members.get(each.id, ())) for each in groups]


def _list(total: int, start: int, found: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    return {
        "schemas": [f"{_MESSAGES}ListResponse"],
        "totalResults": total,
        "startIndex": start + 1,
        "itemsPerPage": len(found),
        "Resources": found,
    }


def _without(call: ScimCall, resource: Mapping[str, Any]) -> Mapping[str, Any]:
    unwanted = {each.strip() for each in call.query.excluded_attributes.split(",")}
    wanted = {each.strip().partition(".")[0] for each in call.query.attributes.split(",")} - {""}
    kept = unwanted - {"id", "schemas", "meta"}
    wanted |= {"id", "schemas", "meta"} if wanted else set()
    return {
        name: value
        for name, value in resource.items()
        if name not in kept and (not wanted or name in wanted)
    }


def _meta(call: ScimCall, kind: str, id: str, created: datetime) -> Mapping[str, str]:
    place = f"{call.base}/{kind}s/{id}"
    return {"resourceType": kind, "created": created.isoformat(), "location": place}


def _shown_user(call: ScimCall, user: User) -> Mapping[str, Any]:
    external = {"externalId": user.external_id} if user.external_id else {}
    return {
        "schemas": [USER.id],
        "id": user.id,
        **external,
        "userName": user.user_name or user.email,
        "name": {"formatted": user.name},
        "displayName": user.name,
        "active": user.disabled_at is None,
        "emails": [{"value": user.email, "type": "work", "primary": True}],
        "meta": _meta(call, "User", user.id, user.created_at),
    }


def _shown_group(call: ScimCall, group: IdentityGroup, members: Sequence[User]) -> dict[str, Any]:
    external = {"externalId": group.external_id} if group.external_id else {}
    people = f"{call.base}/Users/"
    return {
        "schemas": [GROUP.id],
        "id": group.id,
        **external,
        "displayName": group.name,
        "members": [
            {"value": each.id, "display": each.name, "$ref": people + each.id} for each in members
        ],
        "meta": _meta(call, "Group", group.id, group.created_at),
    }


def _described(kind: str, id: str, method: str, base: str) -> Mapping[str, Any]:
    """Return what SCIM is here; raise :class:`NotFound` for a path that there is not."""
    if kind == "ServiceProviderConfig" and not id:
        found: Mapping[str, Any] = service_provider(base, _MOST)
    elif kind in ("Schemas", "ResourceTypes"):
        listed = schemas(base) if kind == "Schemas" else resource_types(base)
        known = {each["id"]: each for each in listed}
        if id and id not in known:
            raise NotFound(f"There is no {kind} {id[:100]}.")
        found = known[id] if id else _list(len(listed), 0, listed)
    else:
        raise NotFound(
            f"SCIM is at {_VERSION}: Users, Groups, ServiceProviderConfig, Schemas, ResourceTypes."
        )
    if method != "GET":
        raise method_not_allowed(method, ["GET"])
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
