"""The image's steps run in order in a clean folder, and what starts the containers is consistent.

No container is built: `RUN` and `COPY` of the first stage and the command of the second one are
what really runs here. The packages of the system and the user of the image are not.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from service import serving

from causerie.settings.load import load

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "deploy" / "compose"
NOT_HERE = ("apt-get", "useradd")
"""First words of steps that change the system."""
UV = str(Path(sys.executable).with_name("uv"))


def steps() -> Iterator[tuple[str, str]]:
    """Yield the instructions of the Dockerfile, each with its arguments."""
    for line in (ROOT / "Dockerfile").read_text().splitlines():
        if line and not line.startswith("#"):
            instruction, _, rest = line.partition(" ")
            yield instruction, rest


def ignored(path: Path) -> bool:
    """Return whether `.dockerignore` keeps a file at the root out of the build."""
    kept = [
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] == "!"
    ]
    return path.name not in kept


class Image:
    """A folder in place of the root of an image."""

    def __init__(self, root: Path) -> None:
        self._root = root
        cache = subprocess.run([UV, "cache", "dir"], capture_output=True, text=True, check=True)
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(root / "home"),
            "UV_CACHE_DIR": cache.stdout.strip(),
        }

    def inside(self, text: str) -> str:
        """Return the text with every folder of the image below this one."""
        return re.sub(
            r"(?<![\w.])/(src|opt|wheels)\b", lambda found: f"{self._root}{found[0]}", text
        )

    def copy(self, arguments: str) -> None:
        *sources, target = shlex.split(self.inside(arguments))
        place = Path(target)
        for source in sources:
            assert not ignored(ROOT / source), f"{source} does not reach the build"
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, place, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                place.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / source, place)

    def run(self, command: str) -> None:
        """Run a command; what the lock names is linked from the cache of uv where it has all of it.

        uv wants every hash as pip does. pip would unpack and compile all of it once more.
        """
        python = f"{shlex.quote(sys.executable)} -m venv"
        command = self.inside(command).replace("python -m venv", python)
        if "--require-hashes" in command:
            program, _, rest = command.partition(" -m pip install ")
            command = (
                f"{shlex.quote(UV)} pip install --offline --python {program} {rest} || {command}"
            )
        subprocess.run(["/bin/sh", "-ec", command], env=self._environment, check=True)


def _answers(command: list[str], port: str) -> bool:
    """Return whether the check of the image's health succeeds for a service at this port."""
    check = [word.replace(":8000", f":{port}") for word in command]
    check[0] = sys.executable
    return subprocess.run(check, capture_output=True).returncode == 0


@pytest.mark.full
@pytest.mark.timeout(900)
def test_the_steps_of_the_image_give_a_service(tmp_path: Path) -> None:
    image = Image(tmp_path)
    for instruction, arguments in steps():
        if instruction == "COPY" and not arguments.startswith("--from"):
            image.copy(arguments)
        if instruction == "RUN" and not arguments.startswith(NOT_HERE):
            image.run(arguments)
    told = dict(steps())
    program = tmp_path / "opt" / "causerie" / "bin" / json.loads(told["ENTRYPOINT"])[0]
    wheels = [path.name for path in (tmp_path / "wheels").iterdir()]
    assert [name.partition("-")[0] for name in wheels] == ["causerie"]
    assert json.loads(told["CMD"])[0] == "serve"
    check = json.loads(told["HEALTHCHECK"].partition("CMD ")[2])
    config = '[[models]]\nid = "m"\nengine = "fake"\n'
    with serving(tmp_path, config, program=[str(program)]) as service:
        port = service.root.rpartition(":")[2]
        assert _answers(check, port)
        with urllib.request.urlopen(f"{service.root}/v1/models") as answer:
            assert answer.status == 200
    assert not _answers(check, port)


def test_no_step_of_the_image_runs_as_root_at_the_end() -> None:
    users = [arguments for instruction, arguments in steps() if instruction == "USER"]
    assert users == ["10001"]


def compose() -> dict[str, Any]:
    found = yaml.safe_load((COMPOSE / "compose.yaml").read_text())
    assert isinstance(found, dict)
    return found


def test_files_that_containers_mount_exist() -> None:
    described = compose()
    for name, service in described["services"].items():
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            known = (
                (COMPOSE / source).exists() if source[0] == "." else source in described["volumes"]
            )
            assert known, (name, volume)
    assert (COMPOSE / described["services"]["causerie"]["build"] / "Dockerfile").exists()


def test_the_example_of_the_environment_names_every_variable() -> None:
    used = set(re.findall(r"\$\{(\w+)", (COMPOSE / "compose.yaml").read_text()))
    named = set(re.findall(r"^(\w+)=", (COMPOSE / "example.env").read_text(), re.MULTILINE))
    assert used == named


def test_the_configuration_is_mounted_as_a_folder_and_variables_of_providers_get_there() -> None:
    """An editor puts a new file in the place of the old one, which a mount of the file keeps."""
    service = compose()["services"]["causerie"]
    [mounted] = [each for each in service["volumes"] if each.startswith("./")]
    source, target, mode = mounted.split(":")
    assert (target, mode) == ("/etc/causerie", "ro")
    assert [each.name for each in (COMPOSE / source).iterdir()] == ["causerie.toml"]
    assert service["env_file"] == [{"path": "providers.env", "required": False}]
    ignored = (ROOT / ".gitignore").read_text().split()
    assert {".env", "providers.env"} <= set(ignored)


def test_the_configuration_of_the_containers_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    service = compose()["services"]["causerie"]
    for name in service["environment"]:
        monkeypatch.setenv(name, "S" * 43 + "=")
    address = service["environment"]["CAUSERIE_STORE_URL"]
    monkeypatch.setenv("CAUSERIE_STORE_URL", re.sub(r"\$\{[^}]*\}", "secret", address))
    monkeypatch.setenv("CAUSERIE_SHARED_URL", service["environment"]["CAUSERIE_SHARED_URL"])
    [mounted] = [each for each in service["volumes"] if each.startswith("./")]
    settings = load(file=COMPOSE / mounted.partition(":")[0] / "causerie.toml").settings
    assert settings.server.keys == "accounts"
    assert float(service["stop_grace_period"].rstrip("s")) > settings.server.drain_seconds


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd here")
    text = (ROOT / "deploy" / "systemd" / "causerie.service").read_text()
    unit = tmp_path / "causerie.service"
    unit.write_text(text.replace("/opt/causerie/bin/causerie", sys.executable))
    told = subprocess.run(
        [program, "verify", "--man=no", str(unit)], capture_output=True, text=True
    )
    assert (told.returncode, told.stderr) == (0, "")
