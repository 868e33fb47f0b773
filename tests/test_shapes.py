"""The test suite checks types and shapes at run time."""

from collections.abc import Iterator
from dataclasses import dataclass

import jaxtyping
import pytest
import torch
from jaxtyping import Float32
from torch import Tensor

from outspan.transforms import color
from typecheck import decorate


@decorate
def multiply(values: Float32[Tensor, " size"], weights: Float32[Tensor, " size"], times: int = 1) -> Float32[Tensor, " size"]:
    """Return the products, repeated. The call within it has another size."""
    if len(values) > 1:
        multiply(values[1:], weights[1:])
    return (values * weights).repeat(times)


@decorate
@dataclass
class Weighted:
    values: Float32[Tensor, " size"]
    weights: Float32[Tensor, " size"]
    scale: float = 1.0


@decorate
def count(stop: int) -> Iterator[int]:
    yield from range(stop)


def test_a_wrong_shape_or_type_is_detected():
    with pytest.raises(jaxtyping.TypeCheckError):
        color.invert(torch.zeros(1, 3, 4, 4))
    with pytest.raises(jaxtyping.TypeCheckError):
        color.invert(torch.zeros(3, 4, 4, dtype=torch.uint8))


def test_an_axis_has_one_size_within_a_call():
    for call in (multiply, Weighted):
        with pytest.raises(jaxtyping.TypeCheckError):
            call(torch.ones(2), torch.ones(3))
    assert multiply(torch.ones(3), torch.ones(3)).tolist() == [1, 1, 1]
    with pytest.raises(jaxtyping.TypeCheckError):
        multiply(torch.ones(3), torch.ones(3), 2)  # the result is too long


def test_functions_within_functions_and_generators_are_checked_when_they_are_called():
    def outer(value):
        @decorate
        def inner(number: int) -> str:
            return number

        return inner(value)

    for value in ("text", 3):  # wrong argument, wrong result
        with pytest.raises(jaxtyping.TypeCheckError):
            outer(value)
    with pytest.raises(jaxtyping.TypeCheckError):
        count("text")
    assert list(count(2)) == [0, 1]


def test_an_int_is_accepted_as_a_float():
    assert Weighted(torch.ones(1), torch.ones(1), 2).scale == 2
    with pytest.raises(jaxtyping.TypeCheckError):
        Weighted(torch.ones(1), torch.ones(1), "2")


def test_checks_are_off_for_a_test_that_needs_wrong_arguments(unchecked):
    assert Weighted(torch.ones(1), torch.ones(2), "2").scale == "2"
