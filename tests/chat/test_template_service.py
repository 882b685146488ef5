"""A hostile model file alongside honest ones, in a whole service, over HTTP."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator

import pytest
from service import Service, serving
from test_renderers import CHATML, HOSTILE, STALLS_WHEN_ASKED

_MODELS = {
    "own": None,
    "foreign": CHATML,
    "hostile": CHATML + HOSTILE["doubling by ~"],
    "stalling": STALLS_WHEN_ASKED,
    "broken": "{% if %}",
}


def _configured(id: str, template: str | None) -> str:
    shown = f", template = {json.dumps(template)}" if template else ""
    options = f'{{ replies = ["I am {id}."]{shown} }}'
    return f'[[models]]\nid = "{id}"\nengine = "fake"\npreload = true\noptions = {options}\n'


_EITHER = """
[[aliases]]
id = "either"
targets = [{ model = "hostile" }, { model = "foreign", priority = 1 }]
[[doors]]
name = "models"
[[doors]]
name = "gateway"
kind = "gateway"
"""
_CONFIG = "".join(_configured(*model) for model in _MODELS.items()) + _EITHER


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("templates"), _CONFIG) as running:
        yield running


def _asked(
    service: Service, model: str, word: str = "hello", door: str = "endpoints/models"
) -> tuple[int, dict[str, object]]:
    connection = http.client.HTTPConnection(service.root.removeprefix("http://"), timeout=60)
    body = {"model": model, "messages": [{"role": "user", "content": word}], "max_tokens": 20}
    try:
        kind = {"Content-Type": "application/json"}
        connection.request("POST", f"/{door}/v1/chat/completions", json.dumps(body), kind)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def _said(answer: dict[str, object]) -> object:
    choices = answer["choices"]
    assert isinstance(choices, list)
    return choices[0]["message"]["content"]


@pytest.mark.parametrize("model", ["own", "foreign", "stalling"])
def test_honest_requests_are_answered(service: Service, model: str) -> None:
    status, answer = _asked(service, model)
    assert (status, _said(answer)) == (200, f"I am {model}.")


@pytest.mark.parametrize(
    ("model", "word", "reason"),
    [
        ("hostile", "hello", "takes more memory than there is for it"),
        ("stalling", "boom", "took more than 3 seconds"),
        ("broken", "hello", "not valid Jinja: line 1"),
    ],
)
def test_a_hostile_template_is_named_and_is_not_the_clients_fault(
    service: Service, model: str, word: str, reason: str
) -> None:
    status, answer = _asked(service, model, word)
    error = answer["error"]
    assert isinstance(error, dict)
    assert (status, error["type"], error["code"]) == (500, "server_error", "template_failed")
    assert repr(model) in error["message"]
    assert reason in error["message"]


def test_others_are_answered_while_a_template_stalls(service: Service) -> None:
    stalled = threading.Event()

    def stall() -> None:
        assert _asked(service, "stalling", "boom")[0] == 500
        stalled.set()

    thread = threading.Thread(target=stall)
    thread.start()
    answered = 0
    while not stalled.is_set():
        for model in ("own", "foreign"):
            status, answer = _asked(service, model)
            assert (status, _said(answer)) == (200, f"I am {model}.")
            answered += 1
    thread.join()
    assert answered >= 4  # of some hundreds
    assert _asked(service, "stalling")[0] == 200


def test_another_target_of_the_model_is_asked(service: Service) -> None:
    status, answer = _asked(service, "either", door="gateway")
    assert (status, _said(answer)) == (200, "I am foreign.")
