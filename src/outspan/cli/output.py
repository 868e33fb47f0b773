"""What commands print. Names of files and classes come from outside: nothing in them may control the terminal."""

import typer


def printable(text: object, keep: str = "") -> str:
    r"""Return a text with every character that cannot be printed escaped as Python does, except those in `keep`.

    >>> print(printable("cat\x1b[31m\n"))
    cat\x1b[31m\n
    """
    return "".join(
        character if character.isprintable() or character in keep else repr(character)[1:-1] for character in str(text)
    )


def echo(message: object = "", *, err: bool = False) -> None:
    """Print a message as one line to standard output or standard error."""
    typer.echo(printable(message), err=err)


def echo_lines(message: object) -> None:
    """Print a message of several lines. It must have no names from outside, unless they are escaped already."""
    typer.echo(printable(message, keep="\n"))


def echo_error(message: object) -> None:
    """Print an error as one red line to standard error."""
    typer.secho(f"outspan: {printable(' '.join(str(message).split()))}", fg="red", err=True)
