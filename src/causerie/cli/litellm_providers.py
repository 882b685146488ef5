"""The provider that an entry of LiteLLM's ``model_list`` asks, by its ``litellm_params``.

LiteLLM names the provider by the beginning of ``model``, up to its first ``/``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from causerie.providers.known import KNOWN_PROVIDERS

# Beginnings that are not the name of a known provider.
_OTHER_NAMES = {
    "cohere_chat": "cohere", "fireworks_ai": "fireworks", "hosted_vllm": "vllm",
    "lm_studio": "lmstudio", "llamafile": "llama-server", "nvidia_nim": "nvidia",
    "ollama_chat": "ollama", "together_ai": "together",
}  # fmt: skip
# Variables where LiteLLM looks for a key, where they are not `BEGINNING_API_KEY`.
_VARIABLES = {
    "azure": "AZURE_API_KEY", "cohere_chat": "COHERE_API_KEY", "perplexity": "PERPLEXITYAI_API_KEY",
    "together_ai": "TOGETHERAI_API_KEY",
}  # fmt: skip
_COMPATIBLE = ("openai", "custom_openai", "openai_like", "litellm_proxy", "")
_BY_MODEL = (("gpt-", "openai"), ("o1", "openai"), ("o3", "openai"), ("o4", "openai"),
             ("chatgpt-", "openai"), ("claude-", "anthropic"))  # fmt: skip
_ENVIRON = "os.environ/"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


class NotCarried(Exception):
    """The entry has no counterpart; the text says what to do instead."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """A provider as the configuration will have it, but for its name."""

    known: str | None
    base_url: str | None
    """``None``: that of the known provider."""
    dialect: str | None = None
    api_version: str | None = None
    variable: str | None = None
    """Environment variable that holds the key."""
    literal: str | None = field(default=None, repr=False)
    """The key itself, where the file holds it: it tells accounts apart, and is never written."""
    total: float | None = None
    first_token: float | None = None

    @property
    def stem(self) -> str:
        if self.dialect is not None:
            return "azure"
        return self.known or "compatible"


def upstream(params: Mapping[str, Any]) -> tuple[Upstream, str]:
    """Return the provider of an entry, and the id of the model there."""
    prefix, model = _split(str(params.get("model", "")), params.get("custom_llm_provider"))
    base = _plain(params, "api_base") or _plain(params, "base_url")
    if base is not None and not base.startswith(("http://", "https://")):
        raise NotCarried("`api_base` begins neither with `http://` nor with `https://`")
    found = _azure(params, base) if prefix == "azure" else _other(prefix, base)
    key = params.get("api_key")
    literal = None if key is None or variable_of(key) is not None else str(key)
    return replace(found, variable=_key_variable(prefix, key, found), literal=literal), model


def variable_of(value: object) -> str | None:
    """Return the variable that ``os.environ/NAME`` names."""
    if not isinstance(value, str) or not value.startswith(_ENVIRON):
        return None
    name = value.removeprefix(_ENVIRON)
    return name if _VARIABLE.fullmatch(name) else None


def _split(model: str, provider: object) -> tuple[str, str]:
    if not model:
        raise NotCarried("has no `model`; name one")
    if isinstance(provider, str):
        return provider, model.removeprefix(f"{provider}/")
    prefix, slash, rest = model.partition("/")
    if slash and prefix:
        return prefix, rest
    for beginning, name in _BY_MODEL:
        if model.startswith(beginning):
            return name, model
    return "", model


def _plain(params: Mapping[str, Any], name: str) -> str | None:
    value = params.get(name)
    if variable_of(value) is not None:
        raise NotCarried(f"`{name}` is in a variable; an address stands in the file: write it out")
    return str(value).rstrip("/") if value else None  # a version may be read as a date


def _azure(params: Mapping[str, Any], base: str | None) -> Upstream:
    if base is None:
        raise NotCarried("has no `api_base`, which Azure OpenAI needs; write it out")
    if base.endswith("/openai/v1"):
        return Upstream(None, base, "azure")
    version = _plain(params, "api_version")
    address = base if base.endswith("/openai") else f"{base}/openai"
    return Upstream(None, address, "azure-deployments", version)


def _other(prefix: str, base: str | None) -> Upstream:
    known = KNOWN_PROVIDERS.get(_OTHER_NAMES.get(prefix, prefix))
    if base is not None and prefix in _COMPATIBLE:
        own = known is not None and base == known.base_url
        return Upstream(known.name, None) if known and own else Upstream(None, base)
    if known is None:
        raise NotCarried(
            f'"{prefix}" is no provider that is known here; one that speaks chat completions can '
            "stand in `providers` with its address"
            if prefix
            else "names no provider; write `PROVIDER/MODEL`, or `api_base`"
        )
    if base is not None and known.name in ("anthropic", "ollama") and not base.endswith("/v1"):
        base = f"{base}/v1"  # which LiteLLM adds itself, or does not use
    return Upstream(known.name, None if base == known.base_url else base)


def _key_variable(prefix: str, key: object, found: Upstream) -> str | None:
    named = variable_of(key)
    if named is not None:
        return named
    local = found.known is not None and KNOWN_PROVIDERS[found.known].local
    own_address = found.base_url is not None and found.dialect is None
    if key is None and (local or own_address):
        return None
    stem = prefix or "provider"
    default = re.sub(r"[^A-Z0-9]", "_", stem.upper()) + "_API_KEY"
    return _VARIABLES.get(prefix, default)
