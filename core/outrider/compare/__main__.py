"""`python -m outrider.compare bench|...`: measurements of outrider itself. `outrider compare` compares drafters."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from outrider.cli import quiet
from outrider.cli.app import run_app
from outrider.compare import adaptive as adapting
from outrider.compare import bench as benchmark
from outrider.compare import lookups as looking_up
from outrider.compare import partings as parting
from outrider.compare.masks import NODES, ROWS, ragged_batch_cost, tree_mask_cost
from outrider.compare.overhead import DRAFT, VOCABULARY, sampling_overhead
from outrider.compare.prompts import BUILTIN
from outrider.errors import InputError
from outrider.prompt_file import read_prompts
from outrider.target.load import load

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Model = Annotated[str, typer.Option("-m", "--model", help="smollm2, a folder, or a Hub id.")]
Tokens = Annotated[int, typer.Option(help="Length of every text.", min=2)]


@app.command()
def bench(
    model: Model = "smollm2",
    dtype: Annotated[list[str] | None, typer.Option(help="May be given several times.")] = None,
    pairs: Annotated[int, typer.Option(help="Interleaved pairs of each comparison.", min=1)] = 12,
    max_new_tokens: Tokens = 128,
    record: Annotated[Path | None, typer.Option(help="Folder for the runs, to go on after an interruption.")] = None,
) -> None:
    """Speed against transformers' own loop and prompt lookup."""
    if record is not None and record.exists() and not record.is_dir():
        raise InputError(f"--record {record}: not a folder")
    for name in dtype or ["float32", "bfloat16"]:
        with quiet():
            target = load(model, dtype=name)
            for line in benchmark.bench(target, pairs=pairs, max_new_tokens=max_new_tokens, record=record):
                typer.echo(line)
            tree, ragged = tree_mask_cost(target), ragged_batch_cost(target)
            typer.echo(f"a tree of {NODES} nodes / as many tokens in a causal forward: {tree:.2f}   [{name}]")
            typer.echo(f"{ROWS} rows of different lengths / a causal forward of their size: {ragged:.2f}   [{name}]")
    milliseconds, alone, sorting = sampling_overhead()
    typer.echo(
        f"verifying {DRAFT} drafted tokens, temperature 0.7, top-p 0.9, vocabulary {VOCABULARY}: {milliseconds:.1f} ms; over "
        f"the emitted tokens alone with the same processors {alone:.2f}, with transformers' own {sorting:.2f}"
    )


@app.command()
def lookups(
    model: Model = "smollm2",
    dtype: Annotated[list[str] | None, typer.Option(help="May be given several times.")] = None,
    prompts: Annotated[
        Path | None, typer.Option(help="JSONL file of prompts in place of a story and a code edit.")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Interleaved repetitions.", min=1)] = 12,
    max_new_tokens: Tokens = 128,
) -> None:
    """The drafter ngram against the prompt lookup of transformers, economize and flashspec, as far as they are installed."""
    chosen = read_prompts(prompts) if prompts else BUILTIN[:2]
    for name in dtype or ["float32", "bfloat16"]:
        with quiet():
            target = load(model, dtype=name)
            looking_up.lookups(target, chosen, rounds=rounds, max_new_tokens=max_new_tokens)


@app.command()
def adaptive(
    model: Model = "smollm2",
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16, ..., or auto.")] = None,
    rounds: Annotated[int, typer.Option(help="Interleaved pairs of each comparison.", min=1)] = 15,
    max_new_tokens: Tokens = 512,
    record: Annotated[Path | None, typer.Option(help="Folder for the runs, to go on after an interruption.")] = None,
) -> int:
    """Adaptive decoding against plain decoding and fixed lengths; exits with 1 where a bound is passed."""
    with quiet():
        target = load(model, dtype=dtype)
        lines, good = adapting.adaptive(target, rounds=rounds, max_new_tokens=max_new_tokens, record=record)
    for line in lines:
        typer.echo(f"{line}   [{target.info.dtype}, {max_new_tokens} tokens, median of {rounds} pairs]")
    return 0 if good else 1


@app.command()
def partings(
    prompts: Annotated[Path, typer.Option(help="JSONL file of prompts.")],
    model: Model = "smollm2",
    drafter: Annotated[str, typer.Option("-d", "--drafter", help="Whose drafts are verified.")] = "ngram",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16, ..., or auto.")] = "bfloat16",
    count: Annotated[int, typer.Option(help="How many prompts.", min=1)] = 50,
    max_new_tokens: Tokens = 64,
) -> int:
    """Where texts part from plain decoding in half precision, and why; exits with 1 where it finds a fault."""
    chosen, faults = read_prompts(prompts)[:count], 0
    with quiet():
        target = load(model, dtype=dtype)
        for name, options in (("greedy", {"do_sample": False}), ("temperature 1", {"temperature": 1.0, "top_k": 0})):
            found = parting.measure(target, chosen, drafter, {"max_new_tokens": max_new_tokens, "seed": 1, **options})
            typer.echo(f"{name}, {dtype}, {len(chosen)} prompts x {max_new_tokens}: {found}")
            faults += found.faults
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(run_app(app, sys.argv[1:], "outrider.compare"))
