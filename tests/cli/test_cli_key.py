"""``causerie key``: what it prints fits together and into the configuration."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from typer.testing import CliRunner

from causerie.cli.keys import digest_line, new_key
from causerie.cli.root import app
from causerie.settings.load import load


def test_a_new_key_and_its_digest(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["key"])
    assert result.exit_code == 0
    key, digest = re.fullmatch(
        r'key:    (ck_\w{8}_\w{43})\ndigest: "(.*)"\n', result.stdout
    ).groups()
    public = key.split("_")[1]
    assert digest == f"ck_{public}:{hashlib.sha256(key.encode()).hexdigest()}"
    file = tmp_path / "causerie.toml"
    file.write_text(f'[server]\nkeys = ["{digest}"]\n', encoding="utf-8")
    assert load(file=file, environ={}).settings.doors[0].keys == (digest,)


def test_keys_differ() -> None:
    assert len({new_key() for _ in range(100)}) == 100


def test_the_digest_of_a_key_one_has() -> None:
    made = new_key()
    result = CliRunner().invoke(app, ["key", "--digest"], input=made + "\n")
    assert result.stdout == digest_line(made) + "\n"
    assert result.exit_code == 0


def test_a_key_from_elsewhere_has_a_plain_digest() -> None:
    assert digest_line("sk-anything") == hashlib.sha256(b"sk-anything").hexdigest()


def test_no_key_on_stdin() -> None:
    result = CliRunner().invoke(app, ["key", "--digest"], input="")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "causerie: --digest reads a key from stdin, and there was none\n"
