"""Lines of a chat that are for the program, not for the model: ``/help``, ``/model`` and others."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from causerie.cli.conversation import Conversation
from causerie.cli.images import NoImage, data_address, takes_images

_COMMAND = re.compile(r"/([a-z]+)(?:\s+(.*))?", re.DOTALL)
_HELP = """\
/model [NAME]   use another model; without a name: list them
/system [TEXT]  set the system message; without a text: leave it out
/image FILE     send a picture with the next message
/clear          forget the conversation, also /new
/save FILE      write the conversation to a new file, as Markdown
/exit           leave, also /quit, /bye or Ctrl-D
A line that ends in \\ goes on in the next one; \"\"\" opens and closes several.
Ctrl-C stops an answer."""


class ChatCommands:
    """Commands on a conversation; ``models`` lists what the provider says of each, by id."""

    def __init__(
        self, conversation: Conversation, models: Callable[[], Mapping[str, Mapping[str, Any]]]
    ) -> None:
        self._conversation = conversation
        self._models = models

    def said(self, line: str) -> str | None:
        """Return what a command has to say, or ``None`` if the line is for the model.

        Only a first word of letters is a command, so that a path can be talked about.
        """
        found = _COMMAND.fullmatch(line)
        if found is None:
            return None
        name, rest = found[1], (found[2] or "").strip()
        match name:
            case "help":
                return _HELP
            case "clear" | "new":
                self._conversation.clear()
                return "the conversation is forgotten"
            case "system":
                self._conversation.instruct(rest or None)
                return "the system message is set" if rest else "there is no system message"
            case "model":
                return self._model(rest)
            case "image":
                return self._image(rest)
            case "save":
                return self._save(rest)
        return f"there is no /{name}; /help lists what there is"

    def _model(self, name: str) -> str:
        listed = self._models()
        own = self._conversation.model
        if name:
            if not any(name == one or _begins(one, name) for one in listed):
                return f"there is no model {name}, so {own} stays; /model lists the others"
            self._conversation.use(name)
            return f"{name} is asked from now on"
        return "\n".join(f"{'*' if one == own else ' '} {one}" for one in listed)

    def _image(self, file: str) -> str:
        if not file:
            return "/image needs the name of a file"
        model = self._conversation.model
        if takes_images(self._models().get(model)) is False:
            return f"{model} takes no pictures"
        try:
            self._conversation.attach(data_address(Path(file).expanduser()))
        except NoImage as error:
            return str(error)
        return f"{file} goes with the next message"

    def _save(self, file: str) -> str:
        if not file:
            return "/save needs the name of a file"
        try:
            with Path(file).expanduser().open("x", encoding="utf-8") as out:
                out.write(self._conversation.markdown())
        except OSError as error:
            return f"{file}: {error.strerror}"
        return f"written to {file}"


def _begins(wildcard: str, name: str) -> bool:
    return wildcard.endswith("*") and name.startswith(wildcard[:-1])
