"""Environment of child processes: listed variables, and none with a key or a password.

The service's own environment holds keys of providers and the password of its database. A child
that runs foreign code (an engine, a chat template) gets what its libraries need, and what the
operator names for it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection

_BASE = re.compile(
    r"HOME|USER|LOGNAME|PATH|PWD|SHELL|TERM|TZ|LANG|LC_\w+|LANGUAGE|TMPDIR|TEMP|TMP|SYSTEMROOT"
    r"|LD_LIBRARY_PATH|DYLD_(FALLBACK_)?LIBRARY_PATH|VIRTUAL_ENV|CONDA_PREFIX"
    r"|PYTHON(HOME|PATH|UNBUFFERED|DONTWRITEBYTECODE|UTF8|IOENCODING|HASHSEED|MALLOC|NOUSERSITE"
    r"|USERBASE|PYCACHEPREFIX|WARNINGS|FAULTHANDLER)"
)
_ENGINE = re.compile(
    r"(http|https|ftp|all|no)_proxy|SSL_CERT_(FILE|DIR)|(REQUESTS|CURL)_CA_BUNDLE|XDG_\w+"
    r"|LD_PRELOAD|MALLOC_\w+|(CUDA|NVIDIA|NCCL|CUBLAS|CUDNN|TENSORRT|NVCC)_\w+"
    r"|(ROCR|ROCM|HIP|HSA|AMD|MIOPEN|GPU|RCCL)_\w+|(ONEAPI|SYCL|ZE|ZES|UR|CCL|VK|MESA)_\w+"
    r"|(OMP|GOMP|KMP|MKL|OPENBLAS|BLIS|TBB|ONEDNN|DNNL|NUMEXPR|VECLIB|NUMBA)_\w+"
    r"|(GGML|LLAMA(?!_ARG_)|OV|OPENVINO)_\w+"
    r"|(VLLM|HF|TRANSFORMERS|TOKENIZERS|TORCH|PYTORCH|TORCHINDUCTOR|TRITON|FLASHINFER)_\w+"
    r"|(RAY|GLOO|UCX|TP|MASTER|SLURM)_\w+|CC|CXX|CPATH|LIBRARY_PATH|MAX_JOBS"
)
_SECRET = re.compile(r"(^|_)(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|AUTH)(_|$)")


def base_environment() -> dict[str, str]:
    """Return the environment variables that every program needs."""
    return _select_variables_without_secrets(_BASE)


def engine_environment(passed: Collection[str] = ()) -> dict[str, str]:
    """Return the environment variables for an engine, and those that the operator ``passed``."""
    ours = os.environ  # noqa: TID251 - handed on, not read
    more = {name: ours[name] for name in passed if name in ours}
    return base_environment() | _select_variables_without_secrets(_ENGINE) | more


def package_index_environment() -> dict[str, str]:
    """Return the environment variables for pip, which may have the addresses of indexes."""
    return engine_environment() | _select_variables_without_secrets(re.compile(r"PIP_\w+"))


def _select_variables_without_secrets(wanted: re.Pattern[str]) -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()  # noqa: TID251 - handed on, not read
        if (wanted.fullmatch(name) or wanted.fullmatch(name.lower())) and not _SECRET.search(name)
    }
