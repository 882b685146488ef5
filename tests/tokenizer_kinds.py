"""Small tokenizers of every kind that is read, trained on the spot."""

from __future__ import annotations

import json
from collections.abc import Callable

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

TEXTS = ["the quick brown fox, the lazy dog\n" * 3, "<|end|> is text, </s> too. é 日本"] * 5
SPECIAL = ["<s>", "</s>", "<|end|>"]
ADDED = [
    AddedToken("<think>", normalized=False),
    AddedToken("<Left>", lstrip=True, normalized=True),
    AddedToken("<right>", rstrip=True, normalized=True),
    AddedToken("<wörd>", single_word=True),
]
BYTE_NAMES = [f"<0x{byte:02X}>" for byte in range(256)]


def byte_level() -> Tokenizer:
    """BPE over bytes, as GPT-2 and most models since."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return _trained(
        made,
        trainers.BpeTrainer(
            vocab_size=400, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
        ),
    )


def pieces() -> Tokenizer:
    """BPE over ``▁`` pieces with a fallback to bytes, as Llama 2."""
    made = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    made.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    made = _trained(
        made,
        trainers.BpeTrainer(
            vocab_size=600,
            special_tokens=["<unk>", *SPECIAL, *BYTE_NAMES],
            show_progress=False,
        ),
    )
    return _without_added(made, BYTE_NAMES)


def unigram() -> Tokenizer:
    """Unigram with a fallback to bytes, as T5 and its kin."""
    made = Tokenizer(models.Unigram())
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    made.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Fuse(), decoders.Metaspace(prepend_scheme="first")]
    )
    made = _trained(
        made,
        trainers.UnigramTrainer(
            vocab_size=500,
            special_tokens=["<unk>", *SPECIAL, *BYTE_NAMES],
            unk_token="<unk>",
            show_progress=False,
        ),
    )
    made = _without_added(made, BYTE_NAMES)
    return _changed(made, lambda file: file["model"].update(byte_fallback=True))


KINDS = {"byte level": byte_level, "pieces": pieces, "unigram": unigram}


def _trained(made: Tokenizer, trainer: object) -> Tokenizer:
    made.train_from_iterator(TEXTS, trainer)
    made.add_tokens(ADDED)
    return made


def _without_added(made: Tokenizer, texts: list[str]) -> Tokenizer:
    """Names of bytes are in the vocabulary, but no special tokens."""

    def change(file: dict) -> None:
        file["added_tokens"] = [
            token for token in file["added_tokens"] if token["content"] not in texts
        ]

    return _changed(made, change)


def _changed(made: Tokenizer, change: Callable[[dict], None]) -> Tokenizer:
    file = json.loads(made.to_str())
    change(file)
    return Tokenizer.from_str(json.dumps(file))
