"""The tokenizer: one token per symbol, built with `tokenizers` and wrapped for `transformers`."""

from collections.abc import Iterable, Sequence
from typing import Any

from repro.errors import Refused

PAD, BOS, EOS = "_", "^", "$"
SYMBOLS = PAD + BOS + EOS + "0123456789+-*,=;#g"


class UnknownSymbol(Refused, ValueError):
    """One sentence: a symbol that the policy has no token for, where it stands, and the cure."""


def encode(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """The ids of each text. UnknownSymbol where the project's own tokenizer has none for a symbol: it would be read
    as padding, and the policy trained on other questions to the end."""
    vocabulary = {token for token in tokenizer.get_vocab() if token not in tokenizer.all_special_tokens}
    if vocabulary <= set(SYMBOLS):
        require_known(texts, vocabulary)
    return tokenizer(list(texts))["input_ids"]


def require_known(texts: Iterable[str], known: Iterable[str] = SYMBOLS) -> None:
    """UnknownSymbol unless every symbol of the texts is `known`."""
    known = set(known)
    for text in texts:
        if unknown := sorted(set(text) - known):
            raise UnknownSymbol(
                f"the policy has no token for {unknown[0]!r} of {text!r}: write it with {SYMBOLS[3:]}, or add it to "
                "SYMBOLS in src/repro/tasks/tokenizer.py and pre-train a policy that knows it (`dvc repro policy`)"
            )


def build_tokenizer() -> Any:
    """A PreTrainedTokenizerFast over SYMBOLS that prepends BOS to every text and pads on the left."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {symbol: index for index, symbol in enumerate(SYMBOLS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=PAD))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, vocabulary[BOS])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, bos_token=BOS, eos_token=EOS, padding_side="left"
    )
