"""The run-time type checker of the suite: `--jaxtyping-packages` makes it check all functions of outspan.

jaxtyping's own decorator binds the arguments of every call and checks them twice, which would take half of the time of the
suite. In `decorate`, beartype checks them once, and jaxtyping only keeps the sizes of the axes of a call apart from others.
"""

import dataclasses
import functools
import inspect
import typing
from typing import Any

import jaxtyping
from beartype import BeartypeConf, beartype
from beartype.door import die_if_unbearable
from jaxtyping._decorator import jaxtyped

# An int is accepted as a float, as static type checkers do.
_CONF = BeartypeConf(is_pep484_tower=True, violation_type=jaxtyping.TypeCheckError)
check = beartype(conf=_CONF)
_SIZES = jaxtyped("context")  # within it, all axes of the same name must have the same size


def decorate(checked: Any) -> Any:
    """Return a function with its checks, or a dataclass with those of its `__init__`."""
    if inspect.isclass(checked):
        if dataclasses.is_dataclass(checked) and "__init__" in vars(checked):
            checked.__init__ = decorate(checked.__init__)
        return checked
    try:
        hints = typing.get_type_hints(checked)
    except NameError:  # imported for static type checkers only, which beartype refuses
        return jaxtyped(checked, typechecker=check)
    if inspect.isgeneratorfunction(checked):  # beartype would check the arguments when the first value is needed
        return jaxtyped(checked, typechecker=check)
    is_nested = "<locals>" in checked.__qualname__
    fast = _check_nested(checked, hints) if is_nested else check(checked)
    shaped = any(map(_has_shape, hints.values()))

    @functools.wraps(checked)
    def call(*arguments: Any, **options: Any) -> Any:
        if jaxtyping.config.jaxtyping_disable:
            return checked(*arguments, **options)
        if not shaped:
            return fast(*arguments, **options)
        with _SIZES:
            return fast(*arguments, **options)

    return call


def _check_nested(checked: Any, hints: dict[str, Any]) -> Any:
    """Return a nested function with its checks. It is defined again in every call, and beartype takes longer to compile it."""
    signature = inspect.signature(checked)

    def call(*arguments: Any, **options: Any) -> Any:
        values = signature.bind(*arguments, **options).arguments
        for name in values.keys() & hints.keys():
            die_if_unbearable(values[name], hints[name], conf=_CONF)
        result = checked(*arguments, **options)
        die_if_unbearable(result, hints.get("return", Any), conf=_CONF)
        return result

    return call


def _has_shape(hint: Any) -> bool:
    return (inspect.isclass(hint) and issubclass(hint, jaxtyping.AbstractArray)) or any(map(_has_shape, typing.get_args(hint)))


jaxtyping.jaxtyped = lambda *, typechecker: decorate  # this is what jaxtyping's import hook decorates with
