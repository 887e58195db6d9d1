import json
from pathlib import Path
from typing import Any

import outrider
from outrider.compare import acceptance, steps
from outrider.prompt import encode
from outrider.prompt_file import NamedPrompt, read_prompts
from train.chatty import target

PROMPTS = [NamedPrompt(str(one), f"w{one} w{one + 1} w{one}", "even" if one % 2 == 0 else "odd") for one in range(6)]
OPTIONS: dict[str, Any] = {"max_new_tokens": 12, "temperature": 0.0, "seed": 1, "adaptive": False}


def test_categories_are_read_and_chosen_evenly(tmp_path: Path) -> None:
    lines = [{"turns": ["a", "b"], "question_id": 7, "category": "qa"}, {"prompt": "c"}]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    assert read_prompts(tmp_path / "x.jsonl") == (NamedPrompt("7", "a", "qa"), NamedPrompt("2", "c"))
    assert [one.name for one in acceptance.chosen(PROMPTS, 2)] == ["0", "1", "2", "3"]
    assert acceptance.chosen(PROMPTS, None) == PROMPTS


def test_prompts_are_cut_with_their_template_whole() -> None:
    long = NamedPrompt("x", " ".join(["w1"] * 50), "qa")
    found = acceptance.cut(target(), long, 20)
    assert len(encode(target(), found.text)) == 20
    assert encode(target(), found.text)[-2:] == encode(target(), long.text)[-2:]
    assert acceptance.cut(target(), PROMPTS[0], 20) == PROMPTS[0]


def test_figures_are_those_of_the_runs(tmp_path: Path) -> None:
    head, _, row = acceptance.measure(target(), ["ngram"], PROMPTS, OPTIONS, tmp_path / "runs.jsonl")
    assert head.count("|") == row.count("|")
    stats = [outrider.generate(target(), one.text, "ngram", **OPTIONS).stats for one in PROMPTS]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    for cell, chosen in ((cells[1], stats), (cells[2], stats[::2]), (cells[3], stats[1::2])):
        tokens, taken = sum(one.num_tokens - 1 for one in chosen), sum(one.num_steps for one in chosen)
        assert cell == f"{tokens / taken:.2f}"
    again = list(acceptance.measure(target(), ["ngram"], PROMPTS, OPTIONS, tmp_path / "runs.jsonl"))
    assert again[2] == row


def test_steps_say_that_texts_are_the_same(tmp_path: Path) -> None:
    table = list(steps.measure(target(), [steps.Setting("ngram")], PROMPTS[:2], OPTIONS, 1))
    assert table[0].count("|") == table[2].count("|") == table[3].count("|")
    assert "identical" in table[3]
    record = tmp_path / "runs.jsonl"
    list(steps.measure(target(), [steps.Setting("ngram")], PROMPTS[:2], OPTIONS, 1, record))
    lines = record.read_text().splitlines()
    last = json.loads(lines[-1])
    last["token_ids"][3] += 1
    record.write_text("\n".join([*lines[:-1], json.dumps(last)]) + "\n")
    parted = list(steps.measure(target(), [steps.Setting("ngram")], PROMPTS[:2], OPTIONS, 1, record))
    assert "FAULT" in "".join(parted)
