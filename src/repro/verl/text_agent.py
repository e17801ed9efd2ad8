"""Plain prompts: verl's single-turn agent without a chat template, for base models and our small policy."""

from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop

from repro.evaluation.questions import plain
from repro.verl.in_order import with_place


class TextAgentLoop(SingleTurnAgentLoop):
    """The prompt's tokens are those of its text, as in the embedded engine, whose prompts have one message."""

    def __init__(self, *args: Any, hf_model_type: str | None = None, **kwargs: Any):
        super().__init__(*args, hf_model_type=None, **kwargs)  # else verl looks for the model family's chat tokens

    async def ct_build_initial_tokens(self, messages: list[dict[str, Any]], **_: Any) -> list[int]:
        return self._cap_text_prompt_length(self.tokenizer(plain(messages))["input_ids"])

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        return await super().run(with_place(sampling_params, kwargs), **kwargs)
