"""vLLM as a text engine of ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from causerie.engines.base import ModelFacts, TextRequest, Token
from causerie.engines.grammar_matcher import Admitted
from causerie.engines.recommended_sampling import of_folder
from causerie.engines.supervised import Served, SupervisedEngine
from causerie.engines.vllm.capability_check import SAMPLE, ensure_able, served
from causerie.engines.vllm.client import VllmClient
from causerie.engines.vllm.completion import Completion, completion, of_admitted, sampled
from causerie.engines.vllm.folder import ServedFolder
from causerie.engines.vllm.options import SERVED_NAME, Elsewhere, VllmOptions
from causerie.engines.vllm.process import spawn
from causerie.engines.vllm.server import reached
from causerie.engines.vllm.tokenizer import FolderTokenizer
from causerie.engines.vocabulary import IndexedVocabulary


class VllmEngine(SupervisedEngine[VllmClient]):
    """One model folder, served by a vLLM that is started here, or by one that others run.

    For the latter the folder needs no weights. Text becomes tokens and tokens become
    text here, so that nobody's text is read as a control token. ``ref`` says where
    the weights are from, which may name the model's family. Making one reads the
    folder, unless that was read for another; raises :class:`EngineFailed` where it holds no
    model.
    """

    def __init__(
        self,
        model: str,
        folder: Path | ServedFolder,
        options: VllmOptions | Elsewhere,
        *,
        ref: str = "",
        load_seconds: float = 600.0,
    ) -> None:
        if isinstance(folder, Path):
            folder = ServedFolder(folder, weights=isinstance(options, VllmOptions))
        self.served_folder, self._folder = folder, folder.facts
        super().__init__(model, folder.files, load_seconds)
        self._options = options
        self._ref = ref
        self._context = options.context or self._folder.context_length
        self._tokenizer: FolderTokenizer  # read with the words
        self._facts: ModelFacts | None = None

    @property
    def slots(self) -> int:
        """Return the number of concurrent requests."""
        return self._options.slots

    @property
    def memory_bytes(self) -> int:
        """Return the size of the weights in bytes; vLLM's other memory is on the devices."""
        return self._folder.file_size

    @property
    def context(self) -> int:
        """Return the maximum tokens of one request, prompt and output together."""
        return self._context

    async def facts(self) -> ModelFacts:
        """Return the facts from the folder and the vocabulary, and the context from the server."""
        self._client()
        if self._facts is None:
            known = await self._words()
            version = (await self._client().ask("GET", "/version"))["version"]
            self._facts = self._said(known, version)
        return self._facts

    async def tokenize(self, pieces: Sequence[str | int], *, special: bool) -> list[int]:
        """Return the token ids, as :meth:`ServedFolder.tokenize` reads them."""
        self._client()
        return await self.served_folder.tokenize(pieces, special=special, context=self.context)

    def _in_thread(self) -> Callable[[str], list[int]]:
        return lambda text: self._tokenizer.ids([text], special=False)

    async def _child(self) -> Served[VllmClient]:
        options = self._options
        child: Served[VllmClient]
        if isinstance(options, VllmOptions):
            child = await spawn(self._folder.path, options, self._load_seconds, self._pulse)
        else:
            child = await reached(options, self._load_seconds, self._pulse)
        try:
            longest = await self._found(child.client)
        except BaseException:
            await child.stop()
            raise
        self._context = min(longest, options.context or longest)
        self._facts = None  # another one may be of another version, or have another context
        return child

    async def _found(self, client: VllmClient) -> int:
        """Return the maximum tokens of a request; raise :class:`EngineFailed` if unusable."""
        if isinstance(self._options, VllmOptions):
            _, longest = await served(client, SERVED_NAME)
            return longest
        client.model, longest = await served(client, self._options.name)
        run = partial(self._run, client, await self._words())
        await ensure_able(client, self._tokenizer.ids([SAMPLE], special=False), run)
        return longest

    def _read(self) -> IndexedVocabulary:
        self._tokenizer, words = self.served_folder.words()
        return words

    def _run(
        self, client: VllmClient, words: IndexedVocabulary, request: TextRequest
    ) -> Completion:
        return completion(client, words, request, self._pulse)

    async def _sample(
        self,
        client: VllmClient,
        words: IndexedVocabulary,
        request: TextRequest,
        admitted: Admitted,
    ) -> Token:
        return await sampled(self._run(client, words, of_admitted(request, admitted)))

    def _said(self, words: IndexedVocabulary, version: str) -> ModelFacts:
        folder, vocabulary = self._folder, words.vocabulary
        return ModelFacts(
            template=folder.chat_template,
            context_length=self.context,
            parallel=self.slots,
            control_tokens=vocabulary.control,
            bos_token=words.text(vocabulary.bos),
            eos_token=words.text(vocabulary.eos),
            end_tokens=vocabulary.end,
            fingerprint=f"vllm-{version}-{folder.architecture}-{self._files.mark(folder.file_size)}",
            vocabulary=str(self.served_folder.tokenizer_file),
            words=words.digest,
            size=len(vocabulary.tokens),
            sampling=of_folder(
                folder.generation, (self._ref, folder.path.name, folder.architecture)
            ),
        )
