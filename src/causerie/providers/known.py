"""Providers that many people use: where they are, how they are spoken to, how their keys look.

Each fact is from the provider's own documentation, which ``docs`` names; the reference page
``docs/reference/providers.md`` shows them as a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class KnownProvider:
    """Values that the setting ``known`` fills in."""

    name: str
    title: str
    """Its name for people."""
    base_url: str
    docs: str
    """Address of its documentation."""
    dialect: str = "generic"
    key: str = ""
    """Beginning of its API keys; empty: they have no common one."""
    local: bool = False
    """It runs on one's own machine, and needs no key."""


_ALL = (
    KnownProvider(
        "openai", "OpenAI", "https://api.openai.com/v1",
        "https://platform.openai.com/docs/api-reference/chat", "openai", "sk-",
    ),
    KnownProvider(
        "anthropic", "Anthropic", "https://api.anthropic.com/v1",
        "https://platform.claude.com/docs/en/api/messages", "anthropic", "sk-ant-",
    ),
    KnownProvider(
        "openrouter", "OpenRouter", "https://openrouter.ai/api/v1",
        "https://openrouter.ai/docs/api-reference/overview", "openrouter", "sk-or-",
    ),
    KnownProvider(
        "gemini", "Google Gemini", "https://generativelanguage.googleapis.com/v1beta/openai",
        "https://ai.google.dev/gemini-api/docs/openai", key="AIza",
    ),
    KnownProvider(
        "mistral", "Mistral", "https://api.mistral.ai/v1",
        "https://docs.mistral.ai/api/", "mistral",
    ),
    KnownProvider(
        "deepseek", "DeepSeek", "https://api.deepseek.com/v1",
        "https://api-docs.deepseek.com/", "deepseek", "sk-",
    ),
    KnownProvider(
        "xai", "xAI", "https://api.x.ai/v1", "https://docs.x.ai/docs/api-reference", key="xai-",
    ),
    KnownProvider(
        "groq", "Groq", "https://api.groq.com/openai/v1",
        "https://console.groq.com/docs/api-reference", key="gsk_",
    ),
    KnownProvider(
        "together", "Together AI", "https://api.together.xyz/v1",
        "https://docs.together.ai/docs/openai-api-compatibility",
    ),
    KnownProvider(
        "fireworks", "Fireworks AI", "https://api.fireworks.ai/inference/v1",
        "https://docs.fireworks.ai/tools-sdks/openai-compatibility", key="fw_",
    ),
    KnownProvider(
        "cerebras", "Cerebras", "https://api.cerebras.ai/v1",
        "https://inference-docs.cerebras.ai/resources/openai", key="csk-",
    ),
    KnownProvider(
        "nvidia", "NVIDIA NIM", "https://integrate.api.nvidia.com/v1",
        "https://docs.api.nvidia.com/nim/reference/llm-apis", key="nvapi-",
    ),
    KnownProvider(
        "perplexity", "Perplexity", "https://api.perplexity.ai",
        "https://docs.perplexity.ai/api-reference/chat-completions-post", key="pplx-",
    ),
    KnownProvider(
        "sambanova", "SambaNova", "https://api.sambanova.ai/v1",
        "https://docs.sambanova.ai/cloud/api-reference/overview",
    ),
    KnownProvider(
        "hyperbolic", "Hyperbolic", "https://api.hyperbolic.xyz/v1",
        "https://docs.hyperbolic.xyz/docs/rest-api",
    ),
    KnownProvider(
        "deepinfra", "DeepInfra", "https://api.deepinfra.com/v1/openai",
        "https://deepinfra.com/docs/openai_api",
    ),
    KnownProvider(
        "huggingface", "Hugging Face", "https://router.huggingface.co/v1",
        "https://huggingface.co/docs/inference-providers/index", key="hf_",
    ),
    KnownProvider(
        "cohere", "Cohere", "https://api.cohere.ai/compatibility/v1",
        "https://docs.cohere.com/docs/compatibility-api",
    ),
    KnownProvider(
        "moonshot", "Moonshot AI", "https://api.moonshot.ai/v1",
        "https://platform.moonshot.ai/docs/api/chat", key="sk-",
    ),
    KnownProvider(
        "zai", "Z.ai", "https://api.z.ai/api/paas/v4", "https://docs.z.ai/api-reference/introduction",
    ),
    KnownProvider(
        "minimax", "MiniMax", "https://api.minimax.io/v1",
        "https://platform.minimax.io/docs/api-reference/text-openai-api",
    ),
    KnownProvider(
        "dashscope", "Alibaba Cloud Model Studio",
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        "https://www.alibabacloud.com/help/en/model-studio/compatibility-of-openai-with-dashscope",
        key="sk-",
    ),
    KnownProvider(
        "ollama", "Ollama", "http://127.0.0.1:11434/v1",
        "https://docs.ollama.com/api/openai-compatibility", "ollama", local=True,
    ),
    KnownProvider(
        "lmstudio", "LM Studio", "http://127.0.0.1:1234/v1",
        "https://lmstudio.ai/docs/developer/openai-compat", "lmstudio", local=True,
    ),
    KnownProvider(
        "vllm", "vLLM", "http://127.0.0.1:8000/v1",
        "https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html", "vllm", local=True,
    ),
    KnownProvider(
        "sglang", "SGLang", "http://127.0.0.1:30000/v1",
        "https://docs.sglang.ai/basic_usage/openai_api_completions.html", "sglang", local=True,
    ),
    KnownProvider(
        "llama-server", "llama.cpp's server", "http://127.0.0.1:8080/v1",
        "https://github.com/ggml-org/llama.cpp/tree/master/tools/server", "llama-server",
        local=True,
    ),
)  # fmt: skip

KNOWN_PROVIDERS: Mapping[str, KnownProvider] = MappingProxyType({one.name: one for one in _ALL})
