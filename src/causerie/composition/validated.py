"""Settings with everything that they name: secrets and files, all of it checked in one run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from causerie.composition.targets import chat_options
from causerie.engines.llamacpp.native import missing
from causerie.engines.weights.errors import BadReference
from causerie.engines.weights.reference import Kind, Reference
from causerie.settings import Loaded, ModelSettings, Problem, SettingsError
from causerie.settings.credentials import NO_CREDENTIALS, Credentials, read_credentials
from causerie.settings.problems import Findings

_WEIGHTS = {
    "llamacpp": "a .gguf file",
    "openvino": "a .gguf file or a folder for OpenVINO",
    "vllm": "a model folder",
}


def checked(
    read: Callable[[], Loaded], *, commands: bool = True, weights: bool = False
) -> tuple[Loaded, Credentials]:
    """Return the settings that ``read`` gives, with their secrets. Blocks.

    Raises :class:`SettingsError` with every problem: of settings, of secrets and of templates.
    Commands that give secrets are run only with ``commands``, and where all settings hold.
    Paths of weights, and programs of llama.cpp, are looked for only with ``weights``: a service
    looks when it loads a model, and serves the others.
    """
    findings = Findings()
    try:
        loaded = read()
    except SettingsError as error:
        if error.partial is None:
            raise
        findings.add(error.problems)
        loaded, commands = error.partial, False
    credentials = NO_CREDENTIALS
    with findings.collecting():
        credentials = read_credentials(loaded, commands=commands)
    with findings.collecting():
        chat_options(loaded.settings, loaded.where)
    if weights:
        findings.add(_missing_weights(loaded))
        findings.add(_missing_programs(loaded))
    findings.end()
    return loaded, credentials


def _missing_weights(loaded: Loaded) -> Iterator[Problem]:
    for index, model in enumerate(loaded.settings.models):
        advice = _missing(model)
        if advice is not None:
            yield Problem(loaded.where(("models", index, "ref")), f"models[{index}].ref", advice)


def _missing_programs(loaded: Loaded) -> Iterator[Problem]:
    for index, model in enumerate(loaded.settings.models):
        command = model.llamacpp.command
        advice = missing(command) if command is not None else None
        if advice is not None:
            path = ("models", index, "llamacpp", "command")
            yield Problem(loaded.where(path), f"models[{index}].llamacpp.command", advice)


def _missing(model: ModelSettings) -> str | None:
    """Return what is wrong with the path of a model's weights, if that leads nowhere."""
    if model.ref is None or model.engine not in _WEIGHTS:
        return None
    try:
        reference = Reference.parse(model.ref)
        if reference.kind is not Kind.PATH or reference.path.exists():
            return None
    except BadReference:
        return None  # the rules say so
    except OSError as error:
        return f'"{model.ref}" cannot be read: {error.strerror or error}'
    repository = f"; a repository is written hf:{model.ref}" if reference.like_repository else ""
    return f'"{model.ref}" does not exist; name {_WEIGHTS[model.engine]}{repository}'
