"""The `outrider` command: its subcommands, and how errors end it."""

import os
import sys
from typing import Annotated, Any, Final

import typer
from typer.main import get_command

import outrider
from outrider.cli import (
    check,
    compare,
    data,
    diff,
    drafters,
    fetch,
    generate,
    heads,
    inspect,
    merge,
    plugin,
    plugins,
    report,
    train,
    tune,
)
from outrider.errors import InputError, OutriderError
from outrider.ranks import launched

_INTERRUPTED: Final = 130
_ALONE: Final = ("tune", "data")

app = typer.Typer(
    name="outrider",
    help="Lossless speculative decoding: the model's own text, sooner, with a drafter picked by name.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# typer brings a click of its own, or uses the installed one, by its version; its public names lead to the right base.
_UsageError: Final[Any] = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")

app.command("generate")(generate.command)
app.command("compare")(compare.command)
app.command("tune")(tune.command)
app.command("diff")(diff.command)
app.command("merge")(merge.command)
app.command("report")(report.command)
app.command("inspect")(inspect.command)
app.add_typer(heads.app, name="heads")
app.add_typer(data.app, name="data")
app.command("train")(train.command)
app.command("drafters")(drafters.command)
app.command("plugins")(plugins.command)
app.add_typer(plugin.app, name="plugin")
app.command("check")(check.command)
app.command("fetch")(fetch.command)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0 fine, 1 a run that failed, 2 bad input, 130 Ctrl-C."""
    sys.exit(run_app(app, sys.argv[1:] if arguments is None else arguments, "outrider"))


@app.callback(invoke_without_command=True)
def _common(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"outrider {outrider.__version__}")
        raise typer.Exit
    if context.invoked_subcommand in _ALONE and launched():
        raise InputError(
            f"outrider {context.invoked_subcommand} runs in one process; torchrun is for generate, compare and train"
        )


def run_app(application: typer.Typer, arguments: list[str], name: str) -> int:
    """Run a command line and return its exit status; every error is one line on stderr."""
    command: Any = get_command(application)
    if sys.stdout is None:
        return _fail("there is no standard output to write to", 1)
    try:
        status = command.main(arguments or ["--help"], prog_name=name, standalone_mode=False)
        sys.stdout.flush()
        if status == _INTERRUPTED:  # typer makes a status of Ctrl-C itself, and says nothing
            raise KeyboardInterrupt
    except OutriderError as error:
        return _fail(str(error), error.exit_status)
    except _UsageError as error:
        return _fail(error.format_message().replace("Value error, ", ""), 2)
    except (KeyboardInterrupt, typer.Abort):
        print("\ninterrupted", file=sys.stderr)  # noqa: T201
        return _INTERRUPTED
    except (BrokenPipeError, SystemExit) as error:
        # Whoever read us has seen enough, which typer turns into an exit of its own; Python would complain at its end.
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return _fail(f"the output can't be written: {error.strerror or error}", 1)
    if not arguments:
        return 2
    return status if isinstance(status, int) else 0


def _fail(message: str, status: int) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)  # noqa: T201
    return status
