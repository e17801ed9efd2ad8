"""Small sums, asked in English: data for trying the path, made here. A small chat model solves some of them."""

from typing import Any

SOURCE = "sums"
ASK = "What is {a} + {b}? Put the answer in \\boxed{{}}."


def rows() -> list[dict[str, Any]]:
    """All 300 sums of 0-9 and 0-29, in verl's format."""
    return [
        {
            "data_source": SOURCE,
            "prompt": [{"role": "user", "content": ASK.format(a=a, b=b)}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": str(a + b)},
            "extra_info": {"index": index, "id": f"{SOURCE}-{a}-{b}", "question": f"{a} + {b}"},
        }
        for index, (a, b) in enumerate((a, b) for b in range(30) for a in range(10))
    ]
