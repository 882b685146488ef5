"""Declaration of one operation of the API, and the reading of a request's query and body by it.

The same declaration answers requests and is the documentation, so the two cannot differ.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import ModuleType, NoneType
from typing import Any, Generic, Literal, TypeVar, get_args, get_type_hints
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from causerie.errors import InvalidRequest
from causerie.hosted.accounts.accounts import Accounts
from causerie.hosted.accounts.bounds import LimitsAndBudgets
from causerie.hosted.accounts.people import Actor
from causerie.hosted.management.requests import Body, NoBody, NoQuery, PageQuery
from causerie.hosted.management.views import Answering, Page, View, page_of
from causerie.hosted.operations.ports import Operations
from causerie.http.answers import Export
from causerie.http.exchange import BodyLimits, Exchange, check_json_type, decompressed, read_body
from causerie.protocol import bounded_json

ID_PATTERN = "^[A-Za-z0-9_-]{1,64}$"
_WITH_BODY = ("POST", "PUT", "PATCH")


Q = TypeVar("Q", bound=Struct)
B = TypeVar("B", bound=Struct)


@dataclass(frozen=True, slots=True)
class ApiCall(Answering, Generic[Q, B]):
    """One request: the shared services, the caller, and the decoded query and body."""

    accounts: Accounts
    operations: Operations
    actor: Actor
    query: Q
    body: B

    @property
    def project(self) -> str | None:
        """Return the project id of the query, else that of the key; ``None`` means all projects."""
        return getattr(self.query, "project", "") or self.actor.project


Call = ApiCall[NoQuery, NoBody]
WithBody = ApiCall[NoQuery, B]
WithQuery = ApiCall[Q, NoBody]
Handler = Callable[..., Awaitable[Struct | Export | None]]


@dataclass(frozen=True, slots=True)
class ApiRoute:
    """One operation; the ids in the path are arguments of the ``handler``, by their names."""

    method: str
    path: str
    status: int
    summary: str
    handler: Handler
    query: type[Struct]
    body: type[Struct]
    answer: type[Struct | Export | None]

    @property
    def name(self) -> str:
        """Return the id of the operation: its method and the words of its path, joined by ``_``."""
        words = re.findall(r"[a-z]+", self.path)
        return "_".join([self.method.lower(), *words])

    @property
    def parameters(self) -> Sequence[str]:
        return re.findall(r"{(\w+)}", self.path)

    @property
    def takes_body(self) -> bool:
        return self.method in _WITH_BODY


def route(place: str, summary: str) -> Callable[[Handler], ApiRoute]:
    """Return a decorator that makes an :class:`ApiRoute` of a handler.

    ``place`` is ``METHOD PATH``, and 201 behind it where something is made. Query, body and answer
    are those that the annotations of the handler name.
    """

    def declare(handler: Handler) -> ApiRoute:
        hints = get_type_hints(handler)
        (query, body), answer = get_args(hints["call"]), hints["return"]
        return _build_api_route_of_types(place, summary, handler, query, body, answer)

    return declare


class Act(Struct, frozen=True, array_like=True):
    """An operation that calls one method of a service: a row of ``acts.toml``.

    ``asks`` is the type of body or query, of which the method gets the fields by their names. With
    an argument before it, like ``draft: KeyDraft``, that argument gets the body.
    """

    summary: str
    method: str
    answer: str = ""
    asks: str = ""
    fixed: Mapping[str, Any] = {}

    def arguments(self, body: Struct) -> dict[str, Any]:
        name, _, _ = self.asks.rpartition(": ")
        if name:
            bounds = getattr(body, "bounds", None)
            if isinstance(bounds, LimitsAndBudgets):
                bounds.check("bounds.")
            return {name: body}
        return body.arguments() if isinstance(body, Body) else {}


_ACTS: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("acts.toml").read_text("utf-8"))


def acts(services: Literal["accounts", "operations"], *modules: ModuleType) -> Sequence[ApiRoute]:
    """Return the routes of ``acts.toml`` for ``services``, with the types in ``modules``."""
    types: dict[str, Any] = {"": None}
    for module in modules:
        types |= vars(module)
    found = []
    for place, row in msgspec.convert(_ACTS[services], dict[str, Act]).items():
        answer, asks = types[row.answer] or NoneType, types[row.asks.rpartition(": ")[2]]
        takes_body = place.startswith(_WITH_BODY)
        query = PageQuery if issubclass(answer, Page) else asks if not takes_body else None
        body = asks if takes_body else None
        handler = partial(_call_service, services, row, answer)
        kinds = query or NoQuery, body or NoBody, answer
        found.append(_build_api_route_of_types(place, row.summary, handler, *kinds))
    return found


async def _call_service(
    services_name: str, action: Act, answer_type: type[Any], call: ApiCall[Any, Any], **ids: str
) -> Any:
    method = attrgetter(action.method)(getattr(call, services_name))
    asked = {} if issubclass(answer_type, Page) else asdict(call.query)
    found = await method(
        call.actor, *ids.values(), **action.fixed, **asked, **action.arguments(call.body)
    )
    if issubclass(answer_type, Page):
        return page_of(answer_type, found, call.query, call)
    if issubclass(answer_type, View):
        return answer_type.of(found, call)
    return None if answer_type is NoneType else found


def _build_api_route_of_types(
    method_path_and_status: str, summary: str, handler: Handler, *types: Any
) -> ApiRoute:
    method, path, *made = method_path_and_status.split()
    status = int(made[0]) if made else 204 if types[-1] is NoneType else 200
    return ApiRoute(method, path, status, summary, handler, *types)


_LIMITS = BodyLimits(max_bytes=64 * 1024)
_WORK = bounded_json.Bounds(values=10_000, exponents=0)
_MOST_PARAMETERS = 32
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`")
_TYPE = re.compile(r"Expected `([^`]*)`, got `([^`]*)`")
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime(2200, 1, 1, tzinfo=UTC)

T = TypeVar("T", bound=Struct)


async def body_of(exchange: Exchange, type: type[T]) -> T:
    """Read a body as this ``type``, an empty one as ``{}``; raise :class:`InvalidRequest`."""
    body = await read_body(exchange, _LIMITS)
    if body:
        check_json_type(exchange.headers)
        body = await decompressed(exchange.headers, body, _LIMITS)
    if b"\\u0000" in body:
        raise InvalidRequest("The body holds the character U+0000; leave it out.")
    try:
        return bounded_json.decode(body or b"{}", type, _WORK)
    except msgspec.ValidationError as error:
        raise _build_decode_refusal(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(
            "The body is not valid JSON; send one object, encoded as UTF-8.", code="invalid_json"
        ) from error


def query_of(query: str, type: type[T]) -> T:
    """Parse a query string into this ``type``; raise :class:`InvalidRequest`."""
    try:
        pairs = parse_qsl(
            query, keep_blank_values=True, errors="strict", max_num_fields=_MOST_PARAMETERS
        )
    except ValueError as error:
        raise InvalidRequest(
            f"The query is not at most {_MOST_PARAMETERS} pairs NAME=VALUE in UTF-8."
        ) from error
    given: dict[str, str] = {}
    for name, value in pairs:
        if name in given:
            raise InvalidRequest(f"`{name[:100]}` is given twice; give it once.", param=name[:100])
        if any(ord(each) < 32 or ord(each) == 127 for each in value):
            raise InvalidRequest(
                f"`{name[:100]}` holds a control character; leave it out.",
                param=name[:100],
                code="invalid_value",
            )
        given[name] = value
    try:
        return msgspec.convert(given, type, strict=False)
    except msgspec.ValidationError as error:
        raise _build_decode_refusal(str(error)) from error


def moment(text: str, param: str) -> datetime | None:
    """Parse a time, or a day, which is its midnight in UTC; return ``None`` for nothing.

    Raises :class:`InvalidRequest`.
    """
    if not text:
        return None
    try:
        # A plus sign that stands unescaped in a query is read as a space.
        found = datetime.fromisoformat(text.replace(" ", "+"))
        if found.tzinfo is None and len(text) > len("2026-11-21"):
            raise ValueError("a time without its zone")
    except ValueError as error:
        raise InvalidRequest(
            "A time is written 2026-11-21T12:00:00Z, or 2026-11-21 for the beginning of a day "
            "(UTC).",
            param=param,
        ) from error
    found = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    if not _EARLIEST <= found <= _LATEST:
        raise InvalidRequest("A time lies between 1970 and 2200.", param=param)
    return found.astimezone(UTC)


def _build_decode_refusal(message: str) -> InvalidRequest:
    what, _, path = message.partition(" - at `$")
    path = path.removesuffix("`").removeprefix(".")
    if found := _UNKNOWN.search(what):
        param = f"{path}.{found[1]}".removeprefix(".")
        return InvalidRequest(
            f"`{param[:100]}` is not known here; leave it out.",
            code="unsupported_parameter",
            param=param[:100],
        )
    if found := _MISSING.search(what):
        param = f"{path}.{found[1]}".removeprefix(".")
        return InvalidRequest(f"`{param}` is missing.", code="missing_parameter", param=param)
    place = f"`{path}`" if path else "The body"
    if found := _TYPE.search(what):
        wanted = found[1].replace(" | ", " or ")
        return InvalidRequest(
            f"{place} must be {wanted}, not {found[2]}.", code="invalid_type", param=path or None
        )
    reason = what[:1].lower() + what[1:200].replace("`", "")
    return InvalidRequest(
        f"{place} is not right: {reason}; /api/openapi.json says what is.", param=path or None
    )
