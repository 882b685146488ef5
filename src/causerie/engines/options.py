"""Options of the engines that run models here, as the configuration has them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from causerie.settings import values

KvType = Literal["f16", "bf16", "f32", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"]

Replicas = Annotated[
    int,
    Meta(ge=1, le=64),
    Meta(
        description="How many processes run the model, as one pool. Options are those of each, "
        "which has its share of the cores and of the memory."
    ),
]

Variables = Annotated[
    tuple[values.VariableName, ...],
    Meta(
        description="Names of further variables of the service's environment that the engine's "
        'process gets, like `"HF_TOKEN"`. Without them it gets those of its libraries and devices '
        "only."
    ),
]


class LlamaCpp(Struct, frozen=True, kw_only=True):
    """Options of the embedded llama.cpp engine. Unset values are chosen from the machine."""

    command: values.Program | None = None
    """The program `llama-server` of a native build of llama.cpp: a path, or a name that the shell
    would find. Unset: the package `xllamacpp` runs the model."""
    args: tuple[values.Text, ...] = ()
    """Further arguments of `command`, as documented there."""
    environment: Variables = ()
    replicas: Replicas = 1
    devices: tuple[values.Text, ...] = ()
    """Devices of each replica, as `CUDA_VISIBLE_DEVICES` of it (and `HIP_VISIBLE_DEVICES`,
    `GGML_VK_VISIBLE_DEVICES`), like `"0"`. Unset: each sees all."""
    context: values.Count | Literal["auto"] | None = None
    """Tokens that prompt and output of one request may have. `"auto"`: as many as the free memory
    holds."""
    parallel: Annotated[int, Meta(ge=1, le=256)] | None = None
    """Requests at the same time."""
    cache_tokens: values.Count | None = None
    """Tokens that all requests together may have, at least `context`. Unset: `context` of each, or
    fewer if the memory holds no more."""
    threads: values.Count | None = None
    """CPU threads."""
    gpu_layers: values.Natural | None = None
    """Layers on the GPU; 0 keeps all on the CPU."""
    kv_type: KvType | None = None
    """Number type of the key-value cache."""
    flash_attention: bool | None = None
    """Whether flash attention is used."""
    batch: values.Count | None = None
    """Most prompt tokens in one step."""
    lora: tuple[values.FilePath, ...] = ()
    """LoRA adapters (GGUF files)."""
    draft: values.FilePath | None = None
    """Small model for speculative decoding (a GGUF file)."""
    mmproj: values.FilePath | None = None
    """Projector by which the model takes images (a GGUF file). Unset: the one beside the weights
    that fits them."""
    images: bool = True
    """Whether a projector is loaded, where there is one."""
    pooling: Literal["mean", "cls", "last"] | None = None
    """How an embedding model makes one vector of those of the tokens. Unset: as its file says."""
    prompt_cache: values.Size | None = None
    """Memory for prompts that left their slots, like `"2GiB"`. Unset: an eighth of the memory, at
    most 8 GiB. `"0B"` keeps none."""
    speculation: Literal["off", "ngram"] = "off"
    """`"ngram"`: the engine proposes tokens that followed the last ones earlier in the text, and
    checks several at once."""

    @property
    def speculates(self) -> bool:
        """Return true if tokens are proposed to the engine; those have no probabilities."""
        return self.draft is not None or self.speculation != "off"

    @property
    def prompt_cache_bytes(self) -> int | None:
        return values.byte_count(self.prompt_cache) if self.prompt_cache is not None else None


class OpenVino(Struct, frozen=True, kw_only=True):
    """Options of OpenVINO GenAI. Unset values are chosen for the machine."""

    replicas: Replicas = 1
    context: values.Count | None = None
    """Tokens that prompt and output of one request may have."""
    parallel: Annotated[int, Meta(ge=1, le=256)] | None = None
    """Requests at the same time. Unset: 16."""
    threads: values.Count | None = None
    """CPU threads."""
    environment: Variables = ()


class VllmOptions(Struct, frozen=True, kw_only=True):
    """Options of a vLLM that is started here. Unset values are vLLM's own choice."""

    command: values.Program = "vllm"
    """The program: a path, or a name that the shell would find."""
    replicas: values.Count = 1
    """How many are started: one model as a pool, each on devices of its own. Options are those of
    each."""
    devices: tuple[values.Text, ...] = ()
    """Devices of each replica, as `CUDA_VISIBLE_DEVICES` of it, like `"0,1"`. Unset: with several
    replicas as many as each needs, in order from 0 on."""
    context: values.Count | None = None
    """Tokens that prompt and output of one request may have."""
    parallel: Annotated[int, Meta(ge=1, le=65_536)] | None = None
    """Requests at the same time. Unset: 256."""
    tensor_parallel: values.Count | None = None
    """Devices that share each layer."""
    pipeline_parallel: values.Count | None = None
    """Stages of layers, each on devices of its own."""
    data_parallel: values.Count | None = None
    """Copies of the model that share the requests."""
    gpu_memory: Annotated[float, Meta(gt=0, le=1)] | None = None
    """Fraction of each device's memory that it may take."""
    dtype: values.Text | None = None
    """Number type of weights and computation."""
    quantization: values.Text | None = None
    """How the weights are quantised."""
    args: tuple[values.Text, ...] = ()
    """Further arguments of `vllm serve`, as documented there."""
    environment: Variables = ()

    @property
    def devices_of_replicas(self) -> tuple[str | None, ...]:
        """Return the devices of each replica; ``None`` means all devices of the machine."""
        if self.devices or self.replicas == 1:
            return self.devices or (None,)
        each = (self.tensor_parallel or 1) * (self.pipeline_parallel or 1)
        each *= self.data_parallel or 1
        firsts = range(0, self.replicas * each, each)
        return tuple(",".join(map(str, range(first, first + each))) for first in firsts)
