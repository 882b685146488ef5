"""Images for tests, and the bare engine that the service is compared with."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

_BARE = """
import sys, threading, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.mmproj.path = sys.argv[1:3]
params.n_ctx, params.n_parallel, params.cpuparams.n_threads = 2048, 1, 2
params.hostnames, params.port, params.fit_params, params.use_jinja = ["127.0.0.1"], 0, False, True
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
threading.Event().wait()
"""


def picture(width: int = 60, height: int = 60, seed: int = 0) -> Image.Image:
    """Return an image of random pixels; another one for another seed."""
    pixels = np.random.default_rng(seed).integers(0, 255, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def encoded(image: Image.Image, format: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def data_url(data: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{b64encode(data).decode()}"


def url_of(width: int = 60, height: int = 60, seed: int = 0) -> str:
    return data_url(encoded(picture(width, height, seed)))


def content(*parts: str) -> list[dict[str, Any]]:
    """Return the parts of a message: texts, and images by their addresses."""
    return [
        {"type": "image_url", "image_url": {"url": part}}
        if part.startswith(("data:", "https:"))
        else {"type": "text", "text": part}
        for part in parts
    ]


@contextmanager
def bare_engine(weights: Path, projector: Path) -> Iterator[str]:
    """Run llama.cpp's own server with its own defaults; yield its address."""
    command = [sys.executable, "-c", _BARE, str(weights), str(projector)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield next(line.strip() for line in process.stdout if line.startswith("http"))
        finally:
            process.kill()


def bare_answer(root: str, messages: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """Return what the bare engine's chat endpoint answers at temperature 0."""
    body = {"messages": messages, "temperature": 0, **fields}
    request = urllib.request.Request(
        f"{root}/v1/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as response:
        answer: dict[str, Any] = json.load(response)
        return answer
