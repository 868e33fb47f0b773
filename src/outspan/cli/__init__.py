"""The command line: each command reads its arguments, calls one function, and writes what comes back.

Everything heavy is imported by the command that needs it, so that --help does not wait for torch.
"""

import gc
import sys
import traceback
import warnings
from contextlib import suppress
from importlib.metadata import version
from typing import Annotated

import typer

from outspan.cli import compare, data, images, measure, reproduce, studies, text, theory, train, trained
from outspan.cli.output import echo, echo_error, echo_lines, printable
from outspan.messages import first_line

app = typer.Typer(name="outspan", add_completion=False, rich_markup_mode=None)

_UsageError: type[Exception] = typer.BadParameter.__mro__[2]  # the base of click's errors, wherever typer keeps click


def _show_version(requested: bool) -> bool:
    if requested:
        echo(f"outspan {version('outspan')}")
        raise typer.Exit
    return requested


@app.callback()
def outspan(
    requested: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Exact and fast data augmentation, with transforms chosen per sample."""


app.command("train")(train.train_command)
app.command("evaluate")(trained.evaluate)
app.command("predict")(trained.predict_command)
app.command("compare")(compare.compare_command)
app.command("grid")(compare.grid_command)
app.command("compositions")(trained.compositions)
app.command("measure")(measure.measure_command)
app.command("compose")(studies.compose_command)
app.command("core")(studies.core_command)
app.command("mixup")(studies.mixup_command)
app.command("reproduce")(reproduce.reproduce)
app.add_typer(data.app, name="data")
app.add_typer(text.app, name="text")
app.add_typer(theory.app, name="theory")
app.command("transforms")(images.transforms)
app.command("apply")(images.apply_command)
app.command("gallery")(images.gallery)


def _say_plainly(message: object, *_: object) -> str:
    return f"outspan: {printable(message)}\n"


def _free_quietly(interruption: BaseException) -> None:
    """Free objects that an interruption left half built, such as data loaders, without Python's warnings about them."""
    before, sys.unraisablehook = sys.unraisablehook, lambda _: None
    error: BaseException | None = interruption
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__
    gc.collect()
    sys.unraisablehook = before


def main() -> None:
    """Run the command line; what the user got wrong is one red line and exit code 2, an interruption is 130."""
    from outspan.training import Stopped

    warnings.formatwarning = _say_plainly
    try:
        sys.exit(app(sys.argv[1:] or ["--help"], prog_name="outspan", standalone_mode=False) or 0)
    except (_UsageError, ValueError) as error:
        message, code = getattr(error, "format_message", error.__str__)(), 2
    except OSError as error:  # a folder that is a file, a full disk
        message, code = f"{error.filename or ''}: {error.strerror or error}".removeprefix(": "), 2
    except (RuntimeError, MemoryError) as error:  # a worker that was killed, more than there is memory for
        message, code = first_line(error), 2
    except Stopped as error:
        message, code = str(error), 130
    except (KeyboardInterrupt, typer.Abort) as error:
        message, code = "interrupted", 130
        _free_quietly(error)
    if message.lstrip().startswith("Usage:"):  # a group without a command: its help, as it is
        echo_lines(message)
        sys.exit(0)
    with suppress(OSError):  # a terminal that was closed
        echo_error(message)
    sys.exit(code)
