"""What every target promises: a result, or a ValueError of one short line. Nothing else."""

from collections.abc import Callable
from typing import Any

LONGEST = 800  # characters of a message; the list of all keys of a recipe takes some 550 of them


class Broken(AssertionError):
    """Raised where a target gives what it must not: a message that is too long, a wrong result."""


def attempt(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Return what a function returns, or None where it refuses as it should; any other exception passes."""
    try:
        return function(*arguments, **options)
    except ValueError as error:
        check_message(error)
        return None


def check_message(error: ValueError) -> None:
    """Refuse a message that is empty, of several lines or very long."""
    message = str(error)
    if not message.strip():
        raise Broken(f"{type(error).__name__} without a message") from error
    if len(message.splitlines()) > 1:
        raise Broken(f"a message of {len(message.splitlines())} lines: {message[:300]!r}") from error
    if len(message) > LONGEST:
        raise Broken(f"a message of {len(message)} characters: {message[:300]!r}") from error


def expect(holds: bool, reason: str) -> None:
    """Refuse a wrong result."""
    if not holds:
        raise Broken(reason)
