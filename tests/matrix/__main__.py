"""The matrix: every causal model type through outrider and through its own `generate`.

`python -m matrix [name ...]`, run from the tests folder, prints a line a model and exits with 1 where a text differs.
`--write FILE` keeps the table as Markdown.
"""

import argparse
import contextlib
import io
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import transformers

from matrix.architectures import BuildError, build, model_types, variants
from matrix.encoder_decoders import ENCODER_DECODERS
from matrix.verdict import Verdict, judge

Make = Callable[[], Any]


def known() -> dict[str, Make]:
    """Every model of the matrix by name."""
    types = {name: partial(build, name) for name in model_types()}
    return types | {name: make for name, make in variants().items() if name not in types} | ENCODER_DECODERS


def verdict(make: Make) -> Verdict:
    """Build a model and judge it; what some models print is swallowed."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = make()
        except BuildError as error:
            return Verdict("not built", note=str(error))
        return judge(model)


def main(arguments: list[str]) -> int:
    """Print the matrix; returns the exit status."""
    parser = argparse.ArgumentParser(prog="matrix")
    parser.add_argument("names", nargs="*", help="models; all by default")
    parser.add_argument("--write", type=Path, help="keep the table in this Markdown file")
    given = parser.parse_args(arguments)
    transformers.utils.logging.set_verbosity_error()
    models = known()
    wrong = [name for name in given.names if name not in models]
    if wrong:
        parser.error(f"no model is named {wrong[0]}")
    found: dict[str, Verdict] = {}
    for name in given.names or models:
        found[name] = verdict(models[name])
        print(f"{name:32} {found[name].outcome:10} {found[name].tier:7} {found[name].note}", flush=True)
    counts = Counter(one.outcome for one in found.values())
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()))
    if given.write:
        given.write.write_text(_table(found), encoding="utf-8")
    return 1 if counts["DIFFERENT"] else 0


def _table(found: dict[str, Verdict]) -> str:
    counts = Counter(one.outcome for one in found.values())
    version = transformers.__version__
    lines = [
        "# Models",
        "",
        f"Written by `make matrix` on transformers {version}. For every causal model type a tiny random model (float64 where "
        "it can, windows and sparse choices shorter than the text) wrote 40 tokens greedily, at one row and at three rows of "
        "different lengths, under drafts that are wrong, right and branching. *Equal* means that every text was that of the "
        "untouched model's own `generate`, and that in every row a sibling that was not the first was accepted. The tiers are "
        "explained in the README; what is refused is refused at load, before the first token.",
        "",
        ", ".join(f"**{count}** {outcome}" for outcome, count in counts.most_common()) + ".",
        "",
        "| model | outcome | tier | note |",
        "|---|---|---|---|",
    ]
    rows = [f"| {name} | {one.outcome} | {one.tier} | {_cell(one.note)} |" for name, one in found.items()]
    return "\n".join([*lines, *rows]) + "\n"


def _cell(note: str) -> str:
    return note.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
