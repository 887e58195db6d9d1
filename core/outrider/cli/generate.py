"""`outrider generate`: a text from a prompt, drafted tokens coloured, one line of statistics."""

import dataclasses
import json
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from outrider.cli import first_speaks, quiet
from outrider.cli.batches import as_dict, run_batches, summary
from outrider.cli.target import Named
from outrider.config import Config, load_config
from outrider.decode.explain import Explanation
from outrider.decode.explain import explain as explain_output
from outrider.decode.request import check_options
from outrider.errors import InputError
from outrider.generation import Stream, stream
from outrider.plugins.words import DrafterChoice, choose, read_options, read_word
from outrider.prompt import encode
from outrider.prompt_file import read_prompts
from outrider.ranks import Ranks, launched_later
from outrider.target.model import Target

DEFAULT_DRAFTER = "ngram"
_DRAFTED, _PLAIN = "\x1b[32m", "\x1b[0m"


class Colour(StrEnum):
    """When drafted tokens are coloured."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


def command(
    prompt: Annotated[str | None, typer.Option("-p", "--prompt", help="The prompt; - reads it from stdin.")] = None,
    prompts: Annotated[Path | None, typer.Option(help="A JSONL file of prompts, in place of -p.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="How many of --prompts are decoded together.")] = 1,
    model: Annotated[
        str | None,
        typer.Option("-m", "--model", help="smollm2, a folder, or a Hub id (required)."),
    ] = None,
    drafter: Annotated[
        str | None,
        typer.Option("-d", "--drafter", help="NAME, NAME[key=value,...], dist/name, or file.py::Class (ngram)."),
    ] = None,
    option: Annotated[list[str] | None, typer.Option("-o", "--option", help="The drafter's key=value.")] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file; flags override it.")] = None,
    max_new_tokens: Annotated[int | None, typer.Option(help="Most new tokens (256).")] = None,
    temperature: Annotated[float | None, typer.Option(help="0 is greedy.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Sample from the k likeliest tokens; 0 from all.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Sample from the likeliest tokens of this mass.")] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same text, whatever the drafter.")] = None,
    rule: Annotated[
        str | None, typer.Option(help="How drafts are verified: match (default), rejection or block.")
    ] = None,
    adaptive: Annotated[
        bool | None,
        typer.Option("--adaptive/--no-adaptive", help="Draft as far as pays, by measured costs (the default)."),
    ] = None,
    chat: Annotated[bool | None, typer.Option("--chat/--raw", help="Use the chat template, or the bare text.")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16, ..., or auto.")] = None,
    device: Annotated[str | None, typer.Option(help="Such as cpu or cuda:0.")] = None,
    device_map: Annotated[str | None, typer.Option(help="Spread the layers over devices: auto.")] = None,
    revision: Annotated[str | None, typer.Option(help="Of a Hub id.")] = None,
    trust_remote_code: Annotated[bool, typer.Option(help="Run the model's own code.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say where the text parts from plain decoding, and why.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, or one a line for --prompts.")
    ] = False,
    color: Annotated[Colour, typer.Option(help="Colour accepted draft tokens.")] = Colour.AUTO,
) -> int:
    """Generate a text: the model's own, sooner."""
    with quiet():
        file = load_config(config) if config else Config()
    flags = {
        "max_new_tokens": max_new_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "seed": seed,
        "rule": rule,
        "adaptive": adaptive,
        "chat": chat,
    }
    options = file.options(flags)
    named = Named.of(
        file,
        model,
        dtype=dtype,
        device=device,
        device_map=device_map,
        revision=revision,
        trust_remote_code=trust_remote_code,
    )
    if prompts is not None and (prompt is not None or explain):
        raise InputError(f"--prompts can't be combined with {'--explain' if prompt is None else '-p'}")
    if prompts is None and prompt is None:
        raise InputError("which prompt? -p TEXT, -p - to read it from stdin, or --prompts FILE")
    alone = not launched_later()  # a pipe can be read once
    read = read_prompts(prompts) if prompts and alone else ()
    text = _read_prompt(prompt) if prompt is not None and alone else ""
    with quiet():
        choice = _choose_drafter(drafter, option or [], file)
    check_options({name: value for name, value in options.items() if name != "chat"})
    with quiet():
        choose(choice.name, choice.options)  # a wrong drafter is found before a model is loaded for it
        target = named.load()
        with first_speaks(target.ranks):
            read, text = target.ranks.decided(lambda: (read, text))
            if prompts:
                return run_batches(target, read, batch_size, choice, options, as_json=as_json)
            prompt_ids = encode(target, text, options.pop("chat", None))
            return _run(target, prompt_ids, choice, options, explain=explain, as_json=as_json, color=color)


def _run(
    target: Target,
    prompt: list[int],
    choice: DrafterChoice,
    options: dict[str, Any],
    *,
    explain: bool,
    as_json: bool,
    color: Colour,
) -> int:
    with stream(target, prompt, choice.name, choice.options, **options) as steps:
        if not as_json:
            _print_steps(steps, color, target.ranks)
            typer.echo(summary(steps.stats, steps.drafter), err=True)
        result = steps.result()
    found = explain_output(target, prompt, result.token_ids, **(options | {"seed": result.seed})) if explain else None
    if as_json:
        typer.echo(json.dumps(as_dict(result) | ({"explanation": dataclasses.asdict(found)} if found else {})))
    elif found:
        _print_explanation(target, found)
    return 1 if found and found.faults else 0


def _read_prompt(prompt: str) -> str:
    if prompt != "-":
        return prompt
    if sys.stdin is None:
        raise InputError("-p - reads the prompt from stdin, and there is none")
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"the prompt on stdin is no UTF-8 text: {error}") from error


def _choose_drafter(word: str | None, pairs: list[str], file: Config) -> DrafterChoice:
    """Take the drafter of the flags, else of the file; -o goes over the options of either."""
    extra = read_options(pairs)
    listed = file.drafter_choice
    if word is None and listed is None and file.drafters:
        raise InputError("[[drafters]] are for outrider compare; name the one to generate with by -d or [drafter]")
    choice = read_word(word) if word is not None else listed or DrafterChoice(DEFAULT_DRAFTER)
    if listed and listed.name == choice.name:
        choice = DrafterChoice(choice.name, listed.options | choice.options)
    return DrafterChoice(choice.name, choice.options | extra)


def _print_steps(steps: Stream, color: Colour, ranks: Ranks) -> None:
    coloured = color is Colour.ALWAYS or (color is Colour.AUTO and _terminal_takes_colour())

    def say(text: str) -> None:
        """Print, in the first process; where its reader has gone, all of them stop."""
        ranks.decided(lambda: _write(text))

    for step in steps:
        pairs = zip(step.texts, step.from_draft, strict=True)
        say("".join(f"{_DRAFTED}{text}{_PLAIN}" if coloured and drafted and text else text for text, drafted in pairs))
    say("\n")


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _terminal_takes_colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _print_explanation(target: Target, found: Explanation) -> None:
    typer.echo(
        f"{len(found.partings)} of {found.positions} tokens part from plain decoding; the number of rows alone moves a logit "
        f"by up to {found.logit_difference:.2g}, which bridges gaps up to {found.allowed_gap:.2g}",
        err=True,
    )
    for one in found.partings:
        mine, plain = (repr(target.tokenizer.decode([token])) for token in (one.token, one.plain_token))
        gap = "removed by a filter" if one.gap is None else f"gap {one.gap:.2g}"
        typer.echo(f"  token {one.position}: {mine}, plain {plain}, {gap}: {one.verdict}", err=True)
