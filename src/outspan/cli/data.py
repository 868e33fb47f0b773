"""Commands for data sets: list and download."""

from typing import Annotated

import typer

from outspan.cli.output import echo

app = typer.Typer(help="List and download data sets.", no_args_is_help=True)


@app.command("list")
def list_command() -> None:
    """List the known data sets, and which of them are available.

    Example: outspan data list
    """
    from outspan.data.sets import SETS, load
    from outspan.downloads import root

    echo(f"data folder: {root()}")
    for name in SETS:
        try:
            data = load(name)
            status = f"{len(data.train):,} train and {len(data.test):,} test {data.test.noun}, {len(data.classes)} classes"
        except ValueError as error:
            status = f"not available: {error}"
        echo(f"{name:>10}  {status}")


@app.command("fetch")
def fetch_command(name: Annotated[str, typer.Argument(help="Data set: mnist, cifar10, cifar100, svhn or imdb.")]) -> None:
    """Download a data set from its authors and verify its SHA-256.

    If the download is interrupted, run the same command again to resume.

    Example: outspan data fetch cifar10
    """
    from rich.console import Console
    from rich.progress import Progress

    from outspan.data.fetch import fetch
    from outspan.data.sets import load
    from outspan.downloads import root

    def show(file: str, here: int, total: int) -> None:
        bar.update(task, description=file, completed=here, total=total or None)

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(name)
        folder = fetch(name, root(), on_bytes=show)
    data = load(name)
    echo(f"{name}: {len(data.train):,} train and {len(data.test):,} test {data.test.noun} in {folder}")
