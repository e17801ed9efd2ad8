"""`python trl_own_data.py MODEL DATA.jsonl --output_dir out …`: DATA has a `prompt` and its `answer` in each line."""

from datasets import load_dataset
from trl import GRPOConfig, TrlParser

from repro.trl import ArmTrainer

config, (model, data) = TrlParser(GRPOConfig).parse_args_and_config(return_remaining_strings=True)


def correct(completions, answer, **_):
    return [float(text.strip().endswith(end)) for text, end in zip(completions, answer, strict=True)]


def not_the_longest(rollouts, progress, rng):
    """All but the longest tenth, which cost the most and are often truncated."""
    return rollouts.take(rollouts.costs_N.argsort(kind="stable")[: -(len(rollouts) // 10) or None])


questions = load_dataset("json", data_files=data, split="train")
trainer = ArmTrainer(model, correct, config, questions, arm="zvf", samplers=[not_the_longest, "cost_aware"])
trainer.train()
trainer.save_model()
