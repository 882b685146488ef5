"""OpenVINO GenAI as a text engine of ours.

A set of tokens is told as a grammar in the EBNF of xgrammar, the only one that it takes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from string import ascii_letters, digits

from msgspec import structs

from causerie.engines.base import EngineFailed, PromptTooLong, TextRequest, Token
from causerie.engines.grammar_matcher import Admitted, Generation, first_token, request_spelling
from causerie.engines.openvino.process import (
    ARCHITECTURES,
    OpenVinoChild,
    OpenVinoClient,
    OpenVinoOptions,
    for_machine,
    spawn,
)
from causerie.engines.supervised import (
    Files,
    LocalModel,
    Readings,
    SupervisedEngine,
    characters,
    ensure_can_fit,
    folder_model,
    gguf_model,
)
from causerie.engines.weights.errors import WeightsError
from causerie.engines.weights.folder import ModelFolder, read_openvino_folder
from causerie.engines.weights.gguf import Header
from causerie.engines.weights.vocabulary import TokenTable, read_vocabulary

_MOST_EBNF_TEXTS = 100
_PLAIN_IN_EBNF = frozenset(ascii_letters + digits + " ")


def _ebnf_of_texts(texts: Iterable[str], *, ends: bool) -> str:
    options = ['""'] if ends else []
    for text in texts:
        quoted = "".join(one if one in _PLAIN_IN_EBNF else f"\\U{ord(one):08x}" for one in text)
        options.append(f'"{quoted}"')
    return "root ::= " + " | ".join(options)


# Tokenizers number common tokens first. xgrammar admits texts that are in none of the options
# where there are some hundred of them, and takes seconds for all.
def _sayable_in_ebnf(vocabulary: TokenTable, ids: Iterable[int]) -> dict[str, int]:
    control = frozenset(vocabulary.control.values())
    texts: dict[str, int] = {}
    for id in ids:
        if len(texts) == _MOST_EBNF_TEXTS:
            break
        raw = vocabulary.tokens[id]
        if raw and id not in control:
            with suppress(UnicodeDecodeError):
                texts[raw.decode()] = id
    return texts


class OpenVinoEngine(SupervisedEngine[OpenVinoClient]):
    """One GGUF file, or one folder of OpenVINO's own format, run by OpenVINO GenAI on the CPU.

    It follows no grammar of ours: every generation under one goes on here, token by token.
    ``memory`` is what the machine has, in bytes. ``ref`` says where the weights are from, which may
    name the model's family. Making one reads what the weights say of themselves; raises
    :class:`EngineFailed` where that is no model that OpenVINO GenAI runs.
    """

    keeps_grammars = False

    def __init__(
        self,
        model: str,
        weights: Path,
        options: OpenVinoOptions,
        memory: int,
        *,
        ref: str = "",
        load_seconds: float = 600.0,
    ) -> None:
        described: Header | ModelFolder
        read = _openvino_folder if weights.is_dir() else _gguf_file
        described, local = read(weights, ref)
        trained = described.context_length
        recurrent = isinstance(described, ModelFolder) and described.is_recurrent
        launch = for_machine(weights, options, described, trained, memory, recurrent=recurrent)
        super().__init__(
            model,
            local,
            load_seconds,
            slots=launch.parallel,
            memory_bytes=launch.memory,
            context=launch.context,
        )
        self._launch = launch
        self._readings = Readings()
        self._control: re.Pattern[str]  # of the vocabulary, once that is read

    async def _build(self, client: OpenVinoClient) -> str:
        return f"openvino-{client.version}"

    async def tokenize(self, pieces: Sequence[str | int], *, special: bool) -> list[int]:
        """Return the token ids; no beginning-of-text token is added.

        Control tokens are found here: the engine reads each wherever it is written.
        """
        client = self._client()
        vocabulary = await self._vocabulary()
        ensure_can_fit(vocabulary, pieces, self.context)
        parts = list(_split_control(pieces, self._control, vocabulary.control, special=special))
        texts = [part for part in parts if isinstance(part, str)]
        if not texts:
            return [part for part in parts if isinstance(part, int)]
        read = iter(await self._readings.of(characters(texts), lambda: client.encode(texts)))
        found: list[int] = []
        for part in parts:
            ids = [part] if isinstance(part, int) else next(read)
            if len(ids) >= self.context:
                raise PromptTooLong(len(ids), self.context)
            found += ids
        return found

    async def _load(self) -> OpenVinoChild:
        end = (await self._vocabulary()).end
        return await spawn(self._launch, end, self._load_seconds, self._pulse)

    def _read_vocabulary(self) -> TokenTable:
        vocabulary = read_vocabulary(self._local.vocabulary)
        texts = sorted(vocabulary.control, key=len, reverse=True)
        self._control = re.compile("|".join(map(re.escape, texts)) or r"\Z(?!\Z)")
        return vocabulary

    def _run(
        self, client: OpenVinoClient, vocabulary: TokenTable, request: TextRequest
    ) -> Generation:
        return client.complete(request, request_spelling(vocabulary, request))

    async def _sample(
        self,
        client: OpenVinoClient,
        vocabulary: TokenTable,
        request: TextRequest,
        admitted: Admitted,
    ) -> Token:
        ids = list(admitted.ids())
        spelling = request_spelling(vocabulary, request)
        texts = _sayable_in_ebnf(vocabulary, ids) if len(ids) > 1 or admitted.ends else {}
        if not texts and not admitted.ends:
            # The only one, or control tokens and parts of characters: no choice, or none to tell.
            certain = None if request.logprobs is None else 0.0
            return Token(ids[0], spelling(ids[0]), spelling.raw(ids[0]), certain)
        while True:
            ebnf = _ebnf_of_texts(texts, ends=admitted.ends)
            drawn = await first_token(client.complete(request, spelling, ebnf))
            meant = _admitted_token(drawn, {*ids, *vocabulary.end}, vocabulary, texts)
            if meant is not None:
                return meant
            # It does not keep to its grammar: to a smaller one, rather than not at all.
            texts = dict(list(texts.items())[: len(texts) // 2])
            if not texts:
                raise EngineFailed("the engine did not keep to its grammar")


def _gguf_file(weights: Path, ref: str) -> tuple[Header, LocalModel]:
    header, local = gguf_model(weights, ref)
    if header.architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise EngineFailed(
            f"OpenVINO GenAI reads no GGUF file of {header.architecture}, only {known}; "
            'use `engine = "llamacpp"`, or a folder that was converted for OpenVINO'
        )
    return header, local


def _openvino_folder(weights: Path, ref: str) -> tuple[ModelFolder, LocalModel]:
    try:
        folder = read_openvino_folder(weights)
    except (WeightsError, OSError) as error:
        raise EngineFailed(str(error)) from error
    return folder, folder_model(folder, Files(folder.files), ref)


def _admitted_token(
    drawn: Token, admitted: set[int], vocabulary: TokenTable, texts: Mapping[str, int]
) -> Token | None:
    # The grammar also takes a token that is only the beginning of an admitted one.
    if drawn.id in admitted:
        return drawn
    beginning = vocabulary.tokens[drawn.id].decode("utf-8", "replace")
    meant = next((id for text, id in texts.items() if text.startswith(beginning)), None)
    if meant is None:
        return None
    return structs.replace(drawn, id=meant, raw=vocabulary.tokens[meant] if drawn.raw else b"")


def _split_control(
    pieces: Sequence[str | int], control: re.Pattern[str], ids: Mapping[str, int], *, special: bool
) -> Iterator[str | int]:
    # Without `special`, the text of a control token is cut behind its first character, so that it
    # is none.
    for piece in pieces:
        if isinstance(piece, int):
            yield piece
            continue
        at = begin = 0
        while (found := control.search(piece, at)) is not None:
            if special:
                if begin < found.start():
                    yield piece[begin : found.start()]
                yield ids[found.group()]
                at = begin = found.end()
            else:
                yield piece[begin : found.start() + 1]
                at = begin = found.start() + 1
        if begin < len(piece):
            yield piece[begin:]
