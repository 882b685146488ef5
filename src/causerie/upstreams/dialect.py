"""What a chat endpoint that others run does differently, as data.

A :class:`Dialect` says which parameters a kind of server knows and under which
names, how thinking is switched there, how forced calls and shaped answers are
asked for, and how a reply is continued. It knows nothing of connections, and
nothing of one server's models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Switch = Literal["as_sent", "template", "effort", "typed", "object"]
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

_ALWAYS = frozenset({"model", "messages", "stream", "stream_options"})


@dataclass(frozen=True, slots=True)
class ThinkingControl:
    """How thinking is switched.

    ``switch`` is the way: ``template`` (``chat_template_kwargs.enable_thinking``),
    ``effort`` (one of the words of ``reasoning_effort`` means off), ``typed``
    (``thinking: {"type": ...}``), ``object`` (``reasoning: {...}``), or
    ``as_sent`` where the server is not known. ``efforts`` maps our words to
    those known there; ``effort_in_template`` puts the word among the template's
    arguments. ``budget`` names the field that takes a number of tokens.
    """

    switch: Switch
    efforts: Mapping[str, str] = field(default_factory=dict)
    effort_in_template: bool = False
    budget: str | None = None


@dataclass(frozen=True, slots=True)
class History:
    """How earlier messages are written.

    ``reasoning`` are the fields under which earlier reasoning is sent (none:
    it is left out), ``parts`` writes it as parts of the content instead.
    ``details``: blocks of reasoning that it made itself are sent back as they were;
    ``extras``: so is the ``extra_content`` beside a call.
    ``placeholder`` stands in for reasoning that a message with calls lacks,
    where the server refuses such a message while thinking.
    ``nine_character_ids`` is a rule for ids of calls; ``developer`` and
    ``names`` say whether that role and the field ``name`` are known.
    """

    reasoning: tuple[str, ...] = ("reasoning_content",)
    parts: bool = False
    details: bool = False
    extras: bool = False
    placeholder: str = ""
    nine_character_ids: bool = False
    developer: bool = False
    names: bool = True


@dataclass(frozen=True, slots=True)
class Continuing:
    """How a reply is continued after what there is of it.

    ``way``: ``flag`` (``continue_final_message``), ``prefix`` (``prefix: true``
    on the last message), ``as_sent`` (the flag, where the client sends it; it
    is not known whether it does anything), or ``none``. ``after_reasoning``: also where reasoning
    came before the text; ``in_reasoning``: also where only reasoning is there.
    ``repeats``: the reply may begin with what it was given.
    """

    way: Literal["none", "as_sent", "flag", "prefix"] = "none"
    after_reasoning: bool = False
    in_reasoning: bool = False
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class Dialect:
    """One kind of server.

    ``accepts`` are parameters that are sent as they are, ``renames`` those with
    another name there; whatever else of ours is given is dropped if it is a
    hint and refused if it is not. ``limit`` is the name of the output limit
    (empty: the one that was sent). ``choices`` are the forms of ``tool_choice``
    that have an effect, ``shapes`` how each shape of an answer is asked for.

    ``streams``: replies are always streamed from it, because work on one that
    is not goes on when its client has left; settings may say otherwise.
    ``tells_usage``: streams are asked for their usage. ``tags``: reasoning may be left inside the
    content.
    ``parallel_by_default`` is False where calls come one at a time unless more
    are asked for. ``least_top_logprobs``: with fewer, none come at all.
    ``strict_schemas``: only a schema that says so is enforced.
    ``unheeded`` have no effect while the model thinks. ``demands``: parameters
    are ignored unless the request demands that they are not. ``fetches``: images may be given
    by ``https`` addresses, which a provider fetches from where it is; a server in a network of
    ours could be made to read there what only this network may. ``plain`` follows
    from the others: parameters of an everyday request that go out as they came.
    """

    name: str
    server: str
    thinking: ThinkingControl
    accepts: frozenset[str]
    history: History = History()
    continuing: Continuing = Continuing()
    renames: Mapping[str, str] = field(default_factory=dict)
    limit: Literal["", "max_tokens", "max_completion_tokens"] = ""
    choices: frozenset[Choice] = frozenset({"none", "auto", "required", "named"})
    shapes: Mapping[Shape, Shaping] = field(default_factory=dict)
    streams: bool = False
    tells_usage: bool = True
    tags: bool = False
    parallel_by_default: bool = True
    least_top_logprobs: int = 0
    strict_schemas: bool = False
    unheeded: frozenset[str] = frozenset()
    demands: bool = False
    fetches: bool = False
    plain: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "plain", self._plain())

    def _plain(self) -> frozenset[str]:
        if self.unheeded:
            return frozenset()
        limits = {self.limit} if self.limit else {"max_tokens", "max_completion_tokens"}
        return _ALWAYS | limits | (self.accepts & {"temperature", "top_p"})
