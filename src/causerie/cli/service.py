"""``causerie service``: start ``causerie serve`` when this user logs in, by systemd or launchd."""

from __future__ import annotations

import os
import plistlib
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from causerie.cli.command import CommandFailed, ExitCode

_NAME = "causerie"
_UNIT = """[Unit]
Description=Causerie, a chat completions service

[Service]
ExecStart={command}
WorkingDirectory=%h
Restart=on-failure
RestartSec=2
TimeoutStopSec=60
NoNewPrivileges=true

[Install]
WantedBy=default.target
"""
Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- OPTION...]", help="Options and references of `causerie serve`."),
]

service = typer.Typer(
    help="Start the service when you log in, by systemd or launchd.", no_args_is_help=True
)


@service.command()
def install(
    words: Words = None,
    show: Annotated[bool, typer.Option("--show", help="Print the file; install nothing.")] = False,
) -> None:
    """Start `causerie serve` now, and whenever you log in.

    It runs as you, with this installation, in your home folder: a systemd user
    unit on Linux, a launch agent on macOS. Variables of this shell are not
    passed on; put settings into a file, and name it by its whole path.

    **Examples**

    `causerie service install`

    `causerie service install -- --port 9000 --config ~/causerie.toml`
    """
    manager = _manager()
    content = manager.content((sys.executable, "-P", "-m", "causerie", "serve", *(words or ())))
    if show:
        typer.echo(content.decode(), nl=False)
        return
    manager.file.parent.mkdir(parents=True, exist_ok=True)
    if manager.file.exists():  # launchd loads a changed file only anew
        _run(manager.stops, fails=False)
    manager.file.write_bytes(content)
    _run(manager.starts)
    typer.echo(f"Installed {manager.file}.\n{manager.advice}")


@service.command()
def uninstall() -> None:
    """Stop the service, and start it no more.

    **Examples**

    `causerie service uninstall`
    """
    manager = _manager()
    if not manager.file.exists():
        raise CommandFailed(f"nothing is installed: there is no {manager.file}")
    _run(manager.stops, fails=False)
    manager.file.unlink()
    _run(manager.ends, fails=False)
    typer.echo(f"Removed {manager.file}.")


@dataclass(frozen=True)
class _Systemd:
    file: Path
    starts = (
        ("systemctl", "--user", "daemon-reload"),
        ("systemctl", "--user", "enable", _NAME),
        ("systemctl", "--user", "restart", _NAME),
    )
    stops = (("systemctl", "--user", "disable", "--now", _NAME),)
    ends = (("systemctl", "--user", "daemon-reload"),)
    advice = (
        f"Its log: `journalctl --user -u {_NAME}`. "
        "`loginctl enable-linger` starts it at boot, before you log in."
    )

    def content(self, command: Sequence[str]) -> bytes:
        return _UNIT.format(command=" ".join(map(_quoted, command))).encode()


@dataclass(frozen=True)
class _Launchd:
    file: Path
    log: Path
    user: str

    @property
    def starts(self) -> Sequence[Sequence[str]]:
        return (("launchctl", "bootstrap", self.user, str(self.file)),)

    @property
    def stops(self) -> Sequence[Sequence[str]]:
        return (("launchctl", "bootout", f"{self.user}/{_NAME}"),)

    ends = ()

    @property
    def advice(self) -> str:
        return f"Its log: {self.log}"

    def content(self, command: Sequence[str]) -> bytes:
        agent = {
            "Label": _NAME,
            "ProgramArguments": list(command),
            "WorkingDirectory": str(Path.home()),
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "StandardErrorPath": str(self.log),
        }
        return plistlib.dumps(agent)


def _manager() -> _Systemd | _Launchd:
    from causerie.settings.environment import config_folder, variables

    if sys.platform == "darwin":
        library = Path.home() / "Library"
        agent = library / "LaunchAgents" / f"{_NAME}.plist"
        return _Launchd(agent, library / "Logs" / f"{_NAME}.log", f"gui/{os.getuid()}")
    if sys.platform.startswith("linux"):
        folder = config_folder(variables()).parent / "systemd" / "user"
        return _Systemd(folder / f"{_NAME}.service")
    raise CommandFailed(
        "this system has neither systemd nor launchd; let its own tools start `causerie serve`",
        ExitCode.USAGE,
    )


def _run(commands: Sequence[Sequence[str]], *, fails: bool = True) -> None:
    for command in commands:
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            problem = done.stderr.strip() if done.returncode else ""
        except OSError as error:
            problem = error.strerror or str(error)
        if problem and fails:
            raise CommandFailed(f"`{' '.join(command)}` failed: {problem}")


# systemd.service(5), "Command lines".
def _quoted(word: str) -> str:
    for special in ("\\", '"'):
        word = word.replace(special, f"\\{special}")
    return '"' + word.replace("%", "%%").replace("$", "$$").replace("\n", "\\n") + '"'
