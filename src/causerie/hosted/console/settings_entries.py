"""Models of this service and doors: entries whose form is fields of plain settings."""

from __future__ import annotations

from collections.abc import Iterator

from causerie.hosted.console.entries import EntryFormPages, EntryKindWords, SettingField

_PRICE = "$ per 1M tokens."
_AT_ONCE = "Requests at the same time"
_REPLICAS = "Processes that share the requests."
LIMITS = tuple(
    SettingField(f"limits.{name}", title, "number", group="Limits")
    for name, title in (
        ("requests_per_minute", "Requests / min"),
        ("tokens_per_minute", "Tokens / min"),
        ("concurrent", "At the same time"),
    )
)
"""Fields that limit all use together."""


def _numbers(table: str, group: str, *rows: tuple[str, str, str]) -> Iterator[SettingField]:
    for name, title, hint in rows:
        yield SettingField(f"{table}.{name}", title, "number", hint, group=group)


MODELS = EntryFormPages(
    EntryKindWords(
        kinds=frozenset({"model"}),
        noun="model",
        list_path="/operator/models",
        deletion="It is unloaded when its last request has ended. Weights and usage are kept.",
        list_template="operator/own_models.html",
        searched=("name", "ref", "engine"),
    ),
    fields=(
        SettingField("id", "ID", hint="The `model` of requests.", missing="is missing"),
        SettingField(
            "ref",
            "Weights",
            hint="`hf:ORG/REPO`, with `:QUANT` or `:FILE` behind it if there are several.",
            placeholder="hf:Qwen/Qwen3-4B-GGUF:Q4_K_M",
        ),
        SettingField(
            "engine",
            "Engine",
            "choice",
            choices=(("", "llama.cpp"), ("openvino", "OpenVINO"), ("vllm", "vLLM")),
        ),
        SettingField("name", "Name", hint="Shown in lists. Empty: the ID.", group="Name and price"),
        SettingField("description", "Description", group="Name and price"),
        SettingField(
            "price.prompt", "Input price", hint=_PRICE, placeholder="0", group="Name and price"
        ),
        SettingField(
            "price.completion", "Output price", hint=_PRICE, placeholder="0", group="Name and price"
        ),
        *LIMITS,
        SettingField("max_output_tokens", "Output tokens of a request", "number", group="Limits"),
        SettingField(
            "idle_unload_seconds",
            "Unload after",
            "number",
            hint="Seconds without a request. Empty: never.",
            group="Limits",
        ),
        *_numbers(
            "llamacpp",
            "llama.cpp",
            ("context", "Context", "Tokens of one request, or `auto`."),
            ("parallel", _AT_ONCE, ""),
            ("threads", "Threads", ""),
            ("gpu_layers", "Layers on the GPU", ""),
            ("replicas", "Replicas", _REPLICAS),
        ),
        *_numbers("openvino", "OpenVINO", ("context", "Context", ""), ("parallel", _AT_ONCE, "")),
        SettingField(
            "vllm.addresses",
            "Addresses",
            "list",
            "Of servers that run already. Empty: one is started here.",
            group="vLLM",
        ),
        *_numbers(
            "vllm",
            "vLLM",
            ("context", "Context", ""),
            ("parallel", _AT_ONCE, ""),
            ("tensor_parallel", "Devices that share each layer", ""),
            ("replicas", "Replicas", _REPLICAS),
        ),
    ),
)
DOORS = EntryFormPages(
    EntryKindWords(
        kinds=frozenset({"door"}),
        noun="door",
        list_path="/operator/doors",
        deletion="Its addresses answer 404 at once. Models, keys and usage are kept.",
        list_template="operator/doors.html",
        searched=("kind", "hosts", "models"),
    ),
    fields=(
        SettingField(
            "name", "Name", hint="Lower case. Part of its base URL.", missing="is missing"
        ),
        SettingField(
            "kind",
            "Kind",
            "choice",
            choices=(
                ("gateway", "gateway: aliases"),
                ("router", "router: the catalog"),
                ("hosted", "hosted: models of this service and aliases, for keys of accounts"),
                ("endpoint", "endpoint: models of this service"),
            ),
        ),
        SettingField(
            "keys",
            "Access",
            "choice",
            choices=(("", "as for the whole service"), ("accounts", "API keys of this console")),
        ),
        SettingField(
            "models",
            "Models",
            "list",
            "IDs; one with `*` at the end stands for all that start with it. Empty: all.",
        ),
        SettingField("prefix", "Path", placeholder="/gateway/v1", group="Addresses"),
        SettingField("hosts", "Host names", "list", group="Addresses"),
        SettingField("origins", "Origins of web pages", "list", group="Addresses"),
        *LIMITS,
        SettingField(
            "unknown_params",
            "Unknown fields of requests",
            "choice",
            choices=(("", "left out, and named in x-request-changes"), ("reject", "rejected")),
            group="Requests",
        ),
        SettingField(
            "long_output",
            "Output limits that do not fit beside the prompt",
            "choice",
            choices=(("", "lowered, and named in x-request-changes"), ("reject", "rejected")),
            group="Requests",
        ),
        SettingField(
            "reasoning", "Requests may have the `reasoning` object", "flag", group="Requests"
        ),
        SettingField(
            "cache_scope",
            "Prompt cache",
            "choice",
            choices=(
                ("", "as the kind of keys suggests"),
                ("project", "each project reuses its own prompts"),
                ("service", "everybody reuses prompts of everybody"),
            ),
            group="Requests",
        ),
    ),
)
