"""Other gateways, each on one core, with its own advice for speed: no logs, one worker.

They are installed on request into a cache of their own; one that cannot be installed or does not
start is left out, and the reason is printed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from service import free_port

from gateway.contestant import Contestant, process

Start = Callable[[str, Path, int], AbstractContextManager[Contestant]]
_HERE = Path(__file__).parents[1]


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "causerie-bench"


def _environment(name: str, packages: Sequence[str]) -> Path:
    """The folder of the programs of a virtual environment that has these packages."""
    home = _cache() / name
    programs = home / "bin"
    if not (home / "complete").exists():
        print(f"installing {', '.join(packages)} …", flush=True)
        uv = [sys.executable, "-m", "uv"]
        subprocess.run([*uv, "venv", "-q", "--clear", str(home)], check=True)
        install = [*uv, "pip", "install", "-q", "--python", str(programs / "python")]
        subprocess.run([*install, "--only-binary", ":all:", *packages], check=True)
        (home / "complete").touch()
    return programs


@contextmanager
def bare(mock: str, folder: Path, core: int) -> Iterator[Contestant]:
    """The floor of what Python does here: bytes from one socket to another."""
    port = free_port()
    root = f"http://127.0.0.1:{port}"
    with process(
        [sys.executable, "-m", "gateway.bare", str(port), mock.removeprefix("http://")],
        folder / "bare.log",
        core=core,
        ready=f"{root}/v1/models",
        environ={"PYTHONPATH": str(_HERE)},
    ) as pid:
        yield Contestant("bare asyncio", root, pid)


@contextmanager
def raw(mock: str, folder: Path, core: int) -> Iterator[Contestant]:
    """The least of ASGI: uvicorn before aiohttp."""
    programs = _environment("raw", ["uvicorn", "aiohttp", "httptools", "uvloop"])
    port = free_port()
    root = f"http://127.0.0.1:{port}"
    command = [str(programs / "uvicorn"), "gateway.raw:application", "--port", str(port)]
    with process(
        [*command, "--no-access-log", "--log-level", "warning"],
        folder / "raw.log",
        core=core,
        ready=f"{root}/v1/models",
        environ={"PYTHONPATH": str(_HERE), "UPSTREAM": mock},
    ) as pid:
        yield Contestant("uvicorn + aiohttp", root, pid)


NGINX = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr crit;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path {folder};
    proxy_temp_path {folder};
    fastcgi_temp_path {folder};
    uwsgi_temp_path {folder};
    scgi_temp_path {folder};
    client_body_buffer_size 64k;
    keepalive_requests 1000000000;
    upstream mock {{ server {mock}; keepalive 512; keepalive_requests 1000000000; }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{
            proxy_pass http://mock;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
        }}
    }}
}}
"""


@contextmanager
def nginx(mock: str, folder: Path, core: int) -> Iterator[Contestant]:
    """A proxy in C that knows nothing of chat."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        print("installing nginx …", flush=True)
        command = ["apt-get", "install", "-qqy", "--no-install-recommends", "nginx-light"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        program = "/usr/sbin/nginx"
    port = free_port()
    config = folder / "nginx.conf"
    config.write_text(NGINX.format(folder=folder, port=port, mock=mock.removeprefix("http://")))
    root = f"http://127.0.0.1:{port}"
    with process(
        [program, "-c", str(config), "-e", "stderr"],
        folder / "nginx.log",
        core=core,
        ready=f"{root}/v1/models",
    ) as pid:
        yield Contestant("nginx", root, pid)


LITELLM = """
model_list:
  - model_name: "*"
    litellm_params: {{ model: "openai/*", api_base: "{mock}/v1", api_key: "none" }}
litellm_settings: {{ request_timeout: 600, drop_params: true }}
general_settings: {{ master_key: "sk-bench" }}
"""


@contextmanager
def litellm(mock: str, folder: Path, core: int) -> Iterator[Contestant]:
    """The gateway in Python that most people use; its key is checked."""
    programs = _environment("litellm", ["litellm[proxy]"])
    port = free_port()
    config = folder / "litellm.yaml"
    config.write_text(LITELLM.format(mock=mock))
    root = f"http://127.0.0.1:{port}"
    with process(
        [str(programs / "litellm"), "--config", str(config), "--port", str(port)],
        folder / "litellm.log",
        core=core,
        ready=f"{root}/health/liveliness",
        environ={
            "LITELLM_LOG": "ERROR",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it is fetched from elsewhere
            "LITELLM_TELEMETRY": "False",
            "PATH": f"{programs}:{os.environ['PATH']}",
        },
    ) as pid:
        yield Contestant("LiteLLM", root, pid, key="sk-bench")


@contextmanager
def vllm_router(mock: str, folder: Path, core: int) -> Iterator[Contestant]:
    """A router in Rust."""
    programs = _environment("vllm-router", ["vllm-router"])
    with _router("vllm-router", [str(programs / "vllm-router")], mock, folder, core) as found:
        yield found


@contextmanager
def sglang_router(mock: str, folder: Path, core: int) -> Iterator[Contestant]:
    """Another router in Rust."""
    programs = _environment("sglang-router", ["sglang-router"])
    command = [str(programs / "sglang-router"), "launch"]
    with _router("sglang-router", command, mock, folder, core) as found:
        yield found


@contextmanager
def _router(
    name: str, command: Sequence[str], mock: str, folder: Path, core: int
) -> Iterator[Contestant]:
    port, metrics = free_port(), free_port()
    root = f"http://127.0.0.1:{port}"
    options = ["--worker-urls", mock, "--policy", "round_robin", "--host", "127.0.0.1"]
    with process(
        [*command, *options, "--port", str(port), "--prometheus-port", str(metrics)],
        folder / f"{name}.log",
        core=core,
        ready=f"{root}/health",
    ) as pid:
        yield Contestant(name, root, pid)


PEERS: Mapping[str, Start] = {
    "nginx": nginx,
    "bare": bare,
    "raw": raw,
    "vllm-router": vllm_router,
    "sglang-router": sglang_router,
    "litellm": litellm,
}
