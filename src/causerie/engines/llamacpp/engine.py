"""llama.cpp as a text engine of ours."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import structlog

from causerie.engines import supervised
from causerie.engines.base import EngineFailed, TextRequest, Token
from causerie.engines.grammar_matcher import Admitted, Generation
from causerie.engines.llamacpp.client import LlamaCppClient, PartialTokens
from causerie.engines.llamacpp.options import (
    LlamaCppOptions,
    Need,
    available_memory,
    for_machine,
    free_now,
    has_gpu,
)
from causerie.engines.llamacpp.process import LlamaCppChild, examine_program, spawn, spawn_native
from causerie.engines.llamacpp.slots import PromptStore
from causerie.engines.machine import kv_bytes_per_token
from causerie.engines.weights.errors import WeightsError
from causerie.engines.weights.vocabulary import TokenTable, read_vocabulary

log = structlog.get_logger(__name__)

_NO_TOKEN = -1
_LETTER = "a"  # a text that every vocabulary has tokens for
_POOLINGS = (1, 2, 3)  # mean, cls and last, as files number them
_RANKING = 4
_TAG = re.compile(rb"<.{1,38}>|\[(?=[^a-z]*[A-Z])[^a-z]{1,38}\]", re.DOTALL)


class LlamaCppEngine(supervised.SupervisedEngine[LlamaCppClient]):
    """One GGUF file, run by llama.cpp.

    ``ref`` says where the weights are from, which may name the model's family. Making one reads the
    file's header; raises :class:`EngineFailed` where it is no model, or does not fit.
    """

    def __init__(
        self,
        model: str,
        weights: Path,
        options: LlamaCppOptions,
        *,
        ref: str = "",
        load_seconds: float = 600.0,
    ) -> None:
        alongside = [Path(name) for name in (*options.lora, options.draft) if name]
        header, local = supervised.gguf_model(weights, ref, alongside)
        try:
            launch = for_machine(weights, options, header)
        except (WeightsError, OSError) as error:
            raise EngineFailed(str(error)) from error
        if options.embeddings and options.pooling is None and header.pooling not in _POOLINGS:
            raise EngineFailed(
                f"{model} is a model that ranks, not one that makes embeddings"
                if header.pooling == _RANKING
                else f"the file of {model} does not say how one vector is made of a text; is it an "
                "embedding model? Set `llamacpp.pooling` to `mean`, `cls` or `last`, as its "
                "publisher says"
            )
        super().__init__(
            model,
            local,
            load_seconds,
            slots=launch.parallel,
            memory_bytes=launch.memory,
            context=launch.context,
        )
        self._launch = launch
        if launch.cache_tokens < launch.context * launch.parallel:
            self.cache_tokens = launch.cache_tokens
        self._readings = supervised.Readings()
        self._affixes: tuple[list[int], list[int]] | None = None
        # A build with llguidance could, and nothing tells which one has it.
        self.keeps_grammars = launch.options.command is None
        self._version = version("xllamacpp")
        if options.gpu_layers == 0 or not has_gpu():
            self._check_memory(Need(header, launch.cache_tokens, launch.kv_type, launch.memory))
        token_bytes = kv_bytes_per_token(header, launch.kv_type)
        self._prompts = PromptStore(launch.prompt_cache, token_bytes)
        self._partial: PartialTokens  # of the vocabulary, once that is read

    def _check_memory(self, need: Need) -> None:
        model, total = self._model, available_memory() // self._launch.options.part.of
        if need.memory > total:
            raise EngineFailed(f"{model} {need.refusal(total)}")
        if need.memory > (free := free_now(total)):
            log.warning(
                "memory is short",
                model=model,
                needed=need.memory,
                free=free,
                advice=need.advice(free),
            )

    async def _build(self, client: LlamaCppClient) -> str:
        return f"llamacpp-{self._version}"

    async def tokenize(self, pieces: Sequence[str | int], *, special: bool) -> list[int]:
        supervised.ensure_can_fit(await self._vocabulary(), pieces, self.context)
        return await self._ids(pieces, special=special)

    async def input_tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each text, with those that the model has before and behind it."""
        vocabulary = await self._vocabulary()
        for text in texts:
            supervised.ensure_can_fit(vocabulary, [text], self.context)
        if self._affixes is None:
            body = {"content": _LETTER, "parse_special": False, "add_special": True}
            whole = (await self._client().ask("POST", "/tokenize", body))["tokens"]
            inner = await self._ids([_LETTER], special=False)
            at = next(n for n in range(len(whole)) if whole[n : n + len(inner)] == inner)
            self._affixes = whole[:at], whole[at + len(inner) :]
        before, behind = self._affixes
        parts = await self._ids(
            [part for text in texts for part in (text, _NO_TOKEN)], special=False
        )
        return [[*before, *part, *behind] for part in _parted(parts)]

    async def embed(self, inputs: Sequence[Sequence[int]]) -> list[bytes]:
        """Return the vector of each input, as little-endian 32-bit floats of length 1."""
        self._busy += len(inputs)
        try:
            body = {"input": inputs, "encoding_format": "base64"}
            answer = await self._client().ask("POST", "/v1/embeddings", body)
        finally:
            self._busy -= len(inputs)
        self.supervisor.proved()
        found = sorted(answer["data"], key=lambda one: one["index"])
        return [b64decode(one["embedding"]) for one in found]

    async def _ids(self, pieces: Sequence[str | int], *, special: bool) -> list[int]:
        body = {"content": pieces, "parse_special": special, "add_special": False}
        answer = await self._readings.of(
            supervised.characters(pieces), lambda: self._client().ask("POST", "/tokenize", body)
        )
        return list(answer["tokens"])

    async def _load(self) -> LlamaCppChild:
        common = (self._launch, self._partial, self._load_seconds, self._pulse, self._prompts)
        options = self._launch.options
        if options.command is None:
            return await spawn(*common)
        build = await examine_program(options.command, options)
        log.info(
            "native build of llama.cpp",
            model=self._model,
            command=build.program,
            version=build.version,
            gpu=build.gpu,
        )
        self._version = build.version
        self._facts = None  # which name the version
        return await spawn_native(build, *common)

    async def stop(self) -> None:
        """End the child process, and give back the memory of prompts that left their slots."""
        await super().stop()
        self._prompts.close()

    def _read_vocabulary(self) -> TokenTable:
        vocabulary = read_vocabulary(self._local.vocabulary)
        self._partial = PartialTokens(vocabulary)
        return vocabulary

    def _run(
        self, client: LlamaCppClient, vocabulary: TokenTable, request: TextRequest
    ) -> Generation:
        if self._launch.cuts_back:
            request = replace(request, shared=0)
        return client.complete(request)

    async def _sample(
        self,
        client: LlamaCppClient,
        vocabulary: TokenTable,
        request: TextRequest,
        admitted: Admitted,
    ) -> Token:
        if self.keeps_grammars:
            return await client.sample(replace(request, grammar=admitted.grammar()))
        ids = [*admitted.ids(), *(vocabulary.end if admitted.ends else ())]
        if len(ids) == 1 and request.logprobs is None:
            return Token(ids[0], "")  # no choice
        request = replace(request, ignore_eos=False)
        return await client.sample(request, ids, len(vocabulary.tokens))

    async def _control_tokens(self, vocabulary: TokenTable) -> Mapping[str, int]:
        # The engine promotes words that look like the end of a text to control tokens, which the
        # file does not say; users must not be able to write them.
        known = set(vocabulary.control.values())
        tags = {
            id: token.decode("utf-8", "replace")
            for id, token in enumerate(vocabulary.tokens)
            if id not in known and _TAG.fullmatch(token)
        }
        if not tags:
            return vocabulary.control
        # One question for all: a number that is no token stands between them.
        asked = [part for text in tags.values() for part in (text, _NO_TOKEN)]
        special = _parted(await self._ids(asked, special=True))
        plain = _parted(await self._ids(asked, special=False))
        undeclared = {
            text: id
            for (id, text), one, other in zip(tags.items(), special, plain, strict=True)
            if one == [id] and other != [id]
        }
        return {**vocabulary.control, **undeclared}


def _parted(tokens: Sequence[int]) -> list[list[int]]:
    parts: list[list[int]] = [[]]
    for token in tokens:
        if token == _NO_TOKEN:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts[:-1]
