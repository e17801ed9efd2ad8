"""A language model's vocabulary, cut to what one task is written in: a choice among a hundred tokens, not among 49152.

It is another policy, as constrained decoding makes it: probabilities are renormalised over the tokens that stay."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

END = "<|end|>"  # of a response, and padding


def tokenizer_of(texts: Iterable[str]) -> Any:
    """A PreTrainedTokenizerFast of the words, with the space before them, marks and single digits of `texts`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    digits, spaces = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    split = pre_tokenizers.Sequence([digits, spaces])
    pieces = sorted({piece for text in texts for piece, _ in split.pre_tokenize_str(text)})
    made = Tokenizer(models.WordLevel({piece: index for index, piece in enumerate([END, *pieces])}, unk_token=END))
    made.pre_tokenizer, made.decoder = split, decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token=END, pad_token=END, padding_side="left")


def cut(model: Any, tokenizer: Any, own: Any) -> Any:
    """`model` itself with the rows of those tokens alone that `own`, of `tokenizer_of`, has; `tokenizer`: the model's.
    ValueError where one of them is several tokens to the model."""
    known = own.convert_ids_to_tokens(range(1, len(own)))
    ids = [tokenizer.eos_token_id, *tokenizer.convert_tokens_to_ids(known)]
    for piece, index in zip(known, ids[1:], strict=True):
        if index is None or index == tokenizer.unk_token_id:
            raise ValueError(f"{piece!r} is several tokens to the language model: write the task with another word")
    embedding, head, tied = model.get_input_embeddings(), model.lm_head, model.config.tie_word_embeddings
    for part in (embedding, head):
        part.weight = nn.Parameter(part.weight.detach()[torch.tensor(ids)])
    if tied:
        head.weight = embedding.weight
    embedding.num_embeddings = head.out_features = model.config.vocab_size = len(ids)
    embedding.padding_idx = 0
    for config in (model.config, model.generation_config):
        config.bos_token_id, config.eos_token_id, config.pad_token_id = None, 0, 0
    return model
