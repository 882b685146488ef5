"""Differences of a provider's API, as data.

A :class:`Dialect` lists the parameters that a kind of server knows and their names, and how it
switches thinking, forces calls, takes response formats and continues a reply. It knows nothing
of connections, and nothing of one server's models.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal
from urllib.parse import quote

from msgspec import structs

from causerie.http.addresses import NO_INSIDE_HOSTS, InsideHosts
from causerie.protocol.events import Usage
from causerie.protocol.known_fields import KNOWN, OPEN, PASSED, Known, grown, privilege_in
from causerie.protocol.parameters import HINT_NAMES, HONOURED
from causerie.protocol.request import Operation, Unlisted

Switch = Literal["as_sent", "template", "effort", "typed", "object", "adaptive"]
Choice = Literal["none", "auto", "required", "named", "allowed"]
Shape = Literal["json_object", "json_schema", "regex", "choice", "grammar"]
Shaping = Literal[
    "response_format",
    "structured_outputs",
    "object_schema",
    "regex",
    "choice_regex",
    "ebnf",
    "grammar",
    "choice_grammar",
]

_INDEX = re.compile(r"\[\d+\]")  # of a message
_ALWAYS = frozenset({"model", "messages", "stream", "stream_options"})


CHAT_PATH = "/chat/completions"


@dataclass(frozen=True, slots=True)
class Api:
    """Paths, headers and bodies of a server's interface."""

    bodies: Literal["chat", "messages"] = "chat"  # chat completions, or Anthropic's Messages API
    path: str = CHAT_PATH
    """Path of requests, below the base URL; ``{model}`` stands for the model."""
    models: str = "/models"  # path of the list of models, below the base URL
    key: str = "authorization"
    """Header of the API key; in ``authorization`` it is a bearer token."""
    headers: tuple[tuple[str, str], ...] = ()  # headers that every request needs
    version: str = ""
    """The ``api-version`` of every request, for servers that have one."""

    def at(self, path: str, model: str = "") -> str:
        """Return the path for ``model``, with the server's API version if it has one."""
        path = path.replace("{model}", quote(model, safe=""))
        return f"{path}?api-version={self.version}" if self.version else path

    def path_of(self, operation: Operation) -> str:
        """Return the path of requests for an operation; empty if there is none."""
        if operation == "chat":
            return self.path
        base = self.path.removesuffix(CHAT_PATH)
        return "" if self.bodies != "chat" or base == self.path else f"{base}/{operation}"

    def credential(self, key: str | None) -> list[tuple[str, str]]:
        if not key:
            return []
        return [(self.key, f"Bearer {key}" if self.key == "authorization" else key)]


CHAT = Api()


@dataclass(frozen=True, slots=True)
class ThinkingControl:
    """How a kind of server controls thinking: the switch, words for efforts, budget field."""

    switch: Switch
    """``template`` (``chat_template_kwargs.enable_thinking``), ``effort`` (one of the words of
    ``reasoning_effort`` means off), ``typed`` (``thinking: {"type": ...}``), ``object``
    (``reasoning: {...}``), ``adaptive`` (``thinking: {"type": "adaptive"}`` with
    ``output_config.effort``), or ``as_sent`` if the server is not known.
    """
    efforts: Mapping[str, str] = field(default_factory=dict)
    """Maps our words to those that the server knows."""
    effort_in_template: bool = False  # the word is one of the template's arguments
    budget: str | None = None  # the field that takes a number of tokens


@dataclass(frozen=True, slots=True)
class CallIds:
    """Pattern of call ids that a server takes; any other id is replaced by one derived from it."""

    pattern: str  # a regular expression of the ids that are sent unchanged
    prefix: str = "call_"
    digits: int = 24

    def fitting(self, identifier: str) -> str:
        """Return the id to send for this one: itself if the server takes it, else another."""
        if re.fullmatch(self.pattern, identifier, re.ASCII | re.DOTALL):
            return identifier
        return self.prefix + hashlib.sha256(identifier.encode()).hexdigest()[: self.digits]


@dataclass(frozen=True, slots=True)
class HistoryStyle:
    """How a kind of server takes earlier messages: reasoning, call ids, roles, names."""

    reasoning: tuple[str, ...] = ("reasoning_content",)
    """Fields of earlier reasoning (none: it is left out)."""
    parts: bool = False  # write reasoning as parts of the content instead
    details: bool = False  # send blocks of reasoning that the server made back to it unchanged
    extras: bool = False
    """Send the ``extra_content`` alongside a call back unchanged."""
    placeholder: str = ""
    """Stands for reasoning that a message with calls lacks, where a server refuses that."""
    call_ids: CallIds | None = None
    """Ids of calls that the server takes; ``None``: all."""
    lenient: bool = True
    """It takes empty answers, a user's message behind a result, and an answer at the end."""
    developer: bool = False  # the role is known
    names: bool = True  # the field `name` is known


@dataclass(frozen=True, slots=True)
class Continuing:
    """How a kind of server continues a partial reply."""

    way: Literal["none", "as_sent", "flag", "prefix"] = "none"
    """``flag`` (``continue_final_message``), ``prefix`` (``prefix: true`` on the last message),
    ``as_sent`` (the flag, if the client sends it; its effect is unknown), or ``none``.
    """
    after_reasoning: bool = False  # also if reasoning came before the text
    in_reasoning: bool = False  # also if there is only reasoning
    repeats: bool = False  # the reply may begin with the text that it was given


@dataclass(frozen=True)
class Dialect:
    """Data on one kind of server: what it accepts, and how requests are written for it.

    Parameters of the interface that it does not list are dropped if they are hints and rejected if
    not. Every other field is dropped.
    """

    name: str
    server: str
    thinking: ThinkingControl
    accepts: frozenset[str]  # parameters that are sent unchanged
    api: Api = CHAT
    knows: frozenset[str] = frozenset()
    """Paths of fields beyond the interface that are sent unchanged but for privileged parts."""
    privileged: frozenset[str] = frozenset()
    """Paths that the operator has allowed with everything in them."""
    history: HistoryStyle = HistoryStyle()
    continuing: Continuing = Continuing()
    renames: Mapping[str, str] = field(default_factory=dict)  # parameters with another name there
    limit: Literal["", "max_tokens", "max_completion_tokens"] = ""
    """Name of the output limit; empty: the one that was sent."""
    choices: frozenset[Choice] = frozenset({"none", "auto", "required", "named"})
    """Forms of ``tool_choice`` that have an effect."""
    shapes: Mapping[Shape, Shaping] = field(default_factory=dict)
    """Request fields for each shape of structured output."""
    streams: bool = False
    """Always stream from it: other work goes on when its client has left. Settings override it."""
    tells_usage: bool = True  # ask streams for their usage
    tags: bool = False  # reasoning may be left inside the content
    tag: str = ""  # name of a tag for it that only this server writes
    parallel_by_default: bool = True  # else one at a time unless more are requested
    least_top_logprobs: int = 0  # with fewer, none come at all
    strict_schemas: bool = False  # only a schema marked as strict is enforced
    unheeded: frozenset[str] = frozenset()  # parameters without effect while the model thinks
    demands: bool = False  # parameters are ignored unless the request demands that they are not
    fetches: bool = False
    """Images may be given by ``https`` addresses, which a provider fetches from its own network. A
    server in a network of ours could be made to read there what only this network may.
    """
    inside: InsideHosts = NO_INSIDE_HOSTS
    """Hosts of one's own network from which it may fetch nevertheless."""
    cache_salt: str = ""  # field that takes a cache scope: prompts of another scope are not reused
    native: Mapping[str, str] = field(default_factory=dict)
    """APIs that clients may speak with it directly, and their paths below the base URL."""
    extends: bool = False
    """A service like this one: it takes its parameters in all APIs, and reads what is sealed."""
    coarse_cache: bool = False
    """Prompts are reused in steps so long that its report tells nobody another one's prompt."""

    def reported(self, usage: Usage, scope: str) -> Usage:
        """Return the usage, without cached tokens if they may tell of another scope's prompts.

        Without cached tokens, if the server may have reused a prompt of another scope and would
        tell it token by token.
        """
        if not (scope and usage.cached) or self.cache_salt or self.coarse_cache:
            return usage
        return structs.replace(usage, cached=0)

    def passing(self, passes: Collection[str], privileged: Collection[str]) -> Dialect:
        """Return a dialect that also sends the fields ``passes`` and ``privileged``."""
        harmless = {path for path in passes if privilege_in(path) is None}
        ours = (harmless | set(privileged)) & (HONOURED | HINT_NAMES)
        return replace(
            self,
            accepts=self.accepts | ours,
            knows=self.knows | (harmless - ours),
            privileged=self.privileged | (set(privileged) - ours),
        )

    def adds_to(self, unlisted: Unlisted) -> bool:
        """Return true if the provider takes some of the fields that the interface does not list."""
        mine = self.knows | self.privileged
        if unlisted.more:
            return bool(mine)
        names = [_INDEX.sub("", name) for name in unlisted.names]
        return any(path == name or path.startswith(f"{name}.") for path in mine for name in names)

    @cached_property
    def plain(self) -> frozenset[str]:
        """Return the parameters of a plain request that are sent as they came."""
        if self.unheeded or self.api.bodies != "chat":
            return frozenset()
        limits = {self.limit} if self.limit else {"max_tokens", "max_completion_tokens"}
        return _ALWAYS | limits | (self.accepts & {"temperature", "top_p"})

    @cached_property
    def lists(self) -> Known:
        """Return all fields that a request may have for this server."""
        return self.growing(KNOWN)

    def growing(self, known: Known) -> Known:
        """Return ``known`` with the further fields that this server gets."""
        for path in sorted(self.knows):
            known = grown(known, path, PASSED)
        for path in sorted(self.privileged):
            known = grown(known, path, OPEN)
        return known
