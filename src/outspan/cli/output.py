"""Print messages. Names of files and classes are not trusted: control characters in them are escaped."""

import os
import time

import typer

from outspan.children import launched_rank
from outspan.messages import printable

_PATIENCE = 30.0  # seconds in which torchrun has ended all processes after the first error


def echo(message: object = "", *, err: bool = False) -> None:
    """Print a message as one line to standard output or standard error."""
    typer.echo(printable(message), err=err)


def echo_lines(message: object) -> None:
    """Print a message of several lines. Names that are not trusted must be escaped before."""
    typer.echo(printable(message, keep="\n"))


def echo_error(message: object) -> None:
    """Print an error as one red line to standard error."""
    typer.secho(f"outspan: {printable(' '.join(str(message).split()))}", fg="red", err=True)


def wait_for_first_process() -> None:
    """Under torchrun, wait before an error in the arguments: the first process of the machine has it, too, and reports it.

    torchrun then ends the others.
    """
    if launched_rank() is not None and os.environ.get("LOCAL_RANK", "0") != "0":
        time.sleep(_PATIENCE)
