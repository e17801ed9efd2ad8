"""Paper scales as tables to read."""

from repro.paper_scale.values import PaperScale

WORDS = {
    "model": "model",
    "train_data": "training data",
    "train_queries": "training prompts",
    "validation_data": "validation data",
    "train_batch": "prompts a batch",
    "minibatch": "prompts a mini-batch",
    "group_size": "rollouts a prompt",
    "kl": "KL coefficient",
    "entropy": "entropy coefficient",
    "dual_clip": "clip ratio c",
    "top_p": "top-p",
    "gpu": "GPU",
    "gpus_per_node": "GPUs a node",
}


def table(scale: PaperScale) -> str:
    """Every value with its source, as Markdown."""
    rows = [
        f"| {_words(name)} | {_shown(entry.value)} | {entry.source} | {entry.why} |"
        for name, entry in scale.values.items()
    ]
    rows += [f"| {name} | – | paper | {scale.table}; {what} |" for name, what in scale.aside.items()]
    return "\n".join(["| setting | value | source | where, or why |", "|---|---|---|---|", *rows])


def summary(scales: dict[str, PaperScale]) -> str:
    """One row per scale: the sizes, and how many of its values the paper gives."""
    head = "| scale | paper | model | prompts × rollouts | mini-batch | longest response | steps | from the paper |"
    rows = []
    for name, scale in scales.items():
        given = sum(entry.source == "paper" for entry in scale.values.values())
        rows.append(
            f"| {name} | {scale.paper}, {scale.table} | {scale.model.value} | {scale.train_batch.value} × "
            f"{scale.group_size.value} | {scale.minibatch.value} | {scale.max_response_tokens.value} | {scale.steps} | "
            f"{given} of {len(scale.values)} |"
        )
    return "\n".join([head, "|---|---|---|---:|---:|---:|---:|---:|", *rows])


def _words(name: str) -> str:
    return WORDS.get(name, name.replace("_", " ").replace(".", " "))


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
