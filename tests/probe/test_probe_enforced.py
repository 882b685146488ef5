"""From a probe to the validator: what a provider does not do is refused in front of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from service import Service, serving

UPSTREAM = """
    [[models]]
    id = "echo"
    engine = "fake"
"""
GATEWAY = """\
# who may ask
[[doors]]
name = "front"
kind = "gateway"
keys = "off"

[[providers]]
name = "back"  # the only one
base_url = "{base_url}"

[[aliases]]
id = "public"
targets = [{{ provider = "back", model = "echo" }}]
"""


def causerie(*arguments: str, runtime: Path) -> str:
    """One command, which must succeed; what it says."""
    done = subprocess.run(
        [sys.executable, "-m", "causerie", *arguments],
        env={**os.environ, "XDG_RUNTIME_DIR": str(runtime), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def ask(service: Service, **fields: Any) -> tuple[int, dict[str, Any]]:
    body = {"model": "public", "messages": [{"role": "user", "content": "Hi"}], **fields}
    request = urllib.request.Request(
        f"{service.base_url}/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_the_validator_enforces_what_was_found(tmp_path: Path, monkeypatch: Any) -> None:
    """Interface 1.2: what a provider supports is confirmed against it."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "up").mkdir()
    (tmp_path / "front").mkdir()
    file = tmp_path / "front" / "causerie.toml"
    with serving(tmp_path / "up", UPSTREAM) as upstream:
        config = GATEWAY.format(base_url=upstream.base_url)
        with serving(tmp_path / "front", config) as gateway:
            # Nobody has asked the provider yet, so everything is let through.
            assert ask(gateway, temperature=0.5)[0] == 200
            told = causerie("probe", upstream.base_url, "--entry", runtime=tmp_path)
            file.write_text(file.read_text().replace("[[aliases]]", f"{told}\n[[aliases]]"))
            causerie("reload", "--config", str(file), runtime=tmp_path)
            status, refused = ask(gateway, temperature=0.5)
            assert status == 400
            assert refused["error"]["code"] == "unsupported_parameter"
            assert refused["error"]["param"] == "temperature"
            status, told = ask(gateway, stop=["zz"], max_tokens=3, logit_bias={"65": 100})
            assert status == 200
            assert told["choices"][0]["message"]["content"] == "AAA"
