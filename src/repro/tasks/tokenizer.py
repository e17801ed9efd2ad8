"""The tokenizer: one token per symbol, built with `tokenizers` and wrapped for `transformers`."""

from typing import Any

PAD, BOS, EOS = "_", "^", "$"
SYMBOLS = PAD + BOS + EOS + "0123456789+-*,=;#g"


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
