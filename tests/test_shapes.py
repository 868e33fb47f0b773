"""The test suite checks shapes at run time."""

import jaxtyping
import pytest
import torch

from outspan.transforms import color


def test_a_wrong_shape_or_type_is_detected():
    with pytest.raises(jaxtyping.TypeCheckError):
        color.invert(torch.zeros(1, 3, 4, 4))
    with pytest.raises(jaxtyping.TypeCheckError):
        color.invert(torch.zeros(3, 4, 4, dtype=torch.uint8))
