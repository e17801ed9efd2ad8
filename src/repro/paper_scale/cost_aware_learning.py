"""Cost-Aware Learning (Mohri et al., 2026), App. G.4, Tables 2 to 5, and G.5.

Our copy of the paper has lost its inline numbers: learning rates, and how many GPUs and days the 4B and 8B runs took.
"""

from repro.paper_scale.values import Clip, PaperScale, Saving, Value, ours, paper

BY_PLACE = "the model is not named, 4B and 8B stand apart"
BETA = "which β is missing in our copy, 0.3 is ours"
LOST = "the number is missing in our copy of the paper"
AS_TABLE_2 = "not in this table; as in Table 2"
AS_TABLE_5 = "not in this table; as in Table 5"
DATA = {
    "train_data": paper("dapo-math-17k", "§5.1: the DAPO data set"),
    "train_queries": ours(17398, "the public set's distinct prompts; the paper gives no number"),
    "validation_data": ours(
        ["aime-1983-2024", "amc23", "math500", "gsm8k"], "§5.1 names these four; of AMC not which years, AMC23 is ours"
    ),
}
NODE = {
    "nodes": ours(1, "G.5 says only: verl's standard hardware"),
    "gpus_per_node": ours(8, "G.5 says only: verl's standard hardware, of which one node has 8"),
}
GSPO = Clip(
    low=ours(3.0e-4, "no GSPO in this paper; Zheng et al. (2025), its authors"),
    high=ours(4.0e-4, "no GSPO in this paper; Zheng et al. (2025), its authors"),
)
GRPO = Clip(low=paper(0.2, "Table 2"), high=paper(0.28, "Table 2"))
GRPO_ELSEWHERE = Clip(low=ours(0.2, AS_TABLE_2), high=ours(0.28, AS_TABLE_2))
CISPO = Clip(low=paper(0.0, "Table 5"), high=paper(5.0, "Table 5"))
CISPO_ELSEWHERE = Clip(low=ours(0.0, AS_TABLE_5), high=ours(5.0, AS_TABLE_5))


def _context(table: str) -> dict[str, Value]:
    """Qwen2.5-Math models have a context of 4096 tokens, prompt included."""
    return {
        "max_prompt_tokens": ours(1024, f"not in {table}; as in Tables 3 and 4"),
        "max_response_tokens": ours(3072, f"not in {table}; what the model's context of 4096 leaves"),
    }


def _tokens(arm: str, against: str, left: float, where: str, benchmark: str) -> Saving:
    factor = paper(left, where)
    return Saving(arm=arm, against=against, unit="trained_tokens", factor=factor, benchmark=benchmark)


QWEN_1_5B = PaperScale(
    name="paper-qwen2.5-math-1.5b-instruct",
    title="Qwen2.5-Math-1.5B-Instruct",
    paper="Cost-Aware Learning",
    table="Table 2",
    model=paper("Qwen/Qwen2.5-Math-1.5B-Instruct", "Table 2"),
    **DATA,
    epochs=ours(15, "not in Table 2; as in Tables 3 and 4"),
    train_batch=paper(256, "Table 2"),
    minibatch=paper(64, "Table 2"),
    group_size=paper(16, "Table 2"),
    learning_rate=ours(1.0e-6, f"{LOST}; verl's default"),
    warmup_steps=ours(0, "not in Table 2; verl's default"),
    weight_decay=paper(0.1, "Table 2"),
    gradient_clip=ours(1.0, "not in Table 2; as in Table 5, and verl's default"),
    temperature=paper(1.0, "Table 2"),
    top_p=ours(1.0, "not in Table 2; verl's default"),
    **_context("Table 2"),
    kl=paper(0.001, "Table 2"),
    entropy=ours(0.0, "not in Table 2; as in Table 5"),
    clips={"grpo": GRPO, "gspo": GSPO, "cispo": CISPO_ELSEWHERE},
    dual_clip=ours(3.0, "not in Table 2; as in Table 5, and verl's default"),
    gpu=ours("H100", "G.5 names none for 1.5B; as for 4B and 8B"),
    **NODE,
    hours={"grpo": paper(48.0, f"G.5, GRPO; {BY_PLACE}"), "zvf": paper(72.0, f"G.5, GRPO + ZVF; {BY_PLACE}")},
    savings=[
        _tokens("cost-aware", "grpo", 0.72, "§5.4", "AIME"),
        _tokens("cost-aware-beta-0.3", "grpo", 0.68, f"§5.4; {BETA}", "AIME"),
        _tokens("zvf-smoothed", "zvf", 0.87, f"§5.4; {BETA}", "AIME"),
        _tokens("cost-aware", "grpo", 0.66, "§5.4", "AMC"),
        _tokens("zvf-smoothed", "zvf", 0.95, f"§5.4; {BETA}", "AMC"),
    ],
)

QWEN_1_5B_CISPO = PaperScale(
    name="paper-qwen2.5-math-1.5b-instruct-cispo",
    title="Qwen2.5-Math-1.5B-Instruct, CISPO",
    paper="Cost-Aware Learning",
    table="Table 5",
    model=paper("Qwen/Qwen2.5-Math-1.5B-Instruct", "Table 5"),
    **DATA,
    epochs=ours(15, "not in Table 5; as in Tables 3 and 4"),
    train_batch=paper(512, "Table 5"),
    minibatch=paper(128, "Table 5"),
    group_size=ours(16, "not in Table 5; as in Table 2"),
    learning_rate=ours(5.0e-7, f"{LOST}; that of ScaleRL (Khatri et al., 2025), which the table follows"),
    warmup_steps=paper(100, "Table 5"),
    weight_decay=paper(0.01, "Table 5"),
    gradient_clip=paper(1.0, "Table 5"),
    temperature=ours(1.0, "not in Table 5; as in Table 2"),
    top_p=ours(1.0, "not in Table 5; verl's default"),
    **_context("Table 5"),
    kl=paper(0.001, "Table 5"),
    entropy=paper(0.0, "Table 5"),
    clips={"grpo": GRPO_ELSEWHERE, "gspo": GSPO, "cispo": CISPO},
    dual_clip=paper(3.0, "Table 5"),
    gpu=ours("H100", "G.5 names none for 1.5B; as for 4B and 8B"),
    **NODE,
    hours={"cispo": paper(72.0, f"G.5, Scale RL; {BY_PLACE}")},
    savings=[
        _tokens("cispo-cost-aware", "cispo", 0.69, "§5.5", "AIME"),
        _tokens("cispo-smoothed", "cispo", 0.66, f"§5.5; {BETA}", "AIME"),
    ],
    aside={"LM Head Precision FP32": "no option of verl 0.9.1 sets it; left out, logits are bfloat16"},
)


def _qwen3(size: str, table: str, group_size: int, savings: list[Saving]) -> PaperScale:
    model = f"Qwen/Qwen3-{size}"
    return PaperScale(
        name=f"paper-qwen3-{size.lower()}",
        title=f"Qwen3-{size}",
        paper="Cost-Aware Learning",
        table=table,
        model=paper(model, f"{table}; Table 1 has {size}-Base, which on the hub is {model}-Base"),
        **DATA,
        epochs=paper(15, table),
        train_batch=paper(512, table),
        minibatch=paper(256, table),
        group_size=paper(group_size, table),
        learning_rate=ours(1.0e-6, f"{LOST}; verl's default"),
        warmup_steps=ours(0, f"not in {table}; verl's default"),
        weight_decay=ours(0.1, AS_TABLE_2),
        gradient_clip=ours(1.0, f"not in {table}; as in Table 5, and verl's default"),
        temperature=paper(1.0, table),
        top_p=ours(1.0, f"not in {table}; verl's default"),
        max_prompt_tokens=paper(1024, table),
        max_response_tokens=paper(4096, table),
        kl=paper(0.001, table),
        entropy=ours(0.0, f"not in {table}; as in Table 5"),
        clips={"grpo": GRPO_ELSEWHERE, "gspo": GSPO, "cispo": CISPO_ELSEWHERE},
        dual_clip=ours(3.0, f"not in {table}; as in Table 5, and verl's default"),
        gpu=paper("H100", "G.5"),
        nodes=ours(1, f"{LOST}; one node of verl's standard hardware"),
        gpus_per_node=ours(8, f"{LOST}; one node of verl's standard hardware"),
        savings=savings,
    )


QWEN3_4B = _qwen3(
    "4B",
    "Table 3",
    8,
    [
        _tokens("cost-aware", "grpo", 0.65, "§5.4: to its own peak, GRPO to within 1% of that accuracy", "AIME"),
        _tokens("cost-aware", "grpo", 0.76, "§5.4", "AMC"),
    ],
)
QWEN3_8B = _qwen3("8B", "Table 4", 5, [])

ALL = (QWEN_1_5B, QWEN_1_5B_CISPO, QWEN3_4B, QWEN3_8B)
