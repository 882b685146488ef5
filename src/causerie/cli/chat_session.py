"""A chat at the terminal: questions, answers, tool results, and lines like ``/model``.

Ctrl-C stops the answer and not the program: each answer runs in its own task on one runner,
which an interrupt cancels. The conversation itself knows nothing of terminals: it emits events and
keeps the history, also of an answer that was stopped half-way."""

from __future__ import annotations

import asyncio
import base64
import re
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from rich.console import Console

from causerie.cli.chat_terminal import CHAT_THEME, AnswerView, Keyboard
from causerie.cli.command import HERE, CommandFailed, ExitCode, WrongUsage, printable
from causerie.cli.services import services
from causerie.errors import ServiceError
from causerie.http.client import HttpClient, Reach
from causerie.http.client_connection import TransportFailed
from causerie.protocol.events import (
    Event,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)
from causerie.protocol.parameters import ParsingRules
from causerie.protocol.request import ChatRequest
from causerie.providers.dialects import GENERIC
from causerie.providers.provider import Deadlines, Provider
from causerie.providers.target import ProviderTarget
from causerie.settings.environment import CLIENT_KEY, no_colour, state_folder, variables
from causerie.settings.problems import SettingsError
from causerie.shapes.chat_completions.reader import parse

_RULES = ParsingRules()
_ANY_QUESTION = {"role": "user", "content": "?"}


@dataclass(slots=True)
class ChatAnswer:
    """The received part of an answer."""

    reasoning: str = ""
    text: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)  # as a message has them

    def take(self, event: Event) -> None:
        match event:
            case ReasoningDelta(text=text):
                self.reasoning += text
            case TextDelta(text=text):
                self.text += text
            case ToolCallStarted(id=id_, name=name):
                function = {"name": name, "arguments": ""}
                self.calls.append({"id": id_, "type": "function", "function": function})
            case ToolCallDelta(index=index, arguments=arguments) if index < len(self.calls):
                self.calls[index]["function"]["arguments"] += arguments
            case _:
                pass

    def message(self) -> dict[str, object]:
        """Return the assistant message to send back, reasoning unchanged."""
        message: dict[str, object] = {"role": "assistant", "content": self.text}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.calls:
            message["tool_calls"] = self.calls
        return message


@dataclass(eq=False)
class Conversation:
    """The messages of a chat, and the fields that every request carries."""

    _build_target_at_endpoint: Callable[[str], ProviderTarget]
    model: str
    fields: dict[str, object]
    _system_prompt: str | None = None

    def __post_init__(self) -> None:
        self.clear()

    def instruct(self, system: str | None) -> None:
        said = self.messages[1:] if self._system_prompt else self.messages
        self._system_prompt = system
        self.clear()
        self.messages += said

    def markdown(self) -> str:
        """Return the conversation as Markdown, each text below its role."""
        lines = []
        for message in self.messages:
            content = message.get("content")
            if isinstance(content, list):
                content = "\n\n".join(part.get("text", "(a picture)") for part in content)
            if content:
                lines.append(f"## {message['role']}\n\n{content}\n")
        return "\n".join(lines)

    def clear(self) -> None:
        self.images: list[str] = []  # of the next message
        self.messages: list[dict[str, object]] = []
        if self._system_prompt:
            self.messages.append({"role": "system", "content": self._system_prompt})

    def load(self, messages: Sequence[Mapping[str, object]]) -> None:
        """Replace the conversation by these messages; raise ``ServiceError`` for invalid ones."""
        _ = self._build_chat_request([*messages, _ANY_QUESTION])
        first = messages[0] if messages else {}
        self._system_prompt = str(first.get("content")) if first.get("role") == "system" else None
        self.images, self.messages = [], [dict(message) for message in messages]

    def set(self, values: Mapping[str, object]) -> None:
        """Add fields to every request, or drop those of ``None``; raise ``ServiceError``."""
        changed = {**self.fields, **values}
        fields = {name: value for name, value in changed.items() if value is not None}
        before, self.fields = self.fields, fields
        try:
            _ = self._build_chat_request([_ANY_QUESTION])
        except ServiceError:
            self.fields = before
            raise

    def undo(self) -> object:
        """Drop the last question and all behind it; return its content, ``None`` without any."""
        for index in reversed(range(len(self.messages))):
            if self.messages[index]["role"] == "user":
                content = self.messages[index]["content"]
                del self.messages[index:]
                return content
        return None

    def _build_chat_request(self, messages: Sequence[Mapping[str, object]]) -> ChatRequest:
        body = {**self.fields, "model": self.model, "messages": messages, "stream": True}
        return parse(msgspec.json.encode(body), _RULES)

    def say(self, text: str) -> None:
        self.messages.append(self.question(text))

    def question(self, text: str) -> dict[str, object]:
        """Return a user message of the attached pictures and a text, and detach the pictures."""
        content: object = text
        if self.images:
            parts = [{"type": "image_url", "image_url": {"url": each}} for each in self.images]
            content, self.images = [*parts, {"type": "text", "text": text}], []
        return {"role": "user", "content": content}

    async def answer(self, into: ChatAnswer) -> AsyncGenerator[Event, None]:
        """Yield the events of an answer and keep its pieces in ``into``; raise ``ServiceError``.

        A complete answer joins the history. One that is stopped or breaks
        joins by :meth:`keep`, if the caller wants it to.
        """
        request = self._build_chat_request(self.messages)
        async with self._build_target_at_endpoint(self.model).generate(request) as reply:
            async for batch in reply.events:
                for event in batch:
                    into.take(event)
                    yield event
        self.keep(into)

    def keep(self, answer: ChatAnswer) -> None:
        if answer.text or answer.calls:
            self.messages.append(answer.message())


_VERSION = re.compile(r"/v\d\w*/?$", re.ASCII)


@contextmanager
def explain_failures(base_url: str) -> Iterator[None]:
    """Raise failures of a provider as :class:`CommandFailed`, with advice."""
    try:
        yield
    except ServiceError as error:
        if isinstance(error.__cause__, TransportFailed):
            advised = ""
            if base_url == HERE:
                running = [one for one in services() if one.key is None]
                advised = "; start a service with `causerie serve`"
                if running:
                    advised = f"; a service runs at {running[0].base_url}"
            why = f"{base_url} cannot be reached: {error.__cause__}{advised}"
            raise CommandFailed(why, ExitCode.NETWORK) from error
        status = error.metadata.get("upstream_status")
        said = f" (status {status}{advice(status, base_url)})" if status is not None else ""
        raise CommandFailed(f"{error.message}{said}") from error


def provider_at(base_url: str, key: str | None) -> Provider:
    """Return the provider at a base URL. Raises :class:`CommandFailed` for an invalid URL."""
    try:
        client = HttpClient(base_url, Reach(connect_seconds=10))
    except ValueError as error:
        raise WrongUsage(f"{base_url} is not an address: {error}") from error
    day = 24 * 3600.0  # a person ends what takes too long
    deadlines = Deadlines(first_token=day, between_chunks=day, total=day)
    provider = Provider("endpoint", client, GENERIC, credential=key, deadlines=deadlines)
    provider.candid = True
    return provider


def advice(status: object, base_url: str) -> str:
    """Return advice on an HTTP status, to be put after it, or an empty text."""
    if status == HTTPStatus.UNAUTHORIZED:
        return f", set {CLIENT_KEY}"
    if status == HTTPStatus.NOT_FOUND and not _VERSION.search(base_url):
        return f"; is the address {base_url.rstrip('/')}/v1?"
    return ""


# The session at the terminal.


class Endpoint(NamedTuple):
    """Address, key and model of a chat; without a model, the first that is listed answers."""

    base_url: str
    key: str | None
    model: str | None


def talk(
    question: str | None,
    find: Callable[[], Endpoint],
    *,
    thinking: bool | None,
    system: str | None,
    tools: Path | None = None,
    plain: bool,
    own: bool = False,
) -> None:
    """Chat with the model of the endpoint that ``find`` returns, or ask it the ``question``.

    ``own``: a service of this program has it, which tells reasoning apart itself, and which
    ``find`` starts anew where it has ended.
    """
    fields: dict[str, object] = {}
    if thinking is not None:
        fields["chat_template_kwargs"] = {"enable_thinking": thinking}
    if tools is not None:
        try:
            fields["tools"] = msgspec.json.decode(tools.read_bytes(), type=list[object])
        except (OSError, msgspec.MsgspecError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            words = f"{tools}: {why}; a JSON array of tool definitions is needed"
            raise WrongUsage(words) from error
    with asyncio.Runner() as runner, closing(_ChatSession(runner, find, plain, own)) as session:
        session.begin(fields, system or None)
        if question is not None:
            session.once(question)
        else:
            session.at_length()


@dataclass(eq=False)
class _ChatSession:
    _runner: asyncio.Runner
    _find_endpoint: Callable[[], Endpoint]
    _shows_source: bool
    _is_own_service: bool

    def __post_init__(self) -> None:
        self._set_endpoint_and_provider()
        colours: Literal["auto"] | None = None if no_colour() else "auto"
        self._console = Console(highlight=False, color_system=colours, theme=CHAT_THEME)
        self._stderr_console = Console(stderr=True, highlight=False, color_system=colours)

    def _set_endpoint_and_provider(self) -> None:
        self._endpoint = self._find_endpoint()
        self._provider_at_url = provider_at(self._endpoint.base_url, self._endpoint.key)

    def begin(self, fields: dict[str, object], system: str | None) -> None:
        """Create the conversation with the named model, or with the first one that is listed.

        Raises :class:`CommandFailed`."""
        name = self._endpoint.model or next(iter(self._fetch_models_by_id()), None)
        if name is None:
            raise CommandFailed(f"{self._endpoint.base_url} lists no models; name one with --model")
        self._conversation = Conversation(self._build_target_at_endpoint, name, fields, system)

    def _build_target_at_endpoint(self, model_id: str) -> ProviderTarget:
        if self._is_own_service:
            return ProviderTarget(self._provider_at_url, model_id)
        from causerie.chat.parser import Separation  # a quarter of all imports

        separators = Separation(self._provider_at_url.dialect.tag)
        return ProviderTarget(self._provider_at_url, model_id, separators=separators)

    def close(self) -> None:
        self._runner.run(self._provider_at_url.close())

    @cached_property
    def _line_reader(self) -> Keyboard:
        history = None
        with suppress(SettingsError):
            history = state_folder(variables()) / "chat_history"
        return Keyboard(self._console, history)

    def once(self, question: str) -> None:
        self._conversation.say(question)
        view = AnswerView(self._console, self._stderr_console, plain=self._shows_source)
        try:
            self._stream_or_restart_service(view, ChatAnswer())
        finally:
            view.end()

    def at_length(self) -> None:
        title = printable(f"{self._conversation.model} at {self._endpoint.base_url}")
        words = f"{title} · Ctrl-D leaves, /help lists more"
        self._console.print(words, style="dim", markup=False)
        commands = ChatCommands(self._conversation, self._fetch_models_by_id)
        while (line := self._line_reader.question()) is not None:
            if line in ("/exit", "/quit", "/bye"):
                return
            if line == "/retry" and (content := self._conversation.undo()) is not None:
                self._ask_or_drop({"role": "user", "content": content})
                continue
            if (reply := commands.reply_to(line)) is not None:
                self._console.print(printable(reply), style="dim", markup=False, soft_wrap=True)
            elif line:
                self._ask_or_drop(self._conversation.question(line))

    def _fetch_models_by_id(self) -> dict[str, dict[str, Any]]:
        async def listed() -> dict[str, dict[str, Any]]:
            with explain_failures(self._endpoint.base_url):
                return {str(entry["id"]): entry for entry in await self._provider_at_url.listing()}

        return self._runner.run(listed())

    # What gets no answer leaves the conversation.
    def _ask_or_drop(self, user_message: dict[str, object]) -> None:
        messages = self._conversation.messages
        mark = len(messages)
        messages.append(user_message)
        if not self._ask_with_typed_tool_results():
            del messages[mark:]

    # Return whether what was said stays in the conversation.
    def _ask_with_typed_tool_results(self) -> bool:
        while True:
            answer = ChatAnswer()
            view = AnswerView(self._console, self._stderr_console, plain=self._shows_source)
            try:
                self._stream_or_restart_service(view, answer)
            except KeyboardInterrupt:
                view.stopped()
                self._conversation.keep(ChatAnswer(answer.reasoning, answer.text))
                return bool(answer.text)  # its incomplete calls are dropped
            except CommandFailed as error:
                view.end()
                self._stderr_console.print(f"causerie: {printable(str(error))}", markup=False)
                return False
            if not answer.calls:
                return True
            for call in answer.calls:
                text = self._line_reader.line(f"result of {printable(call['function']['name'])}: ")
                if text is None:
                    return False
                result = {"role": "tool", "tool_call_id": call["id"], "content": text}
                self._conversation.messages.append(result)

    # A service of this program may have ended since the last question: then another one is asked.
    def _stream_or_restart_service(self, view: AnswerView, answer: ChatAnswer) -> None:
        try:
            self._runner.run(self._stream_into_view(view, answer))
        except CommandFailed as error:
            is_gone = error.code is ExitCode.NETWORK and answer == ChatAnswer()
            if not (self._is_own_service and is_gone):
                raise
            view.end()
            self._stderr_console.print("causerie: the service has ended, so it is started anew")
            before, ended = self._endpoint.model, self._provider_at_url
            self._set_endpoint_and_provider()
            self._runner.run(ended.close())
            if self._conversation.model == before and self._endpoint.model:
                self._conversation.model = self._endpoint.model
            self._runner.run(self._stream_into_view(view, answer))

    async def _stream_into_view(self, view: AnswerView, answer: ChatAnswer) -> None:
        began = time.monotonic()
        first: float | None = None
        usage: Usage | None = None
        with explain_failures(self._endpoint.base_url):
            async with aclosing(self._conversation.answer(answer)) as events:
                async for event in events:
                    if first is None:
                        first = time.monotonic() - began
                    if isinstance(event, Usage):
                        usage = event
                    view.show(event)
        view.end()
        view.summary(usage, time.monotonic() - began, first)


_COMMAND = re.compile(r"/([a-z]+)(?:\s+(.*))?", re.DOTALL)
_HELP = """\
/model [NAME]   use another model; without a name: list them
/system [TEXT]  set the system message; without a text: leave it out
/set NAME VALUE send a parameter like `temperature`; without a value: leave it out
/think [HOW]    turn thinking `on` or `off`, or to an effort like `low`; alone: as the model does
/image FILE     send a picture with the next message
/retry          ask the last question again
/undo           forget the last question and its answer
/clear          forget the conversation, also /new
/save FILE      write the conversation to a new file, as Markdown, or for /load as FILE.json
/load FILE      go on with a conversation that was saved as FILE.json
/exit           leave, also /quit, /bye or Ctrl-D
A line that ends in \\ goes on in the next one; \"\"\" opens and closes several.
Ctrl-C stops an answer."""


@dataclass(eq=False)
class ChatCommands:
    """Carries out the lines of a chat that are commands, like ``/model``."""

    _conversation: Conversation
    _fetch_models_by_id: Callable[[], Mapping[str, Mapping[str, Any]]]  # entries by id

    def reply_to(self, line: str) -> str | None:
        """Run a line that is a command; return its reply, or ``None`` for a line to the model.

        Only a first word of letters is a command, so that a path can be talked about.
        """
        found = _COMMAND.fullmatch(line)
        if found is None:
            return None
        name, rest = found[1], (found[2] or "").strip()
        if name in ("image", "load", "save") and not rest:
            return f"/{name} needs the name of a file"
        try:
            return self._run_slash_command_and_get_reply(name, rest)
        except ServiceError as error:
            return error.message
        except CommandFailed as error:
            return str(error)
        except OSError as error:
            return f"{rest}: {error.strerror}"

    def _run_slash_command_and_get_reply(self, command: str, argument: str) -> str:
        match command:
            case "help":
                return _HELP
            case "clear" | "new":
                self._conversation.clear()
                return "the conversation is forgotten"
            case "system":
                self._conversation.instruct(argument or None)
                return "the system message is set" if argument else "there is no system message"
            case "retry":
                return "there is no question to ask again"
            case "undo":
                undone = self._conversation.undo() is not None
                return "the last question is forgotten" if undone else "there is nothing to forget"
            case "image" | "load" | "model" | "save" | "set" | "think":
                reply: str = getattr(self, f"_run_{command}_command")(argument)
                return reply
        return f"there is no /{command}; /help lists what there is"

    def _run_set_command(self, name_and_value: str) -> str:
        name, _, text = name_and_value.removeprefix("parameter ").strip().partition(" ")
        fields, model, value = self._conversation.fields, self._conversation.model, text.strip()
        if not name:
            return "\n".join(f"{each} {fields[each]}" for each in fields) or "nothing is set"
        if not value:
            self._conversation.set({name: None})
            return f"{name} is left out"
        try:
            self._conversation.set({name: msgspec.json.decode(value)})
        except msgspec.DecodeError:
            self._conversation.set({name: value})
        doubt = ""
        with suppress(CommandFailed):
            listed = self._fetch_models_by_id().get(model, {}).get("supported_parameters")
            if isinstance(listed, list) and name not in listed:  # one without a list takes anything
                doubt = f", but {model} does not list it"
        return f"{name} is {value}{doubt}"

    def _run_think_command(self, level: str) -> str:
        switch = {"on": True, "off": False}.get(level)
        kwargs = {"enable_thinking": switch} if switch is not None else None
        effort = level if level and switch is None else None
        self._conversation.set({"chat_template_kwargs": kwargs, "reasoning_effort": effort})
        return f"thinking is {level or 'as the model does'}"

    def _run_load_command(self, file: str) -> str:
        saved = Path(file).expanduser().read_bytes()
        try:
            self._conversation.load(msgspec.json.decode(saved, type=list[dict[str, Any]]))
        except msgspec.MsgspecError:
            return f"{file} is no conversation; `/save NAME.json` writes one"
        return f"{file} goes on"

    def _run_model_command(self, model_id: str) -> str:
        listed = self._fetch_models_by_id()
        own = self._conversation.model
        if model_id:
            if model_id not in listed and not any(
                one.endswith("*") and model_id.startswith(one[:-1]) for one in listed
            ):
                return f"there is no model {model_id}, so {own} stays; /model lists the others"
            self._conversation.model = model_id
            return f"{model_id} is asked from now on"
        return "\n".join(f"{'*' if one == own else ' '} {one}" for one in listed)

    def _run_image_command(self, file: str) -> str:
        from causerie.chat.images import MOST_BYTES, format_of_image

        model = self._conversation.model
        match self._fetch_models_by_id().get(model):
            case {"architecture": {"evidence": "unknown"}}:
                pass
            case {"architecture": {"input_modalities": list(inputs)}} if "image" not in inputs:
                return f"{model} takes no pictures"
        with Path(file).expanduser().open("rb") as opened:
            content = opened.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            return f"{file} has more than {MOST_BYTES // 2**20} MiB"
        name = format_of_image(content)
        if name is None:
            return f"{file} is no PNG, JPEG, GIF or WebP"
        url = f"data:image/{name.lower()};base64,{base64.b64encode(content).decode()}"
        self._conversation.images.append(url)
        return f"{file} goes with the next message"

    def _run_save_command(self, file: str) -> str:
        saved = self._conversation
        text = saved.markdown()
        if file.endswith(".json"):
            text = msgspec.json.encode(saved.messages).decode()
        with Path(file).expanduser().open("x", encoding="utf-8") as out:
            out.write(text)
        return f"written to {file}"
