"""D³S (ICLR 2026), App. C, Tables 4 and 5: four models, each on GRPO and on GSPO (an arm says which).

N and K of Table 5 are parameters of the samplers, as shares that do not depend on the group's size (8 to 32 of 32 is
0.25 to 1; 5% to 20%), so they stand in params.yaml and not here; `SELECTION` is what the table says of them.
"""

from repro.paper_scale.values import Clip, PaperScale, Saving, ours, paper

SELECTION = {
    "share_start": paper(8 / 32, "Table 5: N_init 8 of G 32"),
    "share_end": paper(32 / 32, "Table 5: N_final 32 of G 32"),
    "tokens_start": paper(0.05, "Table 5: K_init"),
    "tokens_end": paper(0.20, "Table 5: K_final"),
}
NOT_SAID = "neither table has it"
EPSILON = {"low": paper(0.2, "Table 5"), "high": paper(0.2, "Table 5")}


def _scale(
    model: str,
    *,
    epochs: int,
    temperature: float,
    top_p: float,
    learning_rate: float,
    savings: tuple[tuple[str, str, float], ...] = (),
) -> PaperScale:
    name = model.split("/")[1].removeprefix("Meta-").replace("Llama-3.1", "Llama3.1")
    return PaperScale(
        name=f"paper-{name.lower()}",
        title=name,
        paper="D³S",
        table="Tables 4 and 5",
        model=paper(model, "Table 4; the owner on the hub is ours"),
        train_data=paper("deepscaler", "§4.1"),
        train_queries=ours(40315, "the public set's size; the paper gives no number"),
        validation_data=paper(["aime24"], "§4.1: the validation set while training"),
        epochs=paper(epochs, "Table 4"),
        train_batch=ours(128, f"{NOT_SAID}; 4096 rollouts of 32 to a prompt, as many as in Cost-Aware Learning"),
        minibatch=ours(32, f"{NOT_SAID}; four updates a batch, as in Cost-Aware Learning, Table 2"),
        group_size=paper(32, "Table 5: G"),
        learning_rate=paper(learning_rate, "Table 4"),
        warmup_steps=ours(0, f"{NOT_SAID}; verl's default"),
        weight_decay=ours(0.01, f"{NOT_SAID}; verl's default"),
        gradient_clip=ours(1.0, f"{NOT_SAID}; verl's default"),
        temperature=paper(temperature, "Table 4"),
        top_p=paper(top_p, "Table 4"),
        max_prompt_tokens=ours(1024, f"{NOT_SAID}; as in Cost-Aware Learning"),
        max_response_tokens=ours(3072, f"{NOT_SAID}; what Qwen2.5-Math's context of 4096 leaves, for all alike"),
        kl=ours(0.001, "eq. 10 has the term but no table its coefficient; as in Cost-Aware Learning"),
        entropy=ours(0.0, f"{NOT_SAID}; eq. 10 has no such term"),
        clips={
            "grpo": Clip(**EPSILON),
            "gspo": Clip(**EPSILON),
            "cispo": Clip(
                low=ours(0.0, "no CISPO in this paper; as in Cost-Aware Learning, Table 5"),
                high=ours(5.0, "no CISPO in this paper; as in Cost-Aware Learning, Table 5"),
            ),
        },
        dual_clip=ours(3.0, f"{NOT_SAID}; verl's default"),
        gpu=ours("H100", "the paper names no hardware"),
        nodes=ours(1, "the paper names no hardware"),
        gpus_per_node=ours(8, "the paper names no hardware"),
        savings=[
            Saving(arm=arm, against=against, unit="hours", factor=paper(1 / speedup, "Table 3"), benchmark="Avg@32")
            for arm, against, speedup in savings
        ],
    )


ALL = (
    _scale(
        "Qwen/Qwen2.5-Math-7B",
        epochs=1,
        temperature=1.0,
        top_p=0.9,
        learning_rate=5.0e-7,
        savings=(("d3s", "grpo", 2.04), ("d3s-gspo", "gspo", 5.51)),
    ),
    _scale(
        "Qwen/Qwen2.5-Math-1.5B",
        epochs=1,
        temperature=1.0,
        top_p=0.9,
        learning_rate=5.0e-7,
        savings=(("d3s", "grpo", 1.57), ("d3s-gspo", "gspo", 1.10)),
    ),
    _scale("meta-llama/Llama-3.1-8B-Instruct", epochs=2, temperature=0.6, top_p=0.9, learning_rate=1.0e-8),
    _scale("nvidia/OpenMath2-Llama3.1-8B", epochs=2, temperature=0.7, top_p=0.95, learning_rate=2.0e-7),
)
