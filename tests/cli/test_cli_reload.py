"""``causerie reload`` against services in processes of their own."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from service import serving
from typer.testing import CliRunner

from causerie.cli.root import app

CONFIG = '[[models]]\nid = "a"\nengine = "fake"\n'


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="c") as short:
        monkeypatch.setenv("XDG_RUNTIME_DIR", short)
        yield Path(short)


def test_nobody_to_ask() -> None:
    result = CliRunner().invoke(app, ["reload"])
    assert result.exit_code == 1
    assert result.stderr == (
        "causerie: no service of this user is running; start it by `causerie serve`\n"
    )


CATALOG = """\
[[doors]]
name = "router"
kind = "router"
keys = "off"
[[catalog]]
id = "a/b"
[[catalog.endpoints]]
model = "a"
"""


def test_the_answer_comes_back(tmp_path: Path) -> None:
    file = tmp_path / "causerie.toml"
    with serving(tmp_path, CONFIG) as service:
        file.write_text(CONFIG + '[[models]]\nid = "b"\nengine = "fake"\n')
        result = CliRunner().invoke(app, ["reload"])
        assert (result.exit_code, result.stdout) == (0, "Reloaded: 3 doors, 2 models.\n")
        file.write_text(f"{CONFIG}{CATALOG}")
        result = CliRunner().invoke(app, ["reload"])
        assert result.stdout.endswith(" 1 model, 1 entry of the catalog.\n"), result.stdout
        file.write_text(CONFIG + "[[doors]]\nnam = 1\n")
        result = CliRunner().invoke(app, ["reload", "-c", str(file)])
        assert (result.exit_code, result.stdout) == (3, "")
        assert result.stderr == (
            "causerie: nothing has changed:\n"
            f"{file}:5: doors[0].nam: is not a setting; did you mean `name`?\n"
            f"{file}:4: doors[0].name: is missing; it takes a lower-case name of letters, "
            "digits and `-`\n"
        )
        assert "configuration not reloaded, nothing has changed" in service.log.read_text()
        link = tmp_path / "link.toml"
        link.symlink_to(file)
        for same in (link, tmp_path / "gone" / ".." / file.name):
            result = CliRunner().invoke(app, ["reload", "-c", str(same)])
            assert result.exit_code == 3, result.stderr
        file.write_text("[logging]\nlevel = 'warning'\n" + CONFIG)
        result = CliRunner().invoke(app, ["reload", "--pid", str(service.process.pid)])
        assert result.exit_code == 0
        assert result.stderr == (
            "causerie: logging.level stays info until the service is started again; the "
            "configuration says warning\n"
        )


def test_several_services_are_told_apart(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    with serving(folders[0], CONFIG) as first, serving(folders[1], CONFIG) as second:
        result = CliRunner().invoke(app, ["reload"])
        assert result.exit_code == 2
        assert "several services are running; say which:\n" in result.stderr
        for folder, service in zip(folders, (first, second), strict=True):
            assert f"--pid {service.process.pid} " in result.stderr
            chosen = ["reload", "--config", str(folder / "causerie.toml")]
            assert CliRunner().invoke(app, chosen).exit_code == 0
        result = CliRunner().invoke(app, ["reload", "--pid", str(os.getpid())])
        assert result.exit_code == 2
        assert f"no running service has the id {os.getpid()}; there are:\n" in result.stderr


def test_a_service_that_hangs_does_not_keep_another_from_being_told(
    tmp_path: Path, runtime: Path
) -> None:
    with serving(tmp_path, CONFIG) as service, socket.socket(socket.AF_UNIX) as hanging:
        hanging.bind(str(runtime / "causerie" / "1.sock"))
        hanging.listen()
        result = CliRunner().invoke(app, ["reload", "--pid", str(service.process.pid)])
        assert result.exit_code == 0, result.stderr
