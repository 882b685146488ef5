"""Our service as a gateway: a key is checked, limits are counted, every request is metered.

There is no log of requests unless it is wanted, as the others have none.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from service import free_port

from gateway.contestant import Contestant, process

# `m` stands for the mock's models; what it sends is ours already under `plain` and `stream-…`,
# and has to be rewritten under `think-…`.
SERVER = """
[server]
keys = ["{digest}"]
{server}

[[doors]]
name = "gateway"
kind = "gateway"
"""
PROVIDER = """
[[providers]]
name = "{name}"
base_url = "{mock}/v1"
dialect = "vllm"
"""
ALIAS = """
[[aliases]]
id = "{id}"
targets = [{{ provider = "{provider}", model = "{model}" }}]
"""
LIMITS = """[aliases.limits]
requests_per_minute = 1000000000
tokens_per_minute = 1000000000000
concurrent = 1000000
"""


def new_key() -> tuple[str, str]:
    """A key and its digest."""
    command = [sys.executable, "-m", "causerie", "key"]
    words = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return words[1], words[3].strip('"')


def await_workers(root: str, count: int) -> None:
    """Return when so many workers answer."""
    while count > 1:
        with urlopen(f"{root}/metrics") as answer:
            if f"causerie_workers {count:.1f}" in answer.read().decode():
                return
        time.sleep(0.1)  # another process: there is nothing to await but its answer


@contextmanager
def ours(
    mock: str, models: list[str], folder: Path, core: int, *, log: bool = False, workers: int = 0
) -> Iterator[Contestant]:
    """The service with an alias for each model; with ``log`` it writes a line of each request.

    With ``workers`` (1 is none) all of its processes share the core, so that none polls there, and
    nothing has limits.
    """
    port = free_port()
    key, digest = new_key()
    config = folder / "causerie.toml"
    alias = ALIAS if workers else ALIAS + LIMITS
    aliases = "".join(alias.format(id=each, provider="mock", model=each) for each in models)
    server = f"workers = {workers}\nbusy_poll_seconds = 0" if workers else ""
    head = SERVER.format(digest=digest, server=server) + PROVIDER.format(name="mock", mock=mock)
    config.write_text(head + aliases)
    command = [sys.executable, "-m", "causerie", "serve", "--port", str(port)]
    root = f"http://127.0.0.1:{port}"
    with process(
        [*command, "--config", str(config)],
        folder / "ours.log",
        core=core,
        ready=f"{root}/health/live",
        environ={"NO_COLOR": "1", "CAUSERIE_LOGGING_LEVEL": "info" if log else "warning"},
    ) as pid:
        name = "causerie" if workers < 2 else f"{workers} workers"
        await_workers(root, workers)
        yield Contestant(name, root, pid, "/gateway/v1", key, rewrites=True)
