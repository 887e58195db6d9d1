"""Puts trained heads where the built-in drafters find them, with a card of what made them and what they were measured to give.

    python training/smollm2/ship.py BUILD DRAFTER RUN.json...

BUILD is the folder of `make heads`; each RUN is what `outrider compare --acceptance-only --save` wrote.
"""

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from outrider import load
from outrider.compare.files import dumps, read
from outrider.compare.result import Comparison, Figures

SHIPPED: Final = Path(__file__).parents[2] / "drafters/outrider_drafters/heads/smollm2"
HEADS: Final = ("config.json", "target.json")
"""Beside the weights, whose file each drafter names."""
LICENCE: Final = "Apache-2.0, as the model whose text they were trained on."


def main(build: Path, drafter: str, runs: Sequence[Path]) -> None:
    """Copy the heads and write `README.md` and `figures.json` beside them."""
    out = SHIPPED / drafter
    out.mkdir(parents=True, exist_ok=True)
    made = build / drafter
    for path in (*(made / name for name in HEADS), *made.glob("*.safetensors")):
        shutil.copyfile(path, out / path.name)
    measured = [read(path) for path in runs]
    (out / "figures.json").write_text("".join(f"{dumps(_without_texts(one))}\n" for one in measured))
    (out / "README.md").write_text("\n".join(card(build, drafter, measured)) + "\n", encoding="utf-8")


def card(build: Path, drafter: str, measured: Sequence[Comparison]) -> list[str]:
    """Return the lines of a card."""
    stages = [*sorted(build.glob(f"{drafter}-[0-9]")), build / drafter]  # each went on from the one before
    logs = [(stage.name, _reports(stage / "training.jsonl")) for stage in stages]
    files = sorted(build.glob("*-[0-9].jsonl"))
    written = [line for path in files for line in lines(path)]
    recipe = json.loads(Path(f"{files[0]}.recipe.json").read_text(encoding="utf-8"))
    hours = sum(log[-1]["seconds"] for _, log in logs) / 3600
    return [
        f"# {drafter} for smollm2",
        "",
        "Heads for SmolLM2-135M-Instruct, the embedded default of outrider; they are found without being named.",
        "",
        f"- Data: {len(written)} texts that the model wrote itself, {_answered(written):,} tokens of answers at temperatures "
        f"{' and '.join(map(str, recipe['temperatures']))}; nobody else's text is among them.",
        "- Commands, with their seeds: `make heads` ([heads.sh](../../../../../training/smollm2/heads.sh)).",
        f"- Training: {' + '.join(str(log[-1]['steps']) for _, log in logs)} updates, {hours:.1f} hours on one core that "
        "did other things too.",
        f"- Licence: {LICENCE}",
        "",
        "## Measured",
        "",
        "Spec-Bench prompts (half of them, never trained on), cut to 1,024 tokens, 128 new ones; every token went through",
        "the verifier under the rule `match`. Tokens a step are the mean acceptance length; accepted is the share of drafts",
        "that held to depth 1, 2, ... All figures are in `figures.json`.",
        "",
        *[line for one in measured for line in _table(one)],
        "## Learning curve",
        "",
        *[line for stage, log in logs for line in _curve(stage, log)],
    ]


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a JSONL file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def _answered(chats: Sequence[dict[str, Any]]) -> int:
    """Return the tokens of all answers, their ends included."""
    tokenizer = load("smollm2").tokenizer
    said = [one["content"] for chat in chats for one in chat["messages"] if one["role"] == "assistant"]
    return sum(len(ids) + 1 for ids in tokenizer(said, add_special_tokens=False)["input_ids"])


def _reports(log: Path) -> list[dict[str, Any]]:
    return [one for one in lines(log) if "loss" in one]


def _without_texts(one: Comparison) -> Comparison:
    return replace(one, runs=(), prompts=(), parts=tuple(replace(part, machine={}) for part in one.parts))


def _table(one: Comparison) -> list[str]:
    heat = one.settings.generation.get("temperature", 0)
    kinds = [part.category for part in one.figures[0].by_category]
    return [
        f"{len(one.prompts)} prompts, {f'temperature {heat}' if heat else 'greedy'}, {one.settings.dtype}:",
        "",
        "| | tokens a step | accepted | " + " | ".join(kinds) + " |",
        "|---" * (len(kinds) + 3) + "|",
        *[_row(each) for each in one.figures],
        "",
    ]


def _row(each: Figures) -> str:
    length = each.mean_acceptance_length
    parts = [f"{part.mean_acceptance_length or 0:.2f}" for part in each.by_category]
    depths = " ".join(f"{share:.2f}" for share in each.acceptance_by_depth)
    return f"| `{each.row}` | **{length.value if length else 0:.2f}** | {depths} | " + " | ".join(parts) + " |"


def _curve(stage: str, log: Sequence[dict[str, Any]]) -> list[str]:
    """Return a learning curve as a table: ten evenly spaced reports."""
    picked = [log[round(at * (len(log) - 1) / 9)] for at in range(10)] if len(log) > 10 else log
    rows = [
        f"`{stage}`:",
        "",
        "| update | loss by depth | the target's likeliest token was hit, by depth |",
        "|---|---|---|",
    ]
    for one in picked:
        loss, right = (" ".join(f"{value:.2f}" for value in one[name]) for name in ("loss", "right"))
        rows.append(f"| {one['step']} of {one['steps']} | {loss} | {right} |")
    return [*rows, ""]


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], [Path(one) for one in sys.argv[3:]])
