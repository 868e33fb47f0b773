"""The table of transforms."""

import pytest

from outspan import PAPER_16, TRANSFORMS
from outspan.transforms.table import find

# From Table 5 of the paper and the design: the values at level 1 and, for signed transforms, at level -1.
ENDS = {
    "brightness": (1.9, 0.1),
    "color": (1.9, 0.1),
    "contrast": (1.9, 0.1),
    "sharpness": (1.9, 0.1),
    "posterize": (4,),
    "solarize": (0,),
    "rotate": (30, -30),
    "shear_x": (0.3, -0.3),
    "shear_y": (0.3, -0.3),
    "translate_x": (10 / 32, -10 / 32),
    "translate_y": (10 / 32, -10 / 32),
    "cutout": (0.5,),
    "mixup": (1,),
    "cutmix": (1,),
    "random_crop": (4 / 32,),
}
LIMITS = {"rotate": 4.5, "shear_x": 3.3, "shear_y": 3.3, "translate_x": 3.2, "translate_y": 3.2, "posterize": 2.0}
LIMITS |= dict.fromkeys(("brightness", "color", "contrast", "sharpness"), 1.1)


UNGRADED = {
    "identity",
    "auto_contrast",
    "equalize",
    "invert",
    "horizontal_flip",
    "vertical_flip",
    "blur",
    "smooth",
    "resized_crop",
}


@pytest.mark.parametrize("name", sorted({*ENDS, *UNGRADED}))
def test_ranges_match_the_design(name):
    transform = TRANSFORMS[name]
    assert transform.graded == (name not in UNGRADED)
    assert transform.limit == LIMITS.get(name, 1.0)
    if transform.graded:
        ends = (transform.rest + transform.span, transform.rest - transform.span)
        assert ends[: 1 + transform.signed] == pytest.approx(ENDS[name])
        assert transform.unit


@pytest.mark.parametrize("name", TRANSFORMS)
def test_every_transform_has_a_docstring(name):
    lines = (TRANSFORMS[name].function.__doc__ or "").splitlines()
    assert lines
    assert lines[0].endswith(".")
    if TRANSFORMS[name].graded:
        assert "identity" in lines[0] or "(1)" in lines[0]


def test_the_sixteen_transforms_of_the_paper():
    assert len(set(PAPER_16)) == 16
    assert list(PAPER_16) == sorted(PAPER_16)


@pytest.mark.parametrize(("typed", "meant"), [("rotat", "rotate"), ("sheer_x", "shear_x"), ("autocontrast", "auto_contrast")])
def test_the_nearest_name_is_suggested(typed, meant):
    with pytest.raises(ValueError, match=f"unknown transform '{typed}', did you mean '{meant}'"):
        find(typed)
