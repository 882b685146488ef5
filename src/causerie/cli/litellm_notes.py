"""Words for a person who moves over: the counterparts of LiteLLM's settings of whole sections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_CARRIED = {
    "router_settings": {
        "fallbacks", "default_fallbacks", "model_group_alias", "timeout", "stream_timeout",
    },
    "litellm_settings": {"fallbacks", "default_fallbacks", "drop_params", "request_timeout"},
    "general_settings": {"master_key"},
}  # fmt: skip
_FALLS = "another target is asked at once; a breaker leaves out one that keeps failing"
_REDIS = "replicas count together by `[shared]`, whose `url` names a Valkey or Redis server"
_WORDS = {
    "num_retries": _FALLS,
    "max_retries": _FALLS,
    "retry_after": _FALLS,
    "retry_policy": _FALLS,
    "allowed_fails": _FALLS,
    "allowed_fails_policy": _FALLS,
    "cooldown_time": _FALLS,
    "disable_cooldowns": _FALLS,
    "routing_strategy": "targets of one priority are drawn by weight and load",
    "routing_strategy_args": "targets of one priority are drawn by weight and load",
    "enable_pre_call_checks": "a request goes only to targets that support its parameters",
    "context_window_fallbacks": "a fallback by the kind of error does not exist; use priorities",
    "content_policy_fallbacks": "a fallback by the kind of error does not exist; use priorities",
    "redis_url": _REDIS,
    "redis_host": _REDIS,
    "redis_port": _REDIS,
    "redis_password": _REDIS,
    "database_url": 'people and keys are made anew: `keys = "accounts"`, `[store]` has the `url`',
    "success_callback": "requests are counted at /metrics, and traced by `[tracing]`",
    "failure_callback": "requests are counted at /metrics, and traced by `[tracing]`",
    "callbacks": "requests are counted at /metrics, and traced by `[tracing]`",
    "cache": "replies are not cached",
    "cache_params": "replies are not cached",
    "set_verbose": "`logging.level` says how much is logged",
    "json_logs": "`logging.format` says how",
}
_NONE = "has no counterpart; docs/reference/configuration.md lists what there is"


def note_settings(document: Mapping[str, Any], note: Callable[[str, str], None]) -> None:
    """Note each setting outside of ``model_list`` that is not carried over."""
    for section, settings in document.items():
        if section == "model_list":
            continue
        if section == "environment_variables":
            note(section, "set them where the service is started")
        elif section not in _CARRIED or not isinstance(settings, dict):
            note(section, _NONE)
        else:
            for name in settings:
                if name not in _CARRIED[section]:
                    note(f"{section}.{name}", _WORDS.get(name, _NONE))
