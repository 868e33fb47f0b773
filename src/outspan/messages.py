"""Parts of error messages."""

from collections.abc import Collection
from difflib import get_close_matches


def unknown(category: str, name: str, known: Collection[str], *others: str) -> ValueError:
    """Return the error for an unknown name. It suggests a similar name, if there is one, and lists all, then `others`."""
    near = get_close_matches(str(name)[:100], known, n=1, cutoff=0.4)  # a long text would take minutes
    hint = f", did you mean {near[0]!r}?" if near else ""
    return ValueError(f"unknown {category} {shown(name)}{hint} (known: {', '.join([*known, *others]) or 'none'})")


def first_line(error: BaseException) -> str:
    """Return the first line of another library's error message, cut to 300 characters, or the error's type if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]


def shown(value: object) -> str:
    """Return a value as an error message shows it: its repr, cut to 80 characters."""
    if type(value) is int and value.bit_length() > 256:
        return f"a whole number of {value.bit_length()} bits"  # printing it is slow, or refused
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
