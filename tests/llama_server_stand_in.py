"""A program that is started and asked like ``llama-server``, and misbehaves on demand.

Its model writes one token whatever it is asked. What it was started with, and its process, are
in ``started.json`` in its folder. It needs nothing but the standard library, so that it starts
at once.
"""

from __future__ import annotations

import json
import os
import socketserver
import sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

VERSION = "version: 0.5.0-dev (build 11549, commit 0123abc)\nbuilt with GNU for Linux"
DEVICES = "Available devices:\n  CUDA0: NVIDIA H100 (81000 MiB, 80000 MiB free)\n"
NO_DEVICES = "Available devices:\n  (none)\n"


def program(folder: Path, *, devices: str = NO_DEVICES, old: bool = False) -> str:
    """Write the program into a folder; an ``old`` one reports no progress of prompts."""
    command = folder / "llama-server"
    command.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = --version ] && echo "{VERSION}" >&2 && exit 0\n'
        f'[ "$1" = --list-devices ] && echo "{devices}" && exit 0\n'
        f'OLD={int(old)} exec "{sys.executable}" -I -S "{__file__}" "{folder}" "$@"\n'
    )
    command.chmod(0o755)
    return str(command)


def script(folder: Path, *lines: str) -> str:
    """Write a program that tells its version, and then does what a shell does with ``lines``."""
    command = folder / "llama-server"
    versions = (
        f'[ "$1" = --version ] && echo "{VERSION}" >&2 && exit 0',
        f'[ "$1" = --list-devices ] && echo "{NO_DEVICES}" && exit 0',
    )
    command.write_text("\n".join(("#!/bin/sh", *versions, *lines, "")))
    command.chmod(0o755)
    return str(command)


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """Say that it is well, and that its slots are free."""
        self._answer(b"[]" if self.path == "/slots" else b'{"status":"ok"}')

    def do_POST(self) -> None:
        """Write one token."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.headers["authorization"] != f"Bearer {os.environ['LLAMA_API_KEY']}":
            self.send_error(401)
            return
        self._answer(b"".join(map(_event, _items(body))))

    def address_string(self) -> str:
        """Name no client: those of a Unix socket have no address."""
        return "-"

    def _answer(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _items(body: dict[str, Any]) -> list[dict[str, Any]]:
    read = len(body["prompt"])
    progress = {"total": read, "cache": 0, "processed": read, "time_ms": 1.0}
    token = {"content": "a", "tokens": [100], "tokens_predicted": 1}
    last = {"stop": True, "stop_type": "limit", "tokens_predicted": 1, "tokens_evaluated": read}
    told = os.environ["OLD"] == "0"
    return [*([{"prompt_progress": progress}] if told else []), token, last]


def _event(item: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(item).encode() + b"\n\n"


def _serve(folder: Path, arguments: list[str]) -> None:
    started = {"pid": os.getpid(), "arguments": arguments, "environment": dict(os.environ)}
    started["folder"] = str(Path.cwd())
    (folder / "started.json").write_text(json.dumps(started))
    path = arguments[arguments.index("--host") + 1]
    with socketserver.ThreadingUnixStreamServer(path, _Handler) as server:
        server.serve_forever()


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), sys.argv[2:])
