"""Writes the card of shipped heads from what their training and their measurements left behind.

    python training/smollm2/card.py BUILD DRAFTER RUNS.jsonl... > README.md

BUILD is the folder of `make heads`; RUNS are records of `python -m outrider.compare acceptance`.
"""

import json
import sys
from pathlib import Path
from typing import Any

from outrider.decode.stats import acceptance_by_depth

LICENCE = "Apache-2.0, as the model whose text they were trained on."


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a JSONL file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def curve(log: list[dict[str, Any]]) -> list[str]:
    """Return the learning curve as a table: ten evenly spaced reports."""
    told = [one for one in log if "loss" in one]
    picked = [told[round(at * (len(told) - 1) / 9)] for at in range(10)] if len(told) > 10 else told
    rows = ["| update | loss by depth | target's likeliest token hit, by depth |", "|---|---|---|"]
    for one in picked:
        loss, right = (" ".join(f"{value:.2f}" for value in one[name]) for name in ("loss", "right"))
        rows.append(f"| {one['step']} of {one['steps']} | {loss} | {right} |")
    return rows


def measured(path: Path) -> list[str]:
    """Return what one record of acceptance says."""
    head, *runs = lines(path)
    settings = head["settings"]
    tokens, steps = (sum(one["stats"][name] for one in runs) for name in ("num_tokens", "num_steps"))
    depths = acceptance_by_depth(one["stats"]["acceptance_histogram"] for one in runs)
    heat = settings["temperature"]
    return [
        f"- {len(runs)} prompts, {settings['max_new_tokens']} new tokens, {'greedy' if not heat else f'temperature {heat}'}, "
        f"`{runs[0]['contestant']}`: **{(tokens - len(runs)) / steps:.2f} tokens a step**; accepted by depth "
        + " ".join(f"{share:.2f}" for share in depths)
    ]


def main(build: Path, drafter: str, records: list[Path]) -> None:
    """Print a card."""
    log = lines(build / drafter / "training.jsonl")
    chats = sorted(build.glob("chats-*.jsonl"))
    tokens = sum(one.get("tokens", 0) for path in chats for one in lines(path))
    recipe = json.loads(Path(f"{chats[0]}.recipe.json").read_text(encoding="utf-8"))
    last = [one for one in log if "loss" in one][-1]
    print(f"# {drafter} for smollm2\n")
    print("Heads for SmolLM2-135M-Instruct, the embedded default of outrider; they are found without being named.\n")
    print(
        f"- Data: {sum(len(lines(path)) for path in chats)} chats of the model with itself, {tokens} tokens of answers at"
    )
    print(
        f"  temperatures {recipe['temperatures']}, seeds {', '.join(path.stem[-2:].strip('-') for path in chats)} and on."
    )
    print("- Commands: `make heads` ([training/smollm2/heads.sh](../../../../../training/smollm2/heads.sh)).")
    print(f"- Training: {last['steps']} updates, {last['seconds'] / 3600:.1f} hours on one core.")
    print(f"- Licence: {LICENCE}\n")
    print("## Measured\n\nPrompts cut to 1,024 tokens, never trained on; every token through the verifier.\n")
    print("\n".join(line for path in records for line in measured(path)))
    print("\n## Learning curve\n")
    print("\n".join(curve(log)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], [Path(one) for one in sys.argv[3:]])
