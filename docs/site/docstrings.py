"""Show the blocks of code in docstrings, which follow two colons as in reStructuredText, as Python in Markdown."""

import re
import textwrap

import griffe

_BLOCK = re.compile(r"::\n\n((?:(?: {4}.*)?\n?)+)")


class CodeBlocks(griffe.Extension):
    """An extension of griffe, which reads the docstrings for the reference."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: object) -> None:
        """Change the docstring of a module, class or function."""
        if obj.docstring:
            obj.docstring.value = _BLOCK.sub(_fenced, obj.docstring.value)


def _fenced(block: re.Match[str]) -> str:
    return f":\n\n```python\n{textwrap.dedent(block[1]).strip()}\n```\n\n"
