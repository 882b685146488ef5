"""Check the configuration as a whole: its file, the entries of operators, secrets and paths."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog

from causerie.composition.targets import chat_options
from causerie.engines.llamacpp.engine import missing_program
from causerie.engines.weights.errors import BadReference
from causerie.engines.weights.reference import Kind, Reference
from causerie.settings.credentials import NO_CREDENTIALS, Credentials, read_credentials
from causerie.settings.entries import OFF, TABLES, Entry, EntryKey, ReadWith, merged
from causerie.settings.load import Loaded
from causerie.settings.problems import Findings, Problem, SettingsError, dotted
from causerie.settings.toml import KeyPath
from causerie.settings.tree import ModelSettings

if TYPE_CHECKING:
    from causerie.hosted.accounts.records import StoredEntry


_WEIGHTS = {
    "llamacpp": "a .gguf file",
    "openvino": "a .gguf file or a folder for OpenVINO",
    "vllm": "a model folder",
}


def checked(
    read: Callable[[], Loaded],
    *,
    commands: bool = True,
    weights: bool = False,
    secrets: bool = True,
) -> tuple[Loaded, Credentials]:
    """Return the settings that ``read`` gives, checked, and their secrets. Blocks.

    Raises :class:`SettingsError` with every problem. Commands that give secrets run only with
    ``commands`` and valid settings. ``weights``: also look for paths of weights and programs.
    Without ``secrets`` none is looked for.
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
    if secrets:
        with findings.collecting():
            credentials = read_credentials(loaded, commands=commands)
    with findings.collecting():
        chat_options(loaded.settings, loaded.where)
    if weights:
        findings.add(_find_missing_files(loaded))
    findings.end()
    return loaded, credentials


def _find_missing_files(loaded: Loaded) -> Iterator[Problem]:
    for index, model in enumerate(loaded.settings.models):
        command = model.llamacpp.command
        program = missing_program(command) if command is not None else None
        at: KeyPath = ("models", index)
        faults = ((*at, "ref"), _weights_problem(model)), ((*at, "llamacpp", "command"), program)
        for path, advice in faults:
            if advice is not None:
                yield Problem(loaded.where(path), dotted(path), advice)


def _weights_problem(model: ModelSettings) -> str | None:
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


log = structlog.get_logger(__name__)

_WHERE_SENT = ("base_url", "known", "proxy", "tls")  # what says to whom a key is sent
_UNKNOWN = "this version does not know entries of this kind; a newer one has made it"
_UNREADABLE = "its key was encrypted with a key that is not in `store.secret_keys`; give it anew"


def known(stored: Sequence[StoredEntry]) -> Sequence[StoredEntry]:
    """Return the entries of kinds that this version knows; a newer one may have made others."""
    return [each for each in stored if each.kind in TABLES]


def warn_of_unknown(stored: Sequence[StoredEntry]) -> None:
    for each in stored:
        if each.kind not in TABLES:
            log.warning("entry of an unknown kind skipped", kind=each.kind, name=each.name)


def refuse_unreadable(stored: Sequence[StoredEntry]) -> None:
    """Raise :class:`SettingsError` if the key of an entry in use cannot be decrypted here."""
    problems = [
        Problem("the database", entry_of(each).origin, _UNREADABLE)
        for each in stored
        if each.unreadable and each.enabled
    ]
    if problems:
        raise SettingsError(problems)


def entry_of(stored: StoredEntry) -> Entry:
    return Entry(stored.kind, stored.name, stored.body, stored.enabled)


def checked_with(
    read: ReadWith, stored: Sequence[StoredEntry] = (), text: str | None = None
) -> tuple[Loaded, Credentials]:
    """Return the settings with the valid entries, and all secrets. Blocks.

    ``text`` is the text of the file, if known. Raises :class:`SettingsError` for a broken file.
    """
    loaded, credentials = checked(lambda: _refuse_unknown_chosen(merged_with(read, stored, text)))
    keys, alerts = dict(credentials.keys), dict(credentials.alerts)
    for each in stored:
        if each.credential is not None and in_force(each, loaded):
            (keys if each.kind == "provider" else alerts)[each.name] = each.credential
    return loaded, replace(credentials, keys=keys, alerts=alerts)


def _refuse_unknown_chosen(loaded: Loaded) -> Loaded:
    ids = [one.id for one in loaded.settings.models]
    if missing := sorted(loaded.chosen - set(ids)):
        words = f"no model has the id {missing[0]}; there are: {', '.join(ids) or 'none'}"
        if reasons := loaded.left_out.get(("model", missing[0])):
            words = f"the entry of model {missing[0]} does not hold: {'; '.join(reasons)}"
        raise SettingsError([Problem("--model", "", words)])
    return loaded


def merged_with(read: ReadWith, stored: Sequence[StoredEntry], text: str | None = None) -> Loaded:
    return merged(read, [entry_of(each) for each in known(stored) if not each.unreadable], text)


def reasons(stored: StoredEntry, loaded: Loaded) -> tuple[str, ...]:
    if not stored.enabled:
        return ()
    if stored.kind not in TABLES:
        return (_UNKNOWN,)
    return (_UNREADABLE,) if stored.unreadable else loaded.left_out.get(entry_of(stored).key, ())


def in_force(stored: StoredEntry, loaded: Loaded) -> bool:
    usable = stored.enabled and not stored.unreadable and stored.kind in TABLES
    return usable and entry_of(stored).key not in loaded.left_out


def moved(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether a changed entry would send its key elsewhere than it was given for."""
    return any(before.get(name) != after.get(name) for name in _WHERE_SENT)


def new_problems(
    entries: Sequence[Entry], loaded: Loaded, before: Loaded, touched: Collection[EntryKey]
) -> list[tuple[Entry, str]]:
    """Return problems of entries, without those of untouched ones that were broken ``before``."""
    return [
        (entry, reason)
        for entry in entries
        for reason in loaded.left_out.get(entry.key, ())
        if reason != OFF
        and (entry.key in touched or (entry.enabled and entry.key not in before.left_out))
    ]
