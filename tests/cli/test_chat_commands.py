"""Lines of a chat that are for the program."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from causerie.cli.chat_session import ChatAnswer, ChatCommands, Conversation, explain_failures
from causerie.cli.command import HERE, CommandFailed
from causerie.cli.services import Service
from causerie.composition.control import ControlSocket, ServiceFacts
from causerie.errors import ServiceError
from causerie.http.client_connection import TransportFailed

BLIND = {"architecture": {"input_modalities": ["text"]}, "supported_parameters": ["seed"]}
PNG = b"\x89PNG\r\n\x1a\n and more"


@pytest.fixture
def conversation() -> Conversation:
    """A question, an answer, and no provider that could be asked for more."""
    made = Conversation(lambda model: cast(Any, SimpleNamespace(model=model)), "m-1", {}, "Brief.")
    made.say("Why?")
    made.keep(ChatAnswer("Hm.", "Because."))
    return made


@pytest.fixture
def commands(conversation: Conversation) -> ChatCommands:
    return ChatCommands(conversation, lambda: {"m-1": {}, "m-2": BLIND})


def roles(conversation: Conversation) -> list[object]:
    return [message["role"] for message in conversation.messages]


@pytest.mark.parametrize("line", ["Why?", "/etc/passwd is what?", "/", "/2 + 1", " /help"])
def test_other_lines_are_for_the_model(commands: ChatCommands, line: str) -> None:
    assert commands.reply_to(line) is None


def test_a_command_that_does_not_exist_is_not_sent(commands: ChatCommands) -> None:
    assert "/help" in str(commands.reply_to("/sytem Be brief."))


def test_help_names_every_command(commands: ChatCommands) -> None:
    told = str(commands.reply_to("/help"))
    names = ("/model", "/system", "/set", "/think", "/retry", "/undo", "/clear", "/save", "/load")
    assert all(name in told for name in (*names, "/exit"))


def test_another_model_goes_on_with_the_conversation(
    commands: ChatCommands, conversation: Conversation
) -> None:
    assert commands.reply_to("/model") == "* m-1\n  m-2"
    commands.reply_to("/model m-2")
    assert commands.reply_to("/model") == "  m-1\n* m-2"
    assert commands.reply_to("/model m-3") == (
        "there is no model m-3, so m-2 stays; /model lists the others"
    )
    assert commands.reply_to("/model") == "  m-1\n* m-2"
    assert commands.reply_to("/model m-2") == "m-2 is asked from now on"
    assert roles(conversation) == ["system", "user", "assistant"]


def test_the_system_message_changes_alone(
    commands: ChatCommands, conversation: Conversation
) -> None:
    commands.reply_to("/system Be\nlong.")
    assert conversation.messages[0]["content"] == "Be\nlong."
    commands.reply_to("/system")
    assert roles(conversation) == ["user", "assistant"]
    commands.reply_to("/system Again.")
    assert roles(conversation) == ["system", "user", "assistant"]
    commands.reply_to("/clear")
    assert roles(conversation) == ["system"]


def test_a_conversation_is_saved_once(commands: ChatCommands, tmp_path: Path) -> None:
    file = tmp_path / "talk.md"
    assert commands.reply_to(f"/save {file}") == f"written to {file}"
    text = "## system\n\nBrief.\n\n## user\n\nWhy?\n\n## assistant\n\nBecause.\n"
    assert file.read_text(encoding="utf-8") == text
    assert "exists" in str(commands.reply_to(f"/save {file}"))
    assert "needs the name" in str(commands.reply_to("/save"))


def test_a_saved_conversation_goes_on(
    commands: ChatCommands, conversation: Conversation, tmp_path: Path
) -> None:
    before, file = list(conversation.messages), tmp_path / "talk.json"
    commands.reply_to(f"/save {file}")
    commands.reply_to("/system")
    commands.reply_to("/clear")
    assert conversation.messages == []
    assert commands.reply_to(f"/load {file}") == f"{file} goes on"
    assert conversation.messages == before
    commands.reply_to("/system")
    assert roles(conversation) == ["user", "assistant"]
    (tmp_path / "no.json").write_text("[1]")
    assert "`/save NAME.json` writes one" in str(commands.reply_to(f"/load {tmp_path}/no.json"))
    (tmp_path / "bad.json").write_text('[{"role": "nobody", "content": "x"}]')
    assert "role" in str(commands.reply_to(f"/load {tmp_path}/bad.json"))
    assert "No such file" in str(commands.reply_to(f"/load {tmp_path}/none.json"))
    assert roles(conversation) == ["user", "assistant"]


def test_the_last_question_is_taken_back(
    commands: ChatCommands, conversation: Conversation
) -> None:
    assert commands.reply_to("/undo") == "the last question is forgotten"
    assert roles(conversation) == ["system"]
    assert commands.reply_to("/undo") == "there is nothing to forget"
    assert commands.reply_to("/retry") == "there is no question to ask again"


def test_parameters_are_set_for_the_next_requests(
    commands: ChatCommands, conversation: Conversation
) -> None:
    assert commands.reply_to("/set") == "nothing is set"
    assert commands.reply_to("/set temperature 0.2") == "temperature is 0.2"
    assert commands.reply_to("/set parameter seed 7") == "seed is 7"
    assert commands.reply_to("/set stop END") == "stop is END"
    assert conversation.fields == {"temperature": 0.2, "seed": 7, "stop": "END"}
    assert "temperature" in str(commands.reply_to("/set temperature warm"))
    assert commands.reply_to("/set seed") == "seed is left out"
    assert commands.reply_to("/set stop") == "stop is left out"
    assert commands.reply_to("/set") == "temperature 0.2"
    commands.reply_to("/model m-2")
    assert commands.reply_to("/set seed 1") == "seed is 1"
    assert commands.reply_to("/set sed 1") == "sed is 1, but m-2 does not list it"


def test_thinking_is_chosen_in_the_conversation(
    commands: ChatCommands, conversation: Conversation
) -> None:
    for how, fields in (
        ("off", {"chat_template_kwargs": {"enable_thinking": False}}),
        ("low", {"reasoning_effort": "low"}),
        ("", {}),
    ):
        assert commands.reply_to(f"/think {how}") == f"thinking is {how or 'as the model does'}"
        assert conversation.fields == fields
    assert "reasoning_effort" in str(commands.reply_to("/think hard"))
    assert conversation.fields == {}


@pytest.mark.parametrize(
    ("address", "runs", "advice"),
    [
        (HERE, False, "; start a service with `causerie serve`"),
        (HERE, True, "; a service runs at http://127.0.0.1:8421/v1"),
        ("http://gpu:8000/v1", True, ""),
    ],
)
def test_where_nothing_answers_a_service_is_named_or_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, runs: bool, advice: str
) -> None:
    (tmp_path / "2.key").write_text("of a service that `causerie run` started")
    facts = ServiceFacts(1, None, "0.0.0.0:8421")
    kept, other = (Service(ControlSocket(tmp_path / f"{n}.sock", n), facts) for n in (2, 1))
    found = [kept, other] if runs else [kept]
    monkeypatch.setattr("causerie.cli.chat_session.services", lambda: found)
    with pytest.raises(CommandFailed) as failed, explain_failures(address):
        raise ServiceError("It failed.") from TransportFailed("refused", "no answer", sent=False)
    assert str(failed.value) == f"{address} cannot be reached: no answer{advice}"


def test_a_picture_goes_with_the_next_message(
    commands: ChatCommands, conversation: Conversation, tmp_path: Path
) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    assert str(commands.reply_to(f"/image {tmp_path}/a.png")).endswith("goes with the next message")
    conversation.say("What is it?")
    conversation.say("And now?")
    picture, text = cast(list[dict[str, Any]], conversation.messages[-2]["content"])
    assert picture["image_url"]["url"] == "data:image/png;base64,iVBORw0KGgogYW5kIG1vcmU="
    assert text == {"type": "text", "text": "What is it?"}
    assert conversation.messages[-1]["content"] == "And now?"
    assert "(a picture)\n\nWhat is it?" in conversation.markdown()


def test_a_picture_that_cannot_be_sent(
    commands: ChatCommands, conversation: Conversation, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("RIFF?")
    for file, said in (("a.txt", "no PNG, JPEG, GIF or WebP"), ("b.png", "No such file")):
        assert said in str(commands.reply_to(f"/image {tmp_path}/{file}"))
    assert commands.reply_to("/image") == "/image needs the name of a file"
    commands.reply_to("/model m-2")
    (tmp_path / "a.png").write_bytes(PNG)
    assert commands.reply_to(f"/image {tmp_path}/a.png") == "m-2 takes no pictures"
    conversation.say("Why?")
    assert conversation.messages[-1]["content"] == "Why?"
