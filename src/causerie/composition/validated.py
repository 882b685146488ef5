"""Settings with everything that they name: secrets and files, all of it checked in one run."""

from __future__ import annotations

from collections.abc import Callable

from causerie.composition.targets import chat_options
from causerie.settings import Loaded, SettingsError
from causerie.settings.credentials import NO_CREDENTIALS, Credentials, read_credentials
from causerie.settings.problems import Findings


def checked(read: Callable[[], Loaded], *, commands: bool = True) -> tuple[Loaded, Credentials]:
    """Return the settings that ``read`` gives, with their secrets. Blocks.

    Raises :class:`SettingsError` with every problem: of settings, of secrets and of templates.
    Commands that give secrets are run only with ``commands``, and where all settings hold.
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
    findings.end()
    return loaded, credentials
