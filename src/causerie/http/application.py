"""Route every request to its handler, and turn every failure into a response."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from urllib.parse import urlsplit

import structlog
from msgspec import Struct

from causerie.access.keys import Caller, KeyDigest
from causerie.access.networks import NetworkList
from causerie.errors import Forbidden, InvalidRequest, NotFound, ServiceError, forget_frames
from causerie.http import routing
from causerie.http.api import CompletionHandlers, KeyStatements, RequestLimits, RouterPages
from causerie.http.doors import DoorTable, MountedDoor, cors_headers, preflight_headers
from causerie.http.exchange import ClientGone, Exchange, internal
from causerie.http.head import host_name
from causerie.http.health import HealthHandlers, MetricsPage, ServingStatus
from causerie.http.openapi import Documents
from causerie.http.tasks import Drain
from causerie.observe.logging import request_id
from causerie.observe.metrics import MetricsCounters
from causerie.pipeline import Pipeline
from causerie.shapes.chat_completions.reader import CHAT_COMPLETIONS
from causerie.shapes.shape import Shape
from causerie.shapes.table import shape_of

log = structlog.get_logger(__name__)

Refusal = Callable[[Exchange, ServiceError], None]

_NO_DOOR = MountedDoor("", "")  # for paths of the service itself
_SHOWN = 200  # characters of a path in log lines
_MAX_REMEMBERED_PLACE = 512  # characters of host and path of a match


class OwnPaths(Struct, frozen=True):
    """Options of paths that belong to no door: the OpenAPI document and metrics."""

    docs: bool = True
    metrics_keys: tuple[KeyDigest, ...] | None = None  # that open `/metrics`; `None` leaves it open
    metrics_apart: bool = False  # the metrics are at an address of their own
    metrics_of_all: Callable[[], Awaitable[bytes]] | None = None  # of several workers


class Mount(Struct, frozen=True):
    """The handler of all paths with one first segment, how it sends errors, and its own address."""

    handler: routing.Handler
    refuse: Refusal
    address: str = ""
    at_doors: bool = False  # it answers at the host names of doors too

    @property
    def host(self) -> str:
        return urlsplit(self.address).hostname or ""


class RouteMatch(Struct, frozen=True):
    """The handler of a request, its door, and the parameter in its path."""

    handler: routing.DoorHandler
    door: MountedDoor
    parameter: str
    completes: bool = False  # it answers a completion, whose id is the request's


class Edge:
    """Answers every exchange of the service; its ``drain`` refuses and ends work at a stop."""

    def __init__(
        self,
        doors: DoorTable,
        pipeline: Pipeline,
        engines: ServingStatus,
        metrics: MetricsCounters,
        *,
        limits: RequestLimits | None = None,
        own: OwnPaths | None = None,
    ) -> None:
        self.drain = Drain()
        self._status_source = engines
        self._metrics = metrics
        self._mounts_by_first_segment: dict[str, Mount] = {}
        # By method, host and path
        self._route_match_cache: dict[tuple[str, str | None, str], RouteMatch] = {}
        self.replace(doors, pipeline, limits=limits, own=own)

    def replace(
        self,
        doors: DoorTable,
        pipeline: Pipeline,
        *,
        limits: RequestLimits | None = None,
        own: OwnPaths | None = None,
        teller: KeyStatements | None = None,
    ) -> None:
        """Use these doors and limits from now on; requests under way keep the former ones."""
        limits, own = limits or RequestLimits(), own or OwnPaths()
        self._route_match_cache = {}
        self._door_table = doors
        handlers = self._api_handlers = CompletionHandlers(pipeline, self.drain, limits)
        self._door_routes = routing.door_routes(handlers)
        self._all_router_routes = routing.router_routes(handlers, RouterPages(pipeline, teller))
        self._metrics_page = MetricsPage(self._metrics, own.metrics_keys, own.metrics_of_all)
        self._service_routes = routing.service_routes(
            HealthHandlers(self._status_source, self.drain),
            None if own.metrics_apart else self._metrics_page,
            Documents(limits.max_messages) if own.docs else None,
        )

    def mount(
        self,
        first: str,
        handler: routing.Handler,
        refuse: Refusal = Exchange.refuse,
        *,
        address: str = "",
        at_doors: bool = False,
    ) -> None:
        """Let ``handler`` answer all paths with this first segment, like ``/console``.

        It answers at the host name of ``address``; without one at all host names of the service
        but those of doors, and ``at_doors`` at these too. ``refuse`` sends its failures.
        """
        self._route_match_cache = {}
        self._mounts_by_first_segment[first] = Mount(handler, refuse, address, at_doors)

    async def converse(self, exchange: Exchange, caller: Caller, body: bytes | None = None) -> None:
        """Answer a chat completion of a caller who was authenticated without a key.

        It belongs to the door that ``caller`` names; ``body`` replaces that of the exchange. Raises
        :class:`ServiceError`.
        """
        door = self._door_table.named(caller.door)
        complete = self._api_handlers.complete
        await complete(CHAT_COMPLETIONS, exchange, door, caller=caller, written=body)

    async def answer(self, exchange: Exchange) -> None:
        """Answer one request; failures are answered too, never raised."""
        match: RouteMatch | None = None
        failure: ServiceError | None = None
        try:
            head = exchange.head
            headers = head.headers
            known = self._route_match_cache.get((head.method, headers.get("host"), head.path))
            if known is None or not known.completes or "origin" in headers:
                request_id.set(exchange.request_id)  # a completion gets another id
            if "origin" not in headers or not self._handle_cors(exchange):
                match = known or self._match_route(exchange)
                await match.handler(exchange, match.door, match.parameter)
        except ClientGone:
            if not exchange.metered:  # otherwise the line of the request says it
                log.info("client gone", path=exchange.path[:_SHOWN], status=exchange.status)
        except ServiceError as refused:
            failure = refused
        except Exception:  # the true top: whatever it is, the client gets an answer
            log.exception("request failed", path=exchange.path[:_SHOWN])
            failure = internal(exchange.request_id)
        if failure is not None:
            try:
                self._send_failure(exchange, match, failure)
            except Exception:  # the connection is closed below, so that no client waits for ever
                log.exception("a failure could not be told", path=exchange.path[:_SHOWN])
            forget_frames(failure)
            del failure
        if not exchange.ended:
            exchange.wire.abort()  # so that the client notices an incomplete response

    async def scrape(self, exchange: Exchange) -> None:
        """Answer a request at the separate address of the metrics."""
        try:
            self._door_table.own_name(exchange.headers.get("host"))
            if exchange.path != routing.METRICS_PATH:
                raise NotFound(
                    f"There is nothing at {exchange.path[:_SHOWN]} but {routing.METRICS_PATH}."
                )
            if exchange.method not in ("GET", "HEAD"):
                raise routing.method_not_allowed(exchange.method, ["GET"])
            await self._metrics_page.show(exchange)
        except ServiceError as refused:
            exchange.refuse(refused)

    def _send_failure(
        self, exchange: Exchange, match: RouteMatch | None, failure: ServiceError
    ) -> None:
        if exchange.status is not None:
            return
        if not exchange.metered:
            door = "" if match is None else match.door.name
            self._metrics.refused(door, failure.code, failure.status)
            path = exchange.path[:_SHOWN]
            log.info("refused", path=path, status=failure.status, code=failure.code)
        self._choose_refusal_sender(exchange)(exchange, failure)

    def _choose_refusal_sender(self, exchange: Exchange) -> Refusal:
        found = self._mounts_by_first_segment.get(_top_level_path(exchange.path))
        if found is None:
            shape = shape_of(exchange.path)
            return Exchange.refuse if shape is CHAT_COMPLETIONS else partial(_send_refusal, shape)
        try:
            name = host_name(exchange.headers.get("host"))
        except InvalidRequest:  # this is the failure that is sent
            return Exchange.refuse
        of_door = self._door_table.has_host(name) and not (found.address and name == found.host)
        return Exchange.refuse if of_door else found.refuse

    def _handle_cors(self, exchange: Exchange) -> bool:
        path, headers = exchange.path, exchange.headers
        if path in self._service_routes or _top_level_path(path) in self._mounts_by_first_segment:
            return False
        origin = headers["origin"]
        try:
            door, _ = self._door_table.find(headers.get("host"), path)
        except ServiceError:  # which is raised again by whoever looks for a handler
            return False
        allowed = door.origins.allow(origin)
        if exchange.method != "OPTIONS" or "access-control-request-method" not in headers:
            exchange.cross_origin = cors_headers(origin) if allowed else None
            return False
        if not allowed:
            raise Forbidden(
                f"Pages of {origin[:_SHOWN]} may not call from a browser here; add the origin to "
                "the door's `origins` or to `server.origins`.",
                code="origin_not_allowed",
            )
        exchange.respond(204, b"", headers=preflight_headers(origin, headers))
        return True

    def _match_route(self, exchange: Exchange) -> RouteMatch:
        method, path, host = exchange.method, exchange.path, exchange.headers.get("host")
        own = self._get_doorless_handler(exchange, host)
        if own is not None:
            match = RouteMatch(lambda exchange, *_: own(exchange), _NO_DOOR, "")
        else:
            door, rest = self._door_table.find(host, path)
            routes = self._all_router_routes if door.kind == "router" else self._door_routes
            handler, parameter = routing.find_handler(routes, method, path.removesuffix(rest), rest)
            completes = isinstance(handler, partial)
            if door.networks is not None:
                handler = _wrap_network_check(handler, door.networks)
            match = RouteMatch(handler, door, parameter, completes)
        if len(path) + len(host or "") <= _MAX_REMEMBERED_PLACE:
            if len(self._route_match_cache) >= 4096:
                self._route_match_cache.clear()
            self._route_match_cache[method, host, path] = match
        return match

    def _get_doorless_handler(self, exchange: Exchange, host: str | None) -> routing.Handler | None:
        handler = self._service_routes.get(exchange.path)
        if handler is not None:
            self._door_table.own_name(host)
            if exchange.method not in ("GET", "HEAD"):
                raise routing.method_not_allowed(exchange.method, ["GET"])
            return handler
        mounted = self._mounts_by_first_segment.get(_top_level_path(exchange.path))
        if mounted is None:
            return None
        if mounted.address and host_name(host) == mounted.host:
            return mounted.handler
        if self._door_table.has_host(self._door_table.own_name(host)) and not mounted.at_doors:
            return None
        if mounted.address:
            raise InvalidRequest(
                f"These pages are at {mounted.address}. A proxy in front of the service must pass "
                "on the `Host` header of the browser.",
                code="misdirected_request",
                status=421,
            )
        return mounted.handler


def _wrap_network_check(handler: routing.DoorHandler, networks: NetworkList) -> routing.DoorHandler:
    async def answer(exchange: Exchange, door: MountedDoor, parameter: str) -> None:
        networks.check(exchange.client(door.proxies), f"The door {door.name}")
        await handler(exchange, door, parameter)

    return answer


def _send_refusal(shape: Shape, exchange: Exchange, failure: ServiceError) -> None:
    exchange.id_header = shape.id_header
    body = shape.error(failure, exchange.request_id)
    exchange.refuse(failure, shape.error_status(failure), body)


def _top_level_path(path: str) -> str:
    return "/" + path[1:].partition("/")[0]
