"""Names that other servers give to the formats of calls, and the formats here that read them."""

from __future__ import annotations

from collections.abc import Mapping

Names = Mapping[str, tuple[str, ...]]
"""Formats here by the name of a parser elsewhere; none where this form of calls is not read."""

VLLM: Names = {
    "apertus": ("apertus",),
    "beam": ("beam",),
    "cohere_command3": ("command-r7b",),
    "cohere_command4": ("command-a",),
    "deepseek_v3": ("deepseek-v3", "deepseek-r1", "deepseek-r1-switched"),
    "deepseek_v31": ("deepseek-v3.1",),
    "deepseek_v32": ("deepseek-v3.2",),
    "deepseek_v4": ("deepseek-v4",),
    "deepseek_v41": ("deepseek-v4.1",),
    "dots": ("dots",),
    "ernie45": ("ernie-4.5",),
    "functiongemma": ("function-gemma",),
    "gemma4": ("gemma-4",),
    "gigachat3": ("gigachat-3", "gigachat-3.1"),
    "glm45": ("glm-4.5",),
    "glm47": ("glm-4.7",),
    "granite": ("granite-3", "granite-3.3"),
    "granite-20b-fc": ("granite-20b",),
    "granite4": ("granite-4",),
    "hermes": ("hermes", "qwen-3", "qwen-3-instruct", "qwen-3-thinking", "qwq", "reka", "bielik"),
    "hunyuan_a13b": ("hunyuan-a13b",),
    "hy_v3": ("hunyuan-3",),
    "hy_v4": ("hunyuan-4",),
    "inkling": ("inkling",),
    "internlm": ("internlm-2",),
    "jamba": ("jamba",),
    "k2_horizon": ("k2-horizon",),
    "kimi_k2": ("kimi-k2", "kimi-k2-thinking", "kimi-k2.5"),
    "kimi_k3": ("kimi-k3",),
    "lfm2": ("lfm-2", "lfm-2.5"),
    "ling3": ("ling-3",),
    "llama3_json": ("llama-3",),
    "llama4_json": ("llama-4",),
    "llama4_pythonic": ("llama-4-pythonic",),
    "longcat": ("longcat-flash", "longcat-2"),
    "mimo": ("qwen-3.5",),
    "minicpm5": ("minicpm-5",),
    "minimax_m2": ("minimax-m2",),
    "minimax_m3": ("minimax-m3",),
    "mistral": ("mistral", "mistral-small-3.2", "mistral-nemo", "magistral"),
    "muse": ("muse",),
    "muse_glimmer": ("muse",),
    "musespark1x": ("muse",),
    "olmo3": ("olmo-3", "olmo-3-think"),
    "openai": ("gpt-oss",),
    "phi4_mini_json": ("phi-4-mini",),
    "plamo3": ("plamo-3",),
    "poolside_v1": ("laguna", "laguna-s"),
    "pythonic": ("toolace",),
    "qwen3_coder": ("qwen-3-coder", "qwen-3.5", "nemotron-3"),
    "qwen3_json": ("qwen-3", "qwen-3-instruct", "qwen-3-thinking"),
    "qwen3_xml": ("qwen-3-coder", "qwen-3.5"),
    "seed_oss": ("seed-oss",),
    "solar_open2": ("solar-open-2",),
    "step3": ("step-3",),
    "step3p5": ("step-3.5",),
    "step5": ("qwen-3-coder", "qwen-3.5"),
    "xlam": ("xlam-2",),
}

SGLANG: Names = {
    "apertus2509": ("apertus",),
    "beam": ("beam",),
    "cohere_command4": ("command-a",),
    "deepseekv3": ("deepseek-v3", "deepseek-r1"),
    "deepseekv31": ("deepseek-v3.1",),
    "deepseekv32": ("deepseek-v3.2",),
    "deepseekv4": ("deepseek-v4",),
    "deepseekv41": ("deepseek-v4.1",),
    "dots": ("dots",),
    "gemma4": ("gemma-4",),
    "gigachat3": ("gigachat-3", "gigachat-3.1"),
    "gigachat35": ("gigachat-3.5",),
    "glm45": ("glm-4.5",),
    "glm47": ("glm-4.7",),
    "gpt-oss": ("gpt-oss",),
    "hermes": ("hermes",),
    "hunyuan": ("hunyuan-a13b", "hunyuan-3"),
    "inkling": ("inkling",),
    "interns1": ("internlm-2",),
    "iquest_q1": ("iquest-q1",),
    "k2_horizon": ("k2-horizon",),
    "kimi_k2": ("kimi-k2", "kimi-k2-thinking", "kimi-k2.5"),
    "kimi_k3": ("kimi-k3",),
    "lfm2": ("lfm-2", "lfm-2.5"),
    "ling3": ("ling-3",),
    "llama3": ("llama-3",),
    "mimo": ("mimo", "qwen-3.5"),
    "minicpm5": ("minicpm-5",),
    "minimax-m2": ("minimax-m2",),
    "minimax-m3": ("minimax-m3",),
    "mistral": ("mistral", "mistral-small-3.2", "mistral-nemo", "magistral"),
    "muse": ("muse",),
    "nanbeige": ("qwen-3-coder", "qwen-3.5"),
    "poolside_v1": ("laguna", "laguna-s"),
    "pythonic": ("toolace", "llama-4-pythonic"),
    "qwen": ("hermes", "qwen-3"),
    "qwen3_coder": ("qwen-3-coder", "qwen-3.5", "nemotron-3"),
    "spark25": ("spark-2.5",),
    "step3": ("step-3",),
    "step3p5": ("step-3.5",),
    "trinity": ("hermes", "qwq"),
}

LLAMA_CPP: Names = {
    "cohere2moe": ("command-a",),
    "deepseek": ("deepseek-v3.2", "deepseek-v4"),
    "functionary-v3-2": ("functionary-3.2",),
    "gemma4": ("gemma-4",),
    "gigachat-v3": ("gigachat-3", "gigachat-3.1"),
    "gpt-oss": ("gpt-oss",),
    "harmony-xml": ("beam",),
    "inkling": ("inkling",),
    "k2-horizon": ("k2-horizon",),
    "kimi-k2": ("kimi-k2", "kimi-k2-thinking", "kimi-k2.5"),
    "kimi-k3": ("kimi-k3",),
    "lfm2": ("lfm-2", "lfm-2.5"),
    "ling3": ("ling-3",),
    "llm-jp-harmony": ("llm-jp",),
    "minicpm5": ("minicpm-5",),
    "minimax-m3": ("minimax-m3",),
    "ministral3": ("magistral",),
    "muse-glimmer": ("muse",),
    "qwen3-coder": ("qwen-3-coder", "qwen-3.5", "nemotron-3"),
}

SERVERS: Mapping[str, Names] = {"vLLM": VLLM, "SGLang": SGLANG, "llama.cpp": LLAMA_CPP}

HEAD = """
## Names elsewhere

What other servers call a form of calls: vLLM and SGLang as the value of `--tool-call-parser`,
llama.cpp as the name of a parser of its own (it derives all others from the template). `–` is a
form that is not read here: tools are then described in a system message, and calls are written as
`generic` has them.

| server | name | formats here |
|---|---|---|
"""


def names_table() -> str:
    """Return the section about names elsewhere."""
    rows = (
        f"| {server} | {name} | {', '.join(formats) or '–'} |\n"
        for server, names in SERVERS.items()
        for name, formats in names.items()
    )
    return HEAD + "".join(rows)
