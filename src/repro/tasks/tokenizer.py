"""The tokenizer: one token per symbol, built with `tokenizers` and wrapped for `transformers`."""

from collections.abc import Iterable, Sequence
from typing import Any

from repro.errors import Refused, brief

PAD, BOS, EOS = MARKS = "_", "^", "$"
SYMBOLS = PAD + BOS + EOS + "0123456789+-*,=;#g"
WRITTEN = frozenset(SYMBOLS) - set(MARKS)  # what prompts and demonstrations are made of


class UnknownSymbol(Refused, ValueError):
    """One sentence: the symbol, the text it stands in, and the cure."""


def check_symbols(texts: Iterable[str], known: frozenset[str] = WRITTEN) -> None:
    """UnknownSymbol if a text holds a symbol that is not `known`: the tokenizer would make padding of it, or leave it
    out, and a mark of its own would begin or end the text."""
    for text in texts:
        if not known.issuperset(text):
            symbol = next(symbol for symbol in text if symbol not in known)
            cure = "write it with another" if symbol in MARKS else "add it at the end"
            raise UnknownSymbol(
                f"the policy's tokenizer cannot write {symbol!r} of the text {brief(text)}: {cure} of SYMBOLS in "
                "repro/tasks/tokenizer.py, and pre-train a base policy on such texts"
            )


def encode(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """The ids of each text. UnknownSymbol as above, by the tokenizer's own vocabulary, if it is our own, made here
    or loaded with a policy; the tokenizer of a language model knows what to do with any text."""
    if tuple(getattr(tokenizer, f"{mark}_token", None) for mark in ("pad", "bos", "eos")) == MARKS:
        check_symbols(texts, frozenset(tokenizer.get_vocab()).difference(MARKS))
    return tokenizer(texts)["input_ids"]


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
