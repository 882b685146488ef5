"""Options of vLLM as its command line, or the address of an external server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from causerie.transport.client import Reach

SERVED_NAME = "model"  # as one of ours calls its model; nobody else hears that name
_SLOTS = 256  # vLLM's own default for servers
MOST_ALTERNATIVES = 20


@dataclass(frozen=True, slots=True)
class VllmOptions:
    """Configured options; ``None`` is left to vLLM."""

    command: str = "vllm"
    """The program, as a path or a name on the search path."""
    context: int | None = None
    """In tokens, for one request."""
    parallel: int | None = None
    """Number of concurrent requests."""
    tensor_parallel: int | None = None
    """Number of devices; so are ``pipeline_parallel`` and ``data_parallel``."""
    pipeline_parallel: int | None = None
    data_parallel: int | None = None
    gpu_memory: float | None = None
    """Fraction of each device's memory."""
    dtype: str | None = None
    quantization: str | None = None
    args: tuple[str, ...] = ()
    """Further arguments, as vLLM documents them."""
    environment: tuple[str, ...] = ()
    """Names of further variables of the environment that its process gets."""
    devices: str | None = None
    """The devices that it sees, as numbers or names with commas; ``None`` for all."""

    @property
    def slots(self) -> int:
        """Return the number of concurrent requests."""
        return self.parallel or _SLOTS


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A vLLM that others run."""

    address: str
    """Its base address, without ``/v1``."""
    key: str | None = field(default=None, repr=False)
    """The key that it requires."""
    name: str | None = None
    """Its name of the model; ``None`` if it has only one."""
    context: int | None = None
    """Bound on a request in tokens, if less than the server's own."""
    parallel: int | None = None
    """Requests at the same time."""
    reach: Reach = field(default_factory=Reach, repr=False)

    @property
    def slots(self) -> int:
        """Return the number of concurrent requests."""
        return self.parallel or _SLOTS


def arguments(model: Path, options: VllmOptions, place: int | str) -> Sequence[str]:
    """Return the command that serves the model folder at a loopback port, or at a socket.

    Defaults of the model's own for sampling are switched off: a request says
    how tokens are drawn, or the configuration does.
    """
    where = ["--uds", place] if isinstance(place, str) else ["--host", "127.0.0.1", "--port", place]
    chosen = {
        "--max-model-len": options.context,
        "--max-num-seqs": options.slots,
        "--tensor-parallel-size": options.tensor_parallel,
        "--pipeline-parallel-size": options.pipeline_parallel,
        "--data-parallel-size": options.data_parallel,
        "--gpu-memory-utilization": options.gpu_memory,
        "--dtype": options.dtype,
        "--quantization": options.quantization,
    }
    given = [part for name, value in chosen.items() if value is not None for part in (name, value)]
    every = [
        *(options.command, "serve", model),
        *where,
        *("--served-model-name", SERVED_NAME),
        *("--structured-outputs-config", '{"backend": "guidance"}'),
        *("--generation-config", "vllm"),
        *("--max-logprobs", MOST_ALTERNATIVES),
        "--enable-prompt-tokens-details",
        "--disable-uvicorn-access-log",
        *given,
        *options.args,
    ]
    return [str(part) for part in every]
