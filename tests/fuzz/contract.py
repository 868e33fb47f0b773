"""The contract of every target: a result, or a ValueError with one short line."""

from collections.abc import Callable
from typing import Any

MAX_LENGTH = 800  # characters of a message; the list of all recipe keys takes about 550


class Broken(AssertionError):
    """A target broke the contract: a message is too long, or a result is wrong."""


def attempt(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Return the result of a function, or None for a ValueError within the contract. Other exceptions pass."""
    try:
        return function(*arguments, **options)
    except ValueError as error:
        check_message(error)
        return None


def check_message(error: ValueError) -> None:
    """Raise `Broken` for a message that is empty, has several lines or is very long."""
    message = str(error)
    if not message.strip():
        raise Broken(f"{type(error).__name__} without a message") from error
    if len(message.splitlines()) > 1:
        raise Broken(f"a message of {len(message.splitlines())} lines: {message[:300]!r}") from error
    if len(message) > MAX_LENGTH:
        raise Broken(f"a message of {len(message)} characters: {message[:300]!r}") from error


def expect(holds: bool, reason: str) -> None:
    """Raise `Broken` for a wrong result."""
    if not holds:
        raise Broken(reason)
