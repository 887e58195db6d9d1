"""`outrider compare`: drafters side by side on one's own model, prompts and machine."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from outrider.cli import first_speaks, quiet
from outrider.cli.arguments import batch_sizes, writable
from outrider.cli.comparison import Teller, settings_of, show, status
from outrider.cli.target import Named
from outrider.compare import trace as tracing
from outrider.compare.conversations import Asking, conversations, cut, first_of_each, shard_of
from outrider.compare.files import save as save_comparison
from outrider.compare.lineup import every_drafter, lineup
from outrider.compare.measure import Measurement
from outrider.compare.pooled import with_figures
from outrider.compare.prompts import BUILTIN
from outrider.compare.report.page import environment, write_report
from outrider.compare.result import Comparison, Prompt, Run, Settings
from outrider.compare.verdicts import explained
from outrider.config import Config, load_config
from outrider.decode.request import check_options
from outrider.errors import InputError, OutriderError
from outrider.prompt_file import NamedPrompt, read_prompts
from outrider.ranks import launched_later
from outrider.target.model import Target
from outrider.verify.rules import check_rule

_TOKENS: Final = 128
_SEED: Final = 0


class Format(StrEnum):
    """How a comparison is printed."""

    TABLE = "table"
    MD = "md"
    CSV = "csv"
    JSON = "json"
    JSONL = "jsonl"


def command(
    drafter: Annotated[
        list[str] | None,
        typer.Option("-d", "--drafter", help="NAME, NAME[key=value,...], file.py::Class; several times."),
    ] = None,
    every: Annotated[bool, typer.Option("--every", help="All drafters that need no options for the model.")] = False,
    model: Annotated[
        str | None, typer.Option("-m", "--model", help="smollm2, a folder, or a Hub id (required).")
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option(help="JSONL, JSON or text file in place of the three built-in prompts.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file with [[drafters]]; flags override the rest.")] = None,
    with_hf: Annotated[
        bool, typer.Option("--with-hf", help="Also transformers' own generate, prompt lookup, assisted generation.")
    ] = False,
    assistant: Annotated[str | None, typer.Option(help="The smaller model of assisted generation.")] = None,
    runs: Annotated[int, typer.Option("--runs", "--rounds", help="Interleaved repeats.", min=1)] = 3,
    max_new_tokens: Annotated[int | None, typer.Option(help=f"Most new tokens ({_TOKENS}).")] = None,
    batch_size: Annotated[str, typer.Option(help="Texts at once; several, such as 1,2,4, give rows of each.")] = "1",
    temperature: Annotated[float | None, typer.Option(help="0 is greedy, and the default without a filter.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Sample from the k likeliest tokens; 0 from all.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Sample from the likeliest tokens of this mass.")] = None,
    seed: Annotated[int | None, typer.Option(help=f"Every prompt's is derived from it ({_SEED}).")] = None,
    rule: Annotated[
        list[str] | None, typer.Option(help="match, rejection or block; several give rows of each.")
    ] = None,
    adaptive: Annotated[
        bool | None, typer.Option("--adaptive/--no-adaptive", help="Draft as far as pays (the default).")
    ] = None,
    acceptance_only: Annotated[
        bool, typer.Option("--acceptance-only", help="Only what steps bring: once, without a baseline, not adaptive.")
    ] = False,
    each: Annotated[int | None, typer.Option(help="Prompts of a category; all by default.", min=1)] = None,
    count: Annotated[int | None, typer.Option(help="How many prompts, from the first.", min=1)] = None,
    turns: Annotated[int | None, typer.Option(help="Turns of a conversation; all by default.", min=1)] = None,
    longest: Annotated[int | None, typer.Option(help="Every turn is cut to so many tokens.", min=8)] = None,
    chat: Annotated[bool | None, typer.Option("--chat/--raw", help="Use the chat template, or the bare text.")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16, ..., or auto.")] = None,
    device: Annotated[str | None, typer.Option(help="Such as cpu or cuda:0.")] = None,
    device_map: Annotated[str | None, typer.Option(help="Spread the layers over devices: auto.")] = None,
    revision: Annotated[str | None, typer.Option(help="Of a Hub id.")] = None,
    trust_remote_code: Annotated[bool, typer.Option(help="Run the model's own code.")] = False,
    shard: Annotated[
        str | None, typer.Option(help="Only a part of the prompts, such as 2/4; see outrider merge.")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option("--resume", "--record", help="File that keeps every run, to go on after an interruption."),
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Write everything as JSON.")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write a report that opens in any browser.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Write a JSON line for every step.")] = None,
    how: Annotated[Format, typer.Option("-f", "--format", help="How the result is printed.")] = Format.TABLE,
) -> int:
    """Compare drafters with plain decoding, and with each other; status 1 where a text is wrong or a row failed."""
    with quiet():
        file = load_config(config) if config else Config()
    flags = {
        "max_new_tokens": max_new_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "seed": seed,
        "adaptive": adaptive,
        "chat": chat,
    }
    given = file.options(flags)
    named = Named.of(
        file,
        model,
        dtype=dtype,
        device=device,
        device_map=device_map,
        revision=revision,
        trust_remote_code=trust_remote_code,
    )
    words: list[Any] = [*(drafter or []), *[{"name": one.name, "options": one.options} for one in file.choices]]
    if not (words or with_hf or every):
        raise InputError("which drafters? -d NAME, several times, --every, or [[drafters]] in --config")
    if assistant is not None and not with_hf:
        raise InputError("--assistant is the smaller model of transformers' assisted generation: add --with-hf")
    rules = rule or [given.pop("rule", "match")]
    given.pop("rule", None)
    for one in rules:
        check_rule(one)
    sizes = batch_sizes(batch_size)
    check_options({key: value for key, value in given.items() if key != "chat"})
    save, trace, html = (path and writable(path) for path in (save, trace, html))
    if html is not None:
        environment()  # what is missing for the report is missed before the measurement
    read: Sequence[NamedPrompt] = ()
    if not launched_later():  # a pipe can be read once
        read = first_of_each(read_prompts(prompts) if prompts else BUILTIN, each)[:count]
        read = [replace(one, later=one.later[: turns - 1]) if turns else one for one in read]
    with quiet():
        lineup(words, rules=rules, batch_sizes=sizes)  # a wrong drafter is found before a model is loaded for it
        target = named.load()
        files = _Files(save, html, trace) if target.ranks.first else _Files()
        with first_speaks(target.ranks):
            read = target.ranks.decided(lambda: read)
            if every:
                words += _every(target, words)
            entrants = lineup(
                words,
                rules=rules,
                batch_sizes=sizes,
                baseline=not acceptance_only,
                with_hf=with_hf,
                assistant=assistant,
                static=target.info.device.type == "cuda",
            )
            repeats = 1 if acceptance_only else runs
            settings = _settings(target, named.model, given, sizes, repeats, shard, longest, acceptance_only)
            if longest is not None:
                read = [cut(target, one, longest, settings.chat) for one in read]
            asked = _Asked(settings, read, texts=prompts is None)
            measurement = Measurement(target, entrants, read, settings, texts=asked.texts, record=resume, hear=Teller())
            return _finish(measurement, asked, files, str(how.value))


def _every(target: Target, named: Sequence[Any]) -> list[str]:
    """Return the drafters that need no options, but those that were named; says which are left out."""
    found, without = target.ranks.decided(lambda: every_drafter(target))
    for name, reason in without.items():
        typer.echo(f"left out: {name} ({reason})", err=True)
    return [name for name in found if name not in named]


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is asked of all rows."""

    settings: Settings
    prompts: Sequence[NamedPrompt]
    texts: bool


def _settings(
    target: Target,
    model: str,
    given: Mapping[str, Any],
    sizes: tuple[int, ...],
    repeats: int,
    shard: str | None,
    longest: int | None,
    acceptance_only: bool,
) -> Settings:
    options = dict(given)
    seed, adaptive = options.pop("seed", _SEED), options.pop("adaptive", not acceptance_only)
    chat = options.pop("chat", None)
    greedy = {} if options.keys() & {"temperature", "top_k", "top_p"} else {"temperature": 0.0}
    generation = {"max_new_tokens": _TOKENS} | greedy | options
    return settings_of(
        target,
        model,
        generation,
        seed=seed,
        chat=chat,
        repeats=repeats,
        batch_sizes=sizes,
        adaptive=adaptive,
        longest=longest,
        acceptance_only=acceptance_only,
        shard=shard,
    )


@dataclass(frozen=True, slots=True)
class _Files:
    """Where the result goes, beside the terminal."""

    save: Path | None = None
    html: Path | None = None
    trace: Path | None = None

    def write(self, found: Comparison) -> tuple[list[Path], BaseException | None]:
        """Write what can be written; returns that, and what went wrong."""
        failure: BaseException | None = None
        written: list[Path] = []
        for path, write in ((self.save, save_comparison), (self.html, write_report)):
            try:
                if path is not None:
                    write(found, path)
                    written.append(path)
            except (OSError, OutriderError) as error:
                failure = error
        return written, failure


def _finish(measurement: Measurement, asked: _Asked, files: _Files, how: str) -> int:
    """Measure, save and print; what was measured is kept whatever ends it."""
    with ExitStack() as stack:
        if files.trace is not None:
            file = stack.enter_context(files.trace.open("w", encoding="utf-8"))

            def see(run: Run, prompt: Prompt) -> None:
                file.write("".join(f"{line}\n" for line in tracing.lines(run, prompt)))
                file.flush()

            measurement = replace(measurement, sees=see)
        found = measurement.run()
    if not found.runs:
        failed = next((row.error for row in found.rows if row.error), None)
        if measurement.stopped is not None:
            raise measurement.stopped
        raise OutriderError(f"nothing could be measured: {failed}")
    asking = Asking(measurement.target, chat=asked.settings.chat, seed=asked.settings.seed, texts=asked.texts)
    said = shard_of(conversations(asked.prompts), None, 1)
    found = with_figures(explained(found, measurement.target, asking, said))
    written, failure = files.write(found)
    failure = failure or measurement.stopped
    show(found, how)
    if files.html in written:
        typer.echo(f"report: {files.html}", err=True)
    if failure is not None:
        raise failure
    return status(found)
