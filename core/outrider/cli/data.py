"""`outrider data`: text to train on."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from outrider.cli import quiet
from outrider.errors import InputError
from outrider.target.load import load
from outrider.train.chat_file import Progress
from outrider.train.chats import Chat, read_chats
from outrider.train.conversation import Limits
from outrider.train.preparation import prepare
from outrider.train.synthesis import Recipe, synthesize

app = typer.Typer(help="Make and prepare text to train heads on.", rich_markup_mode=None)


@app.command("synthesize")
def synthesize_command(
    model: Annotated[str, typer.Option("-m", "--model", help="smollm2, a folder, or a Hub id.")],
    out: Annotated[Path, typer.Option(help="The JSONL file; one that is there is gone on with.")],
    tokens: Annotated[int | None, typer.Option(min=1, help="Tokens of answers (1,000,000 without prompts).")] = None,
    prompts: Annotated[Path | None, typer.Option(help="A JSONL file of chats to answer, each once.")] = None,
    openings: Annotated[
        Path | None, typer.Option(help="Beginnings of user turns, a line each; \\n is a new line, an empty line none.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Chats that are written together.")] = 64,
    turns: Annotated[int, typer.Option(min=1, help="User turns of a chat that the model writes.")] = 2,
    max_tokens: Annotated[int, typer.Option(min=16, help="Longest chat.")] = 1024,
    max_answer: Annotated[int, typer.Option(min=1, help="Longest answer.")] = 512,
    temperature: Annotated[
        list[float] | None, typer.Option(min=0.0, help="Of the answers; several are taken in turns (0 and 0.7).")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.")] = 0,
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16, ..., or auto.")] = None,
    device: Annotated[str | None, typer.Option(help="Such as cpu or cuda:0.")] = None,
) -> None:
    """Let a chat model write both sides of chats, or answer your prompts."""
    if prompts and openings:
        raise InputError("--openings are for chats that the model begins; --prompts begin them")
    recipe = Recipe(
        seed=seed,
        batch_size=batch_size,
        temperatures=tuple(temperature or (0.0, 0.7)),
        limits=Limits(turns, max_tokens // 2, max_answer, max_tokens),
        openings=_read_openings(openings) if openings else ("",),
        prompts=tuple(_asked(prompts, chat) for chat in read_chats(prompts)) if prompts else (),
    )
    wanted = tokens if tokens is not None or prompts else 1_000_000
    with quiet():
        done = synthesize(load(model, dtype=dtype, device=device), recipe, out.expanduser(), wanted, _report(wanted))
    typer.echo(f"{out}: {done.chats} chats, {done.tokens} tokens of answers")


@app.command("prepare")
def prepare_command(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="JSONL: messages, or ShareGPT's conversations.")
    ],
    out: Annotated[Path, typer.Option(help="The JSONL file that is written.")],
) -> None:
    """Bring chat files into one shape, without repeats and chats that can't be learnt from."""
    counts = prepare(files, out)
    left = "".join(f", {count} left out: {reason}" for reason, count in counts.items() if reason != "kept")
    typer.echo(f"{out}: {counts['kept']} chats{left}")


def _read_openings(path: Path) -> tuple[str, ...]:
    try:
        lines = path.expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"openings file {path} can't be read: {error}") from error
    return tuple(line.replace("\\n", "\n") for line in lines) or ("",)


def _asked(path: Path, chat: Chat) -> tuple[dict[str, str], ...]:
    """Return a chat up to its last user turn."""
    users = [index for index, message in enumerate(chat.messages) if message["role"] == "user"]
    if not users:
        raise InputError(f"{path}: a chat without a user's turn can't be answered: {json.dumps(chat.to_json())[:80]}")
    return tuple(dict(message) for message in chat.messages[: users[-1] + 1])


def _report(wanted: int | None) -> Callable[[Progress], None]:
    """Return what shows how far the text is, and how long it will take."""
    console, begun, before = Console(stderr=True), time.monotonic(), -1

    def report(done: Progress) -> None:
        nonlocal before
        before = done.tokens if before < 0 else before
        rate = (done.tokens - before) / (time.monotonic() - begun)
        left = (
            f", {(wanted - done.tokens) / rate / 60:.0f} min left" if rate and wanted and done.tokens < wanted else ""
        )
        speed = f", {rate:.0f} a second" if rate else ""
        console.print(f"{done.chats} chats, {done.tokens} tokens of answers{speed}{left}", highlight=False)

    return report
