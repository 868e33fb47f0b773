"""The command line. Each command parses its arguments, calls one library function, and prints the result.

Heavy modules are imported inside the commands, so that --help does not import torch.
"""

import gc
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import version
from types import MappingProxyType
from typing import Annotated

import typer

from outspan.children import is_first_of_other_machine, launched_rank
from outspan.cli import compare, data, export, images, measure, report, reproduce, studies, text, theory, train, trained
from outspan.cli.options import describe_usage_error
from outspan.cli.output import echo, echo_error, echo_lines, printable, wait_for_first_process
from outspan.messages import first_line

_REPORT = 1.0  # seconds in which a rank can report an error, before torchrun ends it because another one has exited
app = typer.Typer(name="outspan", add_completion=False, rich_markup_mode=None)

_UsageError: type[Exception] = typer.BadParameter.__mro__[2]  # the base class of click's errors; typer may bundle click


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
    """Data augmentation for PyTorch: train and compare policies, measure and apply transforms."""


# A new command is its function and a line here.
COMMANDS: Mapping[str, Callable[..., None] | typer.Typer] = MappingProxyType(
    {
        "train": train.train_command,
        "evaluate": trained.evaluate,
        "predict": trained.predict_command,
        "export": export.export_command,
        "compare": compare.compare_command,
        "grid": compare.grid_command,
        "compositions": trained.compositions,
        "report": report.report_command,
        "candidates": report.candidates_command,
        "measure": measure.measure_command,
        "compose": studies.compose_command,
        "core": studies.core_command,
        "mixup": studies.mixup_command,
        "reproduce": reproduce.reproduce_command,
        "transforms": images.transforms_command,
        "apply": images.apply_command,
        "gallery": images.gallery_command,
        "data": data.app,
        "text": text.app,
        "theory": theory.app,
    }
)


_STUDIES = ("compare", "grid", "measure", "compose", "core", "mixup", "reproduce")  # they train many models


def add_command(name: str, command: Callable[..., None] | typer.Typer) -> None:
    """Add a command, or a group of commands, to the command line."""
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name)
    else:
        app.command(name)(command)


for _name, _command in COMMANDS.items():
    add_command(_name, _command)


def _format_warning(message: object, *_: object) -> str:
    return f"outspan: {printable(message)}\n"


def _with_home(argument: str) -> str:
    """Return an argument with the home folder for a ~ that the shell has left, as in --out=~/runs and --set data=~/photos."""
    name, equals, path = ("", "", argument) if argument.startswith("~") else argument.rpartition("=")
    return name + equals + os.path.expanduser(path)


def _free_quietly(interruption: BaseException) -> None:
    """Free half-built objects, such as data loaders, after an interruption, without Python's warnings about them."""
    before, sys.unraisablehook = sys.unraisablehook, lambda _: None
    error: BaseException | None = interruption
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__
    gc.collect()
    sys.unraisablehook = before


def main() -> None:
    """Run the command line. An error of the user is one red line and exit code 2; an interruption is exit code 130."""
    from outspan.training import Diverged, RankFailed, Stopped

    warnings.formatwarning = _format_warning
    rank = launched_rank()
    stopped = 130 if rank is None else 0  # torchrun would report a rank that stops on request as a failure
    arguments = [_with_home(argument) for argument in sys.argv[1:]]
    try:
        if rank is not None and arguments and arguments[0] in _STUDIES:
            how = "start it without torchrun, and use --jobs or --engine ray for parallel runs"
            wait_for_first_process()
            raise ValueError(f"torchrun is for `outspan train`, got `outspan {arguments[0]}`: {how}")
        sys.exit(app(arguments or ["--help"], prog_name="outspan", standalone_mode=False) or 0)
    except _UsageError as error:
        wait_for_first_process()
        message, code = describe_usage_error(error, arguments), 2
    except (RankFailed, Diverged) as error:  # all ranks have it; one reports it, and the first of each other machine
        message, code = str(error), 2
        if (rank or isinstance(error, RankFailed)) and not is_first_of_other_machine():
            time.sleep(_REPORT)
            sys.exit(code)
    except ValueError as error:
        message, code = str(error), 2
    except OSError as error:  # a folder that is a file, a full disk
        message, code = f"{error.filename or ''}: {error.strerror or error}".removeprefix(": "), 2
    except (RuntimeError, MemoryError) as error:  # a killed worker process, out of memory
        message, code = first_line(error), 2
    except Stopped as error:
        message, code = str(error), stopped
    except (KeyboardInterrupt, typer.Abort) as error:
        message, code = "interrupted", stopped
        _free_quietly(error)
    if message.lstrip().startswith("Usage:"):  # a group without a command: print its help
        echo_lines(message)
        sys.exit(0)
    with suppress(OSError):  # the terminal is closed
        if not rank or code:
            echo_error(f"rank {rank}: {message}" if rank else message)
    sys.exit(code)
