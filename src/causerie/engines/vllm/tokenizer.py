"""The tokenizer of a model folder: text to ids, of which no user can forge one.

A folder is read once for all engines that serve it. Knows the ``tokenizers`` library, and is
the only one who does; knows no engine.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from causerie.engines.base import EngineFailed
from causerie.engines.supervised import Files, TokenizeLimit, characters, ensure_can_fit
from causerie.engines.weights.errors import NotModelFolder, WeightsError
from causerie.engines.weights.folder import TOKENIZER, read_folder, read_object
from causerie.engines.weights.vocabulary import TokenTable, read_vocabulary

_NOTHING = ""  # a token that no text becomes


class FolderTokenizer:
    """The tokenizer in ``file``, a ``tokenizer.json``; takes seconds for the largest.

    May be used by threads. Raises :class:`NotModelFolder` for a file that is
    none, or whose ids are not those that the library gives its tokens.
    """

    def __init__(self, file: Path) -> None:
        try:
            content = _without_alterations(read_object(file))
            self._with_special = _build_tokenizer(content)
            _ensure_same_ids(content, self._with_special)
            model = content["model"]
            # The library fails at a text with a character for which the vocabulary has nothing.
            lost = model.get("unk_id") is None and not model.get("byte_fallback")
            if lost and model.get("type") == "Unigram":
                raise ValueError("it has nothing for characters that it does not know")
            self._without_special = _build_tokenizer(
                _without_added_tokens(content, self._with_special)
            )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise NotModelFolder(
                file.parent, f"{file.name} is no tokenizer that the library takes ({error})"
            ) from None

    def ids(self, pieces: Sequence[str | int], *, special: bool) -> list[int]:
        """Return the token ids of the pieces in order, each text read by itself; ids pass through.

        With ``special`` the text of an added token becomes that token; without
        it every character is plain text. No beginning-of-text token is added.
        Blocks the thread, not the others, about a millisecond for a thousand tokens.
        Raises :class:`ValueError` for a text that the library fails at.
        """
        tokenizer = self._with_special if special else self._without_special
        found: list[int] = []
        for piece in pieces:
            if isinstance(piece, int):
                found.append(piece)
            else:
                # The library takes no half of a surrogate pair.
                raw = piece.encode("utf-16", "surrogatepass")
                found += _encode_text(tokenizer, raw.decode("utf-16", "replace"))
        return found


def _encode_text(tokenizer: Tokenizer, text: str) -> list[int]:
    # Batches alone let other threads of ours run meanwhile, and twice as fast they
    # are; of one text each, so that the library does not take all cores for them.
    try:
        (read,) = tokenizer.encode_batch_fast([text], add_special_tokens=False)
    except BaseException:  # noqa: BLE001 - its panics are no narrower, and may quote the text
        raise ValueError("the tokenizer fails at a text") from None
    ids: list[int] = read.ids
    return ids


def _build_tokenizer(content: dict[str, Any]) -> Tokenizer:
    try:
        return Tokenizer.from_str(json.dumps(content))
    except BaseException as error:  # noqa: BLE001 - the library's panics are no narrower
        raise ValueError(error) from None


def _without_alterations(content: dict[str, object]) -> dict[str, Any]:
    # Truncation, padding and dropout change ids; post-processors are never used. An added token
    # with letters must match as written, not in a form that a normalizer produces.
    model = content.get("model")
    if isinstance(model, dict) and "dropout" in model:
        content = {**content, "model": {**model, "dropout": None}}
    every: Any = content.get("added_tokens") or ()
    added = [one | {"normalized": False} if _has_letters(one["content"]) else one for one in every]
    unused = {"truncation": None, "padding": None, "post_processor": None}
    return {**content, "added_tokens": added, **unused}


def _has_letters(token: str) -> bool:
    # Blanks alone cannot forge anything.
    return bool(token.strip(" \t\r\n▁"))


def _ensure_same_ids(content: dict[str, Any], tokenizer: Tokenizer) -> None:
    # The library numbers added tokens itself: by the model's vocabulary, or behind it.
    for token in content.get("added_tokens") or ():
        text, id = token["content"], token["id"]
        if tokenizer.token_to_id(text) != id:
            raise ValueError(f"{text!r} has the id {id} there, and another by its vocabulary")


def _without_added_tokens(content: dict[str, Any], tokenizer: Tokenizer) -> dict[str, Any]:
    # Added tokens are removed from the model's own vocabulary too, which may have them as whole
    # pieces. Runs of blanks stay.
    added = tokenizer.get_added_tokens_decoder()
    gone = {id for id, token in added.items() if _has_letters(token.content)}
    model = dict(content["model"])
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        texts = {text for text, id in vocabulary.items() if id in gone}
        model["vocab"] = {text: id for text, id in vocabulary.items() if text not in texts}
        if (unknown := model.get("unk_token")) in texts:
            model |= {"unk_token": _NOTHING}
            model["vocab"][_NOTHING] = vocabulary[unknown]
        if "merges" in model:
            prefix = len(model.get("continuing_subword_prefix") or "")
            model["merges"] = list(_remaining_merges(model["merges"], texts, prefix))
    else:
        model["vocab"] = [
            [_NOTHING if id in gone else text, score] for id, (text, score) in enumerate(vocabulary)
        ]
    return {**content, "added_tokens": [], "model": model}


def _remaining_merges(
    merges: Sequence[str | Sequence[str]], gone: set[str], prefix: int
) -> Iterator[str | Sequence[str]]:
    for merge in merges:
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        if {left, right, left + right[prefix:]}.isdisjoint(gone):
            yield merge


class ServedFolder:
    """The folder at ``path``; raises :class:`EngineFailed` where it holds no model."""

    def __init__(self, path: Path, *, weights: bool) -> None:
        try:
            self.facts = read_folder(path, weights=weights)
        except (WeightsError, OSError) as error:
            raise EngineFailed(str(error)) from error
        self.files = Files(self.facts.files)
        self.weights = weights
        self.tokenizer_file = path / TOKENIZER
        self._limiter = TokenizeLimit()
        self._lock = threading.Lock()
        self._loaded: tuple[FolderTokenizer, TokenTable] | None = None

    def words(self) -> tuple[FolderTokenizer, TokenTable]:
        """Return tokenizer and vocabulary. Blocks.

        Raises :class:`WeightsError` or :class:`OSError`.
        """
        with self._lock:
            if self._loaded is None:
                tokenizer = FolderTokenizer(self.tokenizer_file)
                self._loaded = tokenizer, read_vocabulary(self.tokenizer_file)
            return self._loaded

    async def tokenize(
        self, pieces: Sequence[str | int], *, special: bool, context: int
    ) -> list[int]:
        """Return the token ids; no beginning-of-text token is added.

        Raises :class:`PromptTooLong` where they cannot fit: reading the text takes its time.
        """
        known = self._loaded
        if known is None:
            known = await asyncio.to_thread(self.words)
        tokenizer, vocabulary = known
        ensure_can_fit(vocabulary, pieces, context)
        read = partial(asyncio.to_thread, tokenizer.ids, pieces, special=special)
        return await self._limiter.of(characters(pieces), read)
