"""`outrider train`: heads and draft models for a target."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from outrider.cli import quiet
from outrider.errors import InputError
from outrider.plugins.words import read_options
from outrider.target.load import load
from outrider.train.run import Job, read_train_options, train, trainable
from outrider.train.trainer import Figures, TrainSettings


def command(
    drafter: Annotated[
        str, typer.Argument(metavar="DRAFTER", help="medusa, eagle, eagle3, draft-model, or another's.")
    ],
    model: Annotated[str, typer.Option("-m", "--model", help="smollm2, a folder, or a Hub id.")],
    data: Annotated[list[Path], typer.Option(help="A JSONL file of chats; may be given more than once.")],
    out: Annotated[Path, typer.Option(help="The folder of the heads; a training in it is gone on with.")],
    option: Annotated[
        list[str] | None, typer.Option("-o", "--option", help="key=value of the drafter's training.")
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Times that the text is gone through.")] = 1,
    rate: Annotated[float, typer.Option(min=0.0, help="Highest learning rate.")] = 1e-3,
    batch_tokens: Annotated[int, typer.Option(min=16, help="Most tokens of a forward.")] = 2048,
    accumulate: Annotated[int, typer.Option(min=1, help="Forwards of an update.")] = 2,
    max_tokens: Annotated[int, typer.Option(min=8, help="Tokens of a chat that are read.")] = 1024,
    share: Annotated[float, typer.Option(min=0.0, max=1.0, help="How much of the text is used.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Of the order of the text, and of first weights.")] = 0,
    precision: Annotated[str, typer.Option(help="no, bf16 or fp16: of the forwards of what is trained.")] = "no",
    states: Annotated[
        Path | None, typer.Option(help="Folder of the target's states, computed once (OUT/states).")
    ] = None,
    online: Annotated[
        bool, typer.Option("--online", help="Compute the states as they are needed, and store none.")
    ] = False,
    heads: Annotated[Path | None, typer.Option("--from", help="Go on from the heads in another folder.")] = None,
    evaluate_every: Annotated[int, typer.Option(min=0, help="Updates between measurements; 0 is at the end.")] = 0,
    prompts: Annotated[int, typer.Option(min=0, help="Held-out prompts that acceptance is measured on.")] = 8,
    dtype: Annotated[str | None, typer.Option(help="Of the target: float32, bfloat16, ..., or auto.")] = None,
    device: Annotated[str | None, typer.Option(help="Such as cpu or cuda:0.")] = None,
) -> None:
    """Train what a drafter needs on a model's own answers; several processes by `accelerate launch -m outrider train ...`."""
    if online and states:
        raise InputError("--online stores no states; leave --states out")
    chosen = read_options(option or [])
    read_train_options(trainable(drafter), chosen)
    job = Job(
        drafter=drafter,
        model=model,
        data=tuple(data),
        out=out.expanduser(),
        options=chosen,
        settings=TrainSettings(
            epochs=epochs,
            rate=rate,
            batch_tokens=batch_tokens,
            accumulate=accumulate,
            seed=seed,
            precision=precision,
        ),
        longest=max_tokens,
        share=share,
        states=None if online else states or out.expanduser() / "states",
        heads=heads,
        evaluate_every=evaluate_every,
        prompts=prompts,
    )
    console = Console(stderr=True, soft_wrap=True)
    with quiet():
        found = train(load(model, dtype=dtype, device=device), job, _say(console), _report(console))
    typer.echo(json.dumps({"heads": str(job.out)} | found))


def _say(console: Console) -> Callable[[str], None]:
    return lambda line: console.print(line, highlight=False, markup=False)


def _report(console: Console) -> Callable[[Figures], None]:
    """Return what prints a line of figures: step, loss and hits by depth, and how long it will take."""
    first: list[Figures] = []

    def report(now: Figures) -> None:
        first[:] = first or [now]
        done = now.step - first[0].step
        each = (now.seconds - first[0].seconds) / done if done else now.seconds / now.step
        loss = " ".join(f"{one:.2f}" for one in now.loss)
        right = " ".join(f"{one:.2f}" for one in now.right)
        left = f"{(now.steps - now.step) * each / 60:.0f} min left"
        _say(console)(f"step {now.step}/{now.steps}  loss {loss}  right {right}  {left}")

    return report
