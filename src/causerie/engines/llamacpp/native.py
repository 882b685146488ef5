"""A native build of llama.cpp: its program ``llama-server``, which the configuration names.

It takes the place of the package that this service brings, behind the same HTTP. What that
package's process does in Python beyond HTTP is done here, or is absent: see
`docs/reference/engines.md`.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from causerie.engines.base import LoadFailed, Started, TextRequest, Token
from causerie.engines.llamacpp.client import LlamaCppClient
from causerie.engines.llamacpp.options import Launch
from causerie.engines.llamacpp.process import environment
from causerie.engines.llamacpp.withheld import PartialTokens

_ANSWER_SECONDS = 60.0  # a GPU's libraries take seconds to load
_VERSION = re.compile(r"version: (\S+) \((?:build (\d+), commit )?\w+\)")
_DEVICE = re.compile(r"^ +([^\s:]+): .+ MiB", re.MULTILINE)
_NO_GPU = ("BLAS", "ZenDNN")  # devices that compute on the CPU
_UNKNOWN = re.compile(r"error: invalid argument: (\S+)")
_ERROR = re.compile(r"\berror\b.+", re.IGNORECASE)
# Sizes of batches that the program has by itself.
_GPU_BATCH, _PHYSICAL_BATCH = 2048, 512
_TRIED = "causerie was tried with llama.cpp 0.5.0 of October 2026; take a build as new"


@dataclass(frozen=True, slots=True)
class NativeBuild:
    """Facts that a program reports about itself."""

    program: str
    """Path."""
    version: str
    gpu: bool
    """Whether it has a GPU to compute on."""

    @property
    def folder(self) -> str:
        """Return its own folder.

        A build whose backends are libraries looks for them there and in the working directory. So
        nothing in the service's working directory is taken for one.
        """
        return str(_folder(Path(self.program)))

    def computes_on_gpu(self, launch: Launch) -> bool:
        """Return whether the model is on a GPU."""
        return self.gpu and launch.gpu_layers != 0

    def batches(self, launch: Launch) -> tuple[int, int]:
        """Return the most tokens of a step, and of one computation in it."""
        own = _GPU_BATCH if self.computes_on_gpu(launch) else launch.cpu_batch
        batch = launch.batch or own
        return batch, min(batch, _PHYSICAL_BATCH)


def missing(command: str) -> str | None:
    """Return why there is no such program, and what would be right; ``None`` if there is one."""
    if shutil.which(command) is not None:
        return None
    advice = "name the program `llama-server` of a build of llama.cpp"
    if "/" not in command:
        return f'"{command}" is not on the search path (PATH); {advice}, or its path'
    path = Path(command)
    if path.is_dir():
        return f'"{command}" is a folder; {advice}'
    if path.exists():
        return f'"{command}" is not executable; {advice}, or allow it: chmod +x {command}'
    return f'"{command}" does not exist; {advice}'


async def examine(command: str, devices: str | None, passed: Collection[str] = ()) -> NativeBuild:
    """Return what the program says of itself; raise :class:`LoadFailed` where it is none.

    It sees only ``devices``, if those are not ``None``, and gets the variables ``passed``.
    """
    program = await asyncio.to_thread(_found, command)
    environ = environment(devices, passed)
    said = await _said(program, "--version", environ)
    version = _VERSION.search(said)
    if version is None:
        raise LoadFailed(
            f"the program {command} does not say its version ({_last(said) or 'it says nothing'}); "
            "name the program `llama-server` of a build of llama.cpp"
        )
    devices_found = _DEVICE.findall(await _said(program, "--list-devices", environ))
    number, build = version.groups()
    return NativeBuild(
        program=str(program),
        version=f"{number}-b{build}" if build else number,
        gpu=any(not name.startswith(_NO_GPU) for name in devices_found),
    )


def arguments(build: NativeBuild, launch: Launch, place: int | str, states: str) -> Sequence[str]:
    """Return the command that serves the weights at a loopback port, or at a socket.

    ``states`` is the folder of states of prompts. The program's own chat template is fixed: it
    would give up at one that it cannot read, and is never asked for a chat.
    """
    batch, physical = build.batches(launch)
    host, port = (place, 1) if isinstance(place, str) else ("127.0.0.1", place)
    chosen: Mapping[str, object] = {
        "--model": launch.weights,
        "--host": host,
        "--port": port,
        "--parallel": launch.parallel,
        "--ctx-size": launch.cache_tokens,
        "--threads": launch.threads,
        "--threads-batch": launch.threads,
        "--batch-size": batch,
        "--ubatch-size": physical,
        "--cache-type-k": launch.kv_type,
        "--cache-type-v": launch.kv_type,
        "--cache-ram": 0,  # slots are chosen here, and the prompts that leave them kept
        "--slot-save-path": states,
        "--threads-http": 2 * launch.parallel + 32,  # one for each open connection
        "--chat-template": "chatml",
        "--fit": "on" if build.computes_on_gpu(launch) else "off",
        **_optional(launch),
    }
    switches = ["--slots", "--no-webui", "--no-context-shift"]
    if launch.cache_tokens < launch.context * launch.parallel:
        switches.append("--kv-unified")
    given = [str(part) for pair in chosen.items() for part in pair]
    return [build.program, *given, *switches, *launch.args]


def _optional(launch: Launch) -> dict[str, object]:
    """Return the arguments of options that are set."""
    flash = {True: "on", False: "off", None: None}[launch.flash_attention]
    optional: dict[str, object | None] = {
        "--gpu-layers": launch.gpu_layers,
        "--flash-attn": flash,
        "--lora": ",".join(map(_listed, launch.lora)) or None,
    }
    if launch.draft:
        optional |= {
            "--model-draft": launch.draft,
            "--spec-draft-n-max": launch.drafted,
            "--spec-type": "draft-simple",
        }
    elif launch.drafted:
        optional |= {"--spec-ngram-simple-size-m": launch.drafted, "--spec-type": "ngram-simple"}
    return {name: value for name, value in optional.items() if value is not None}


def _listed(path: str) -> str:
    """Return a path as an item of a list with commas."""
    return '"' + path.replace('"', '""') + '"' if {",", '"'} & set(path) else path


async def check(client: LlamaCppClient, partial: PartialTokens, build: NativeBuild) -> None:
    """Have it generate a token; raise :class:`LoadFailed` where its answer lacks something."""
    request = TextRequest(prompt=(0,), max_tokens=1, ignore_eos=True)
    async with client.complete(request, partial) as outputs:
        said = [type(output) async for output in outputs]
    for kind, field in ((Started, "prompt_progress"), (Token, "tokens")):
        if kind not in said:
            raise LoadFailed(
                f"{build.program} ({build.version}) sends no `{field}`: it is too old; {_TRIED}"
            )


def unknown_argument(tail: Iterable[str]) -> str:
    """Return that it does not know an argument, if its log says so; else nothing."""
    named = [found[1] for line in tail if (found := _UNKNOWN.search(line))]
    return f"it does not know the argument {named[0]}; {_TRIED}" if named else ""


def any_error(tail: Iterable[str]) -> str:
    """Return the first line of the log that speaks of an error, or nothing."""
    said = [found[0] for line in tail if (found := _ERROR.search(line))]
    return said[0].strip()[:300] if said else ""


def _found(command: str) -> Path:
    """Return the program's path; raise :class:`LoadFailed`."""
    found = shutil.which(command)
    if found is None:
        raise LoadFailed(f"the program {missing(command)}")
    return Path(found).absolute()


def _folder(program: Path) -> Path:
    return program.resolve().parent


async def _said(program: Path, question: str, environ: Mapping[str, str]) -> str:
    """Return what the program writes; raise :class:`LoadFailed` where it cannot be run."""
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            question,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=environ,
            cwd=await asyncio.to_thread(_folder, program),
        )
    except OSError as error:
        raise LoadFailed(f"{program} could not be started: {error.strerror or error}") from error
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            output, _ = await process.communicate()
    except TimeoutError:
        raise LoadFailed(f"{program} {question} did not end within {_ANSWER_SECONDS:g} s") from None
    finally:
        with suppress(ProcessLookupError):
            process.kill()
    said = output.decode("utf-8", "replace")
    if process.returncode != 0:
        how = f"exit status {process.returncode}"
        raise LoadFailed(f"{program} {question} failed ({how}): {_last(said)}")
    return said


def _last(said: str) -> str:
    """Return the last line of what a program wrote."""
    lines = said.strip().splitlines()
    return lines[-1].strip()[:300] if lines else ""
