"""Small files of our own in the real columns of each of the papers' data sets: what `repro.data` is tested on."""

import csv
import json
from pathlib import Path

import pandas as pd

from repro.data.formats import DAPO_AFTER, DAPO_BEFORE


def dapo(question: str, answer: str, index: str) -> dict:
    return {
        "data_source": "math_dapo",
        "prompt": [{"content": DAPO_BEFORE + question + DAPO_AFTER, "role": "user"}],
        "ability": "MATH",
        "reward_model": {"ground_truth": answer, "style": "rule-lighteval/MATH_v2"},
        "extra_info": {"index": index},
    }


def olympiad(number: int, question: str, answers: list[str], context: str | None = None) -> dict:
    row = {"id": number, "question": question, "solution": ["Because."], "final_answer": answers, "context": context}
    row |= {f"image_{image}": None for image in range(1, 10)}
    row |= {"modality": "Text-only", "difficulty": "Competition", "is_multiple_answer": len(answers) > 1, "unit": None}
    row |= {"answer_type": "Numerical", "error": None, "question_type": "Open-ended", "subfield": "Algebra"}
    return row | {"subject": "Math", "language": "English"}


def gsm8k(question: str, answer: str) -> dict:
    return {"question": question, "answer": f"Twice 621 is <<2*621=1242>>1242.\n#### {answer}"}


# name: (file inside the hub repository, rows in upstream's columns, what is read of them: question, answer, source id)
FILES = {
    "dapo-math-17k": (
        "data/dapo-math-17k.parquet",
        [dapo("What is $2+3$?", "5", "a-1"), dapo("Find $k$ with $3k=-9$.", "-3", "a-2")],
        [("What is $2+3$?", "5", "a-1"), ("Find $k$ with $3k=-9$.", "-3", "a-2")],
    ),
    "deepscaler": (
        "deepscaler.json",
        [{"problem": "Halve $\\frac{3}{2}$.", "answer": "$\\frac{3}{4}$", "solution": "Half of it."}],
        [("Halve $\\frac{3}{2}$.", "\\frac{3}{4}", "")],
    ),
    "gsm8k-train": (
        "main/train-00000-of-00001.parquet",
        [gsm8k("Ann has 621 pens, Bo as many. And both?", "1,242")],
        [("Ann has 621 pens, Bo as many. And both?", "1242", "")],
    ),
    "aime-1983-2024": (
        "AIME_Dataset_1983_2024.csv",
        [
            {
                "ID": "1990-I-7",
                "Year": "1990",
                "Problem Number": "7",
                "Question": 'Say "what", on\ntwo lines.',
                "Answer": "042",
                "Part": "I",
            }
        ],
        [('Say "what", on\ntwo lines.', "42", "1990-I-7")],
    ),
    "aime24": (
        "test-00000-of-00001.parquet",
        [{"id": 60, "problem": "Find $p$.", "solution": "\\boxed{025}", "url": "https://example.org/1"}],
        [("Find $p$.", "25", "60")],
    ),
    "aime25": ("test.jsonl", [{"id": "0", "problem": "Find $b$.", "answer": "70"}], [("Find $b$.", "70", "0")]),
    "amc23": (
        "test-00000-of-00001.parquet",
        [{"id": 0, "question": "How many miles?", "answer": "27.0", "url": "https://example.org/2"}],
        [("How many miles?", "27", "0")],
    ),
    "math500": (
        "test.jsonl",
        [
            {
                "problem": "Convert the point.",
                "solution": "So $\\boxed{\\left( 3, \\frac{\\pi}{2} \\right)}.$",
                "answer": "\\left( 3, \\frac{\\pi}{2} \\right)",
                "subject": "Precalculus",
                "level": 2,
                "unique_id": "test/precalculus/1.json",
            }
        ],
        [("Convert the point.", "\\left( 3, \\frac{\\pi}{2} \\right)", "test/precalculus/1.json")],
    ),
    "gsm8k": (
        "main/test-00000-of-00001.parquet",
        [gsm8k("Cy buys two at $621 each. What is the price?", "1,242")],
        [("Cy buys two at $621 each. What is the price?", "1242", "")],
    ),
    "minerva-math": (
        "test.jsonl",
        [{"question": "What is the period in seconds?", "answer": "3e8"}],
        [("What is the period in seconds?", "3e8", "")],
    ),
    "olympiadbench": (
        "OlympiadBench/OE_TO_maths_en_COMP/OE_TO_maths_en_COMP.parquet",
        [
            olympiad(1606, "Determine $x$.", ["$\\frac{1}{2}$"]),
            olympiad(1610, "Which two?", ["$2$", "$-7$"], "Let $n$ be even."),
        ],
        [("Determine $x$.", "\\frac{1}{2}", "1606"), ("Let $n$ be even.\nWhich two?", "2, -7", "1610")],
    ),
}


def write_rows(path: Path, rows: list[dict]) -> Path:
    """In the format that the file's ending says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pd.DataFrame(rows).to_parquet(path, index=False)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows, indent=2), encoding="utf-8")
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    return path
