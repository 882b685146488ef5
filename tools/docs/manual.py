"""Generate the man page ``src/causerie/cli/causerie.1`` from the commands themselves.

In the macros of man(7). Words of help are Markdown: code becomes bold, all else stays text.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

import causerie
from causerie.cli.exits import ExitCode
from causerie.cli.root import COMMANDS, loaded

_INTRODUCTION = (
    "Serve language models behind the chat completions API: models on this machine, a gateway in "
    "front of providers, or a router over many, with accounts and a console where they are wanted."
)
_CODES = {
    ExitCode.OK: "Done.",
    ExitCode.FAILURE: "Failed: a provider refused, a model did not load, the service broke.",
    ExitCode.USAGE: "The command line itself is wrong.",
    ExitCode.CONFIGURATION: "The configuration is wrong.",
    ExitCode.NETWORK: "Network or weights: no connection, nothing by that name, no space.",
    ExitCode.INTERRUPTED: "Interrupted (Ctrl-C).",
}
_ENVIRONMENT = {
    "CAUSERIE_CONFIG": "The configuration file, where --config names none.",
    "CAUSERIE_API_KEY": "The key that chat, probe and bench send.",
    "CAUSERIE_SECTION_SETTING": "One setting, like CAUSERIE_SERVER_PORT.",
}


def manual() -> str:
    """Return the whole page."""
    lines = [
        rf'.TH CAUSERIE 1 "" "causerie {causerie.__version__}" "User Commands"',
        ".SH NAME",
        rf"causerie \- {_text('chat completions that just work')}",
        ".SH SYNOPSIS",
        r".B causerie",
        r"\fICOMMAND\fR [\fIOPTION\fR...] [\fIARGUMENT\fR...]",
        ".SH DESCRIPTION",
        _text(_INTRODUCTION),
        ".SH COMMANDS",
        *(line for name in COMMANDS for line in _commands(("causerie", name), loaded(name))),
        ".SH EXIT STATUS",
        *(line for code in ExitCode for line in _entry(str(code.value), _CODES[code])),
        ".SH ENVIRONMENT",
        *(line for name, words in _ENVIRONMENT.items() for line in _entry(name, words)),
        ".SH FILES",
        *_entry("./causerie.toml", "The configuration, where neither --config nor a variable is."),
    ]
    return "\n".join(lines) + "\n"


def _commands(words: tuple[str, ...], command: Any) -> Iterator[str]:
    """A command, or all of a group."""
    if hasattr(command, "commands"):
        for name, each in command.commands.items():
            yield from _commands((*words, name), each)
        return
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option"]
    names = " ".join(rf"\fI{_text(_argument(one))}\fR" for one in arguments)
    yield rf".SS \fB{_text(' '.join(words))}\fR [\fIOPTION\fR...] {names}".rstrip()
    yield from _help(command.help or "")
    for one in arguments:
        yield from _entry(_argument(one), one.help or "")
    for one in options:
        yield from _entry(_option(one), one.help or "")


def _argument(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return name if argument.required else f"[{name}]"


def _option(option: Any) -> str:
    names = ", ".join((*option.opts, *option.secondary_opts))
    return names if option.is_flag else f"{names} {option.metavar or option.name.upper()}"


def _help(text: str) -> Iterator[str]:
    """The paragraphs of a command; what stands behind *Examples* keeps its lines."""
    yield ".PP"
    for paragraph in text.strip().split("\n\n"):
        words = " ".join(paragraph.split())
        if words == "**Examples**":
            yield ".PP\nExamples:"
        elif re.fullmatch(r"`[^`]+`", words):
            yield f".PP\n.RS 4\n{_text(words)}\n.RE"
        else:
            yield f".PP\n{_text(words)}"


def _entry(name: str, words: str) -> Iterator[str]:
    yield ".TP"
    yield rf"\fB{_text(name)}\fR"
    yield _text(" ".join(words.split()))


def _text(words: str) -> str:
    """Escape what roff reads as its own, and make code bold."""
    escaped = words.replace("\\", r"\e").replace("-", r"\-")
    escaped = re.sub(r"`([^`]+)`", r"\\fB\1\\fR", escaped)
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped


if __name__ == "__main__":
    sys.stdout.write(manual())
