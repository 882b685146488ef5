"""The child process: loads a model with llama.cpp and serves it to its parent until told to go.

Reads one line of JSON (the :class:`~causerie.engines.llamacpp.options.Launch`, a key, and the
path of the Unix socket to listen at, or null for a free port of the loopback address) from
standard input and answers with lines of JSON on standard output: ``{"ready": true, "address":
…, "batch": 64}`` once it is loaded and listens. Standard input stays open; when it ends, the
parent is gone or has enough, and so are we.

Where the model is on no GPU, cleared memory that is not used is given back first. A page that was
given back reads as zeros again, as long as nobody writes to it between the look and the return:
so this runs once, when nobody can ask yet, and only looks at large mappings in large pieces.
Caches lie in them, and the heaps and stacks of running threads do not.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import xllamacpp

from causerie.engines.child import die_with_parent, ignore_signals, stay_on
from causerie.engines.llamacpp.slots import prompt_files_folder

_PIECE = 2**21  # bytes; a huge page
_LEAST_MAPPING = 2**26  # bytes; a heap of the C library is never larger
_MAPS = Path("/proc/self/maps")
_LOG_SECONDS = 0.5
_NO_HUGE_PAGE = 15  # MADV_NOHUGEPAGE; its constant is absent in builds with old headers


def give_back_zero_pages() -> int:
    """Give memory of zeros back to the system; return its bytes, which are 0 outside of Linux."""
    if sys.platform != "linux":
        return 0
    library = ctypes.CDLL(None)
    library.memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    library.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    zeros = ctypes.create_string_buffer(_PIECE)
    size = 0
    pieces = [
        piece
        for mapping in private_mappings(_MAPS.read_text().splitlines())
        for piece in range(-(-mapping.start // _PIECE) * _PIECE, mapping.stop - _PIECE + 1, _PIECE)
    ]
    for piece in pieces:
        if library.memcmp(piece, zeros, _PIECE) != 0:
            continue
        if library.madvise(piece, _PIECE, mmap.MADV_DONTNEED) == 0:
            # Otherwise the first token in a piece could take all of it again.
            library.madvise(piece, _PIECE, _NO_HUGE_PAGE)
            size += _PIECE
    return size


def private_mappings(lines: Iterable[str]) -> Iterator[range]:
    """Yield the addresses of large writable mappings that have no file and are not shared."""
    for line in lines:
        addresses, access, _, _, _, *name = line.split(maxsplit=5)
        if access != "rw-p" or (name and not name[0].startswith("[anon:")):
            continue
        begin, end = (int(address, 16) for address in addresses.split("-"))
        if end - begin > _LEAST_MAPPING:
            yield range(begin, end)


def main() -> None:
    die_with_parent(signal.SIGKILL)
    ignore_signals()
    task = json.loads(sys.stdin.readline())
    launch = task["launch"]
    threading.Thread(target=_wait_and_exit_with_parent, daemon=True).start()
    stay_on(launch["cpus"])
    os.umask(0o077)  # the socket is this user's
    try:
        params = _build_server_parameters(launch, task["key"], task["socket"])
        server = xllamacpp.Server(params)
    except RuntimeError as error:  # the log says more
        time.sleep(_LOG_SECONDS)  # a thread of its own writes the log, and would be cut off
        sys.exit(f"RuntimeError: {error}")
    gpu = _uses_gpu(launch)
    if not gpu:  # a device may hold on to pages of its host
        give_back_zero_pages()
    report = {
        "ready": True,
        "address": server.listening_address,
        "batch": params.n_batch,
        "gpu_batch": params.n_ubatch if gpu else None,
    }
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()
    threading.Event().wait()


def _build_server_parameters(launch: dict[str, Any], key: str, socket: str | None) -> Any:
    params = xllamacpp.CommonParams()
    params.model.path = launch["weights"]
    _set_slot_count_and_cache_size(params, launch)
    params.cpuparams.n_threads = launch["threads"]
    params.cpuparams_batch.n_threads = launch["threads"]
    if launch["gpu_layers"] is not None:
        params.n_gpu_layers = launch["gpu_layers"]
    gpu = _uses_gpu(launch)
    params.fit_params = gpu  # without one there is nothing to choose, and it would load twice
    if launch["batch"] is not None or not gpu:
        params.n_batch = launch["batch"] or launch["cpu_batch"]
        params.n_ubatch = min(params.n_batch, params.n_ubatch)
    if launch["embeddings"]:
        params.embedding = True
        params.n_batch = params.n_ubatch = launch["batch"]  # some models read all of a text at once
    if launch["pooling"]:
        kinds = xllamacpp.llama_pooling_type
        params.pooling_type = getattr(kinds, f"LLAMA_POOLING_TYPE_{launch['pooling'].upper()}")
    kv_type = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{launch['kv_type'].upper()}")
    params.cache_type_k = params.cache_type_v = kv_type
    if launch["flash_attention"] is not None:
        kind = f"LLAMA_FLASH_ATTN_TYPE_{'ENABLED' if launch['flash_attention'] else 'DISABLED'}"
        params.flash_attn_type = getattr(xllamacpp.llama_flash_attn_type, kind)
    if launch["lora"]:
        params.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(p, 1.0) for p in launch["lora"]]
    if launch["mmproj"]:
        params.mmproj.path = launch["mmproj"]
        params.chat_template = "chatml"  # around an image whose tokens are counted, and no more
    _set_speculation(params, launch)
    params.ctx_shift = False  # a prompt is never cut silently
    # A host name that ends in `.sock` is a path to it, and then the port must only not be zero.
    params.hostnames = [socket or "127.0.0.1"]
    params.port = 1 if socket else 0  # 0: any that is free
    params.api_keys = [key]
    params.endpoint_slots = True
    params.endpoint_props = True
    params.ui = False
    params.n_threads_http = 2 * launch["parallel"] + 32  # one for each open connection
    params.cache_ram_mib = 0  # the parent chooses slots, and keeps the prompts that leave them
    params.slot_save_path = prompt_files_folder(os.getppid())
    params.warmup = True
    return params


def _set_slot_count_and_cache_size(params: Any, launch: dict[str, Any]) -> None:
    context, parallel, cache_tokens = (
        launch[name] for name in ("context", "parallel", "cache_tokens")
    )
    params.n_parallel, params.n_ctx = parallel, cache_tokens
    params.kv_unified = cache_tokens < context * parallel
    if params.kv_unified:
        params.kv_unified_per_slot = context


def _set_speculation(params: Any, launch: dict[str, Any]) -> None:
    kinds = xllamacpp.common_speculative_type
    if launch["draft"]:
        params.speculative.draft.mparams.path = launch["draft"]
        params.speculative.draft.n_max = launch["drafted"]
        params.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
    elif launch["drafted"]:
        # The engine's other searches by n-gram keep what they know of a slot when another prompt
        # enters it, and then find nothing there.
        repeats = params.speculative.ngram_simple
        repeats.size_n = repeats.size_m = launch["drafted"]
        params.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]


def _uses_gpu(launch: dict[str, Any]) -> bool:
    if launch["gpu_layers"] == 0:
        return False
    return any("GPU" in device["type"].name for device in xllamacpp.get_device_info())


def _wait_and_exit_with_parent() -> None:
    sys.stdin.read()
    os._exit(0)  # native threads hold no state worth a farewell


if __name__ == "__main__":
    main()
