"""Rules for llama.cpp's options, and for the arguments of a native build."""

from __future__ import annotations

from collections.abc import Iterator

from causerie.settings.engine import LlamaCpp
from causerie.settings.lines import Path as KeyPath
from causerie.settings.problems import Broken
from causerie.settings.vllm_rules import device_rules

# Arguments for its address, its callers and its model, those that options say, and others that
# change what it is asked or what this service relies on.
_OURS = frozenset(
    ("--host", "--port", "--reuse-port", "--api-key", "--api-key-file", "--api-prefix", "--path",
     "--ssl-key-file", "--ssl-cert-file", "-to", "--timeout", "--threads-http",
     "-m", "--model", "-mu", "--model-url", "-dr", "--docker-repo", "-hf", "-hfr", "--hf-repo",
     "-hff", "--hf-file", "--models-dir", "--models-preset", "-md", "--model-draft",
     "--spec-draft-model", "--spec-type", "--lora", "--lora-init-without-apply",
     "-np", "--parallel", "-c", "--ctx-size", "-b", "--batch-size", "-ub", "--ubatch-size",
     "-t", "--threads", "-tb", "--threads-batch", "-ngl", "--gpu-layers", "--n-gpu-layers",
     "-ctk", "--cache-type-k", "-ctv", "--cache-type-v", "-fa", "--flash-attn",
     "-kvu", "--kv-unified", "-no-kvu", "--no-kv-unified", "--kv-unified-per-slot",
     "-cram", "--cache-ram", "--no-cache-prompt", "--cache-reuse", "--slot-save-path",
     "--slots", "--no-slots", "--context-shift", "--no-context-shift", "--sleep-idle-seconds",
     "--embedding", "--embeddings", "--rerank", "--reranking", "-h", "--help", "--version",
     "--ui", "--webui", "--tools", "-ag", "--agent", "--ui-mcp-proxy", "--webui-mcp-proxy",
     "--mcp-servers-config", "--mcp-servers-json")
)  # fmt: skip


def llamacpp_rules(at: KeyPath, llamacpp: LlamaCpp) -> Iterator[Broken]:
    """Yield what is wrong with the options of one model."""
    context, cache_tokens = llamacpp.context, llamacpp.cache_tokens
    if llamacpp.draft and llamacpp.speculation != "off":
        yield Broken((*at, "speculation"), "excludes `draft`; set one of them")
    if isinstance(context, int) and cache_tokens is not None and cache_tokens < context:
        yield Broken((*at, "cache_tokens"), f"must be at least `context`, which is {context}")
    if cache_tokens is not None and llamacpp.replicas > 1:
        words = "is for one process, whose tokens are counted; with `replicas` set `parallel`"
        yield Broken((*at, "cache_tokens"), words)
    yield from device_rules(at, llamacpp.devices, llamacpp.replicas)
    yield from _argument_rules((*at, "args"), llamacpp)


def _argument_rules(at: KeyPath, llamacpp: LlamaCpp) -> Iterator[Broken]:
    if llamacpp.args and llamacpp.command is None:
        yield Broken(at, "is for a native build of llama.cpp; name its program by `command`")
    for arg in llamacpp.args:
        name = arg.replace("_", "-") if arg.startswith("--") else arg
        if name in _OURS:
            yield Broken(at, f'has "{arg}", which this service sets itself')
