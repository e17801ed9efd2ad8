"""Lengths in tokens: the files' own, a tokenizer's, or a guess from the bytes of a text."""

from collections.abc import Iterator
from typing import Any

from repro.errors import Refused, brief
from repro.replay.formats import Rollout
from repro.replay.words import say

GUESS = 4.0  # bytes a token, roughly, of English and mathematics in the vocabularies in use
EXACT = 32_000_000  # bytes that are tokenised; the lengths of later texts follow from their bytes
COMPARED = 64  # rollouts on which a tokenizer is compared with lengths in the files


class Lengths:
    """`name`: a tokenizer for AutoTokenizer, or None."""

    def __init__(self, name: str | None):
        self.name, self.tokenizer = name, _load(name) if name else None
        self.bytes = self.tokens = self.guessed = 0
        self.changed = ""  # a text that the tokenizer does not give back
        self.compared: list[tuple[int, int]] = []  # the tokenizer's length, the files'
        self.prompts: dict[int, int] = {}

    def measure(self, rollout: Rollout) -> None:
        """Give it the lengths that it lacks, the end of the response included; without a response it stays without."""
        if rollout.response_tokens is None and rollout.response:
            rollout.response_tokens = self._count(rollout.response) + 1
        elif self.tokenizer is not None and rollout.response and len(self.compared) < COMPARED:
            self.compared.append((len(self._ids(rollout.response)), rollout.response_tokens or 0))
        if rollout.prompt_tokens is None:
            key = hash(rollout.prompt)
            if key not in self.prompts:
                self.prompts[key] = self._count(rollout.prompt)
            rollout.prompt_tokens = self.prompts[key]

    def _count(self, text: str) -> int:
        size = len(text.encode(errors="replace"))
        if self.tokenizer is None or self.bytes > EXACT:
            self.guessed += 1
            return max(1, round(size / (self.bytes / self.tokens if self.tokens else GUESS)))
        ids = self._ids(text)
        if not self.bytes and self.tokenizer.decode(ids).strip() != text.strip():
            self.changed = text
        self.bytes, self.tokens = self.bytes + size, self.tokens + len(ids)
        return len(ids)

    def _ids(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def notes(self) -> Iterator[str]:
        """What is to be known of the lengths, a sentence each."""
        if self.guessed:
            yield say(
                "extended" if self.tokens else "guessed", count=self.guessed, rate=self.bytes / max(self.tokens, 1)
            )
        if self.tokens:
            yield say("tokenised")
        if self.changed:
            yield say("changed", name=self.name, text=brief(self.changed, 40))
        ours, theirs = map(sum, zip(*self.compared, strict=True)) if self.compared else (0, 0)
        if not 0.9 * theirs <= ours <= 1.1 * theirs:
            yield say("another", name=self.name, ours=ours, theirs=theirs)


def _load(name: str) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(name)
    except Exception as error:
        raise Refused(f"there is no tokenizer {name}: {brief(str(error).partition(chr(10))[0], 120)}") from None
