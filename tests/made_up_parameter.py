"""Prints what a copy of the package makes of two parameters that it alone declares.

``tests/protocol/test_parameter_contract.py`` declares them in the copy and runs this there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from api_table import parameter_table
from configuration_page import configuration_page
from dialects_page import dialects_page

import causerie
from causerie.chat.thinking import request_sampling
from causerie.engines.base import TextRequest
from causerie.engines.llamacpp.client import completion_body as llamacpp_body
from causerie.engines.sampling import sampling_of_folder, sampling_of_gguf
from causerie.engines.vllm.client import completion_body as vllm_body
from causerie.errors import InvalidRequest
from causerie.hosted.operations.probes import groups
from causerie.http.openapi import document
from causerie.http.pages.chat import number_fields
from causerie.probe.questions import QUESTIONS
from causerie.protocol.body import ObjectReader
from causerie.protocol.parameters import ParsingRules, SamplingDefaults, SamplingParams
from causerie.protocol.request import ChatRequest
from causerie.providers.dialects import DIALECTS
from causerie.providers.outgoing import outgoing
from causerie.settings.load import load
from causerie.settings.problems import SettingsError
from causerie.shapes.chat_completions.reader import parse, read_fast_path, read_fields

NAME = "sharpness"


def read(**fields: Any) -> ChatRequest:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **fields}
    return parse(json.dumps(body).encode(), ParsingRules())


def refusal(act: Callable[[], object]) -> str:
    try:
        act()
    except InvalidRequest as refused:
        return str(refused)
    return ""


def reading() -> dict[str, Any]:
    asked = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], NAME: 1.5}
    careful = read(**{NAME: 1.5})
    return {
        "value": getattr(careful.sampling, NAME),
        "given": NAME in careful.params and careful.unlisted is None,
        "null": getattr(read(**{NAME: None}).sampling, NAME),
        "too much": refusal(lambda: read(**{NAME: 3})),
        "no number": refusal(lambda: read(**{NAME: "x"})),
        "left to the careful reader": read_fast_path(json.dumps(asked).encode(), ParsingRules())
        is None,
        "same": read_fields(ObjectReader(asked), ParsingRules()) == careful,
    }


def engines() -> dict[str, Any]:
    def bodies(wanted: SamplingParams, defaults: SamplingDefaults) -> list[Any]:
        sampling = request_sampling(wanted, defaults, None, thinks=True)
        request = TextRequest((1,), 1, sampling)
        return [llamacpp_body(request, 0).get("sharp"), vllm_body(request, ()).get(NAME)]

    of_request = msgspec.convert({NAME: 1.5}, SamplingParams)
    of_model = msgspec.convert({NAME: 0.5}, SamplingDefaults)
    return {
        "of the request": bodies(of_request, of_model),
        "of the model": bodies(SamplingParams(), of_model),
        "neutral": bodies(SamplingParams(), SamplingDefaults()),
        "samplers": llamacpp_body(TextRequest((1,), 1, of_request), 0)["samplers"],
        "refused": "wobble" in llamacpp_body(TextRequest((1,), 1), 0),
        "not refused": vllm_body(TextRequest((1,), 1), ())["wobble"],
        "recommended": [
            getattr(read({NAME: 0.5}, ()).usual, NAME)
            for read in (sampling_of_gguf, sampling_of_folder)
        ],
    }


def dialects() -> dict[str, Any]:
    def sent(dialect: str, value: float) -> object:
        out = outgoing(read(**{NAME: value}), DIALECTS[dialect], "theirs")
        return [json.loads(out.body).get(NAME), list(out.changes)]

    return {
        "vllm": sent("vllm", 1.5),
        "openai": refusal(lambda: sent("openai", 1.5)),
        "openai, neutral": sent("openai", 1),
        "page": _line(dialects_page(), NAME),
    }


def configured(folder: Path) -> dict[str, Any]:
    def loaded(text: str) -> Any:
        file = folder / "causerie.toml"
        file.write_text(text)
        return load(file=file, environ={}).settings

    model = '[[models]]\nid = "a"\nref = "hf:o/r"\n[models.sampling]\n'
    try:
        loaded(f"{model}{NAME} = 5")
        wrong = ""
    except SettingsError as refused:
        wrong = str(refused.problems[0])
    return {
        "default": getattr(loaded(f"{model}{NAME} = 0.5").models[0].sampling, NAME),
        "wrong": wrong.partition(": ")[2],
        "page": _line(configuration_page(), NAME),
    }


def shown() -> dict[str, Any]:
    described: Any = document(4096)
    schemas = described["components"]["schemas"]
    (question,) = (each for each in QUESTIONS if NAME in each.decides)
    (field,) = (each for each in number_fields() if each.name == NAME)
    return {
        "openapi": [schemas[name]["properties"][NAME] for name in ("ChatRequest", "RouterRequest")],
        "question": question.words,
        "groups": [title for title, names in groups() if NAME in names],
        "reference": _line(parameter_table(), NAME),
        "playground": [field.label, field.least, field.most, field.unset],
    }


def _line(page: str, name: str) -> str:
    return next((line for line in page.splitlines() if line.startswith(f"| `{name}`")), "")


if __name__ == "__main__":
    told = {
        "package": str(Path(causerie.__file__).parent),
        "reading": reading(),
        "engines": engines(),
        "dialects": dialects(),
        "configured": configured(Path(sys.argv[1])),
        "shown": shown(),
    }
    sys.stdout.write(json.dumps(told))
