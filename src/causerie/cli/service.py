"""``causerie service``: start ``causerie serve`` when this user logs in, by systemd or launchd."""

from __future__ import annotations

import os
import plistlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from causerie.cli.command import CommandFailed, WrongUsage

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

service = typer.Typer()


@service.command()
def install(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- OPTION...]", help="Options and references of `causerie serve`."
        ),
    ] = None,
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
    agent = _build_platform_agent((sys.executable, "-P", "-m", "causerie", "serve", *(words or ())))
    if show:
        typer.echo(agent.content.decode(), nl=False)
        return
    agent.file.parent.mkdir(parents=True, exist_ok=True)
    is_new = not agent.file.exists()
    if not is_new:  # launchd loads a changed file only anew
        _run_manager_commands(agent.stops, fails=False)
    agent.file.write_bytes(agent.content)
    try:
        _run_manager_commands(*agent.starts)
    except CommandFailed:
        if is_new:
            agent.file.unlink()
        raise
    typer.echo(f"Installed {agent.file}.\n{agent.advice}")


@service.command()
def uninstall() -> None:
    """Stop the service, and start it no more.

    **Examples**

    `causerie service uninstall`
    """
    agent = _build_platform_agent(())
    if not agent.file.exists():
        raise CommandFailed(f"nothing is installed: there is no {agent.file}")
    _run_manager_commands(agent.stops, fails=False)
    agent.file.unlink()
    typer.echo(f"Removed {agent.file}.")


class _Agent(NamedTuple):
    """A service definition file of systemd or launchd, and the commands to start and stop it."""

    file: Path
    content: bytes
    starts: Sequence[Sequence[str]]
    stops: Sequence[str]
    advice: str


def _build_platform_agent(command: Sequence[str]) -> _Agent:
    from causerie.settings.environment import config_folder, variables

    if sys.platform == "darwin":
        return _build_launchd_agent(command, Path.home() / "Library", f"gui/{os.getuid()}")
    if sys.platform.startswith("linux"):
        folder = config_folder(variables()).parent / "systemd" / "user"
        return _build_systemd_agent(command, folder)
    words = "this system has neither systemd nor launchd; let its own tools start `causerie serve`"
    raise WrongUsage(words)


def _build_systemd_agent(command: Sequence[str], unit_folder: Path) -> _Agent:
    call = ("systemctl", "--user")
    return _Agent(
        unit_folder / f"{_NAME}.service",
        _UNIT.format(command=" ".join(map(_quote_for_systemd, command))).encode(),
        ((*call, "daemon-reload"), (*call, "enable", _NAME), (*call, "restart", _NAME)),
        (*call, "disable", "--now", _NAME),
        f"Its log: `journalctl --user -u {_NAME}`. "
        "`loginctl enable-linger` starts it at boot, before you log in.",
    )


def _build_launchd_agent(command: Sequence[str], library: Path, domain: str) -> _Agent:
    file, log = library / "LaunchAgents" / f"{_NAME}.plist", library / "Logs" / f"{_NAME}.log"
    agent = {
        "Label": _NAME,
        "ProgramArguments": list(command),
        "WorkingDirectory": str(Path.home()),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "StandardErrorPath": str(log),
    }
    return _Agent(
        file,
        plistlib.dumps(agent),
        (("launchctl", "bootstrap", domain, str(file)),),
        ("launchctl", "bootout", f"{domain}/{_NAME}"),
        f"Its log: {log}",
    )


def _run_manager_commands(*commands: Sequence[str], fails: bool = True) -> None:
    from causerie.engines.child_environment import engine_environment

    environ = engine_environment(["DBUS_SESSION_BUS_ADDRESS"])  # with the folders of the user
    for command in commands:
        try:
            done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
            problem = done.stderr.strip() if done.returncode else ""
        except OSError as error:
            problem = error.strerror or str(error)
        if problem and fails:
            raise CommandFailed(
                f"`{' '.join(command)}` failed: {problem}. Nothing was started; containers and "
                "some WSL have no such manager for users: start `causerie serve` there yourself"
            )


# systemd.service(5), "Command lines".
def _quote_for_systemd(argument: str) -> str:
    for special in ("\\", '"'):
        argument = argument.replace(special, f"\\{special}")
    return '"' + argument.replace("%", "%%").replace("$", "$$").replace("\n", "\\n") + '"'
