"""Public names of a package that are imported when they are first used, so that the command line starts without torch."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def attach(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package.

    Args:
        package: The name of the package.
        homes: The module of each public name, as an absolute path. A name that is its module's own is a submodule. With
            "module:name", the public name is another name for `name` in the module.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home, _, attribute = homes[name].partition(":")
        module = import_module(home)
        return module if home == f"{package}.{name}" else getattr(module, attribute or name)

    return get, lambda: sorted(homes)
