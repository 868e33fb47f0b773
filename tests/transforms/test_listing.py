"""The list of transforms agrees with the table."""

from outspan.transforms.listing import list_transforms
from outspan.transforms.table import ALL


def test_every_transform_is_listed():
    entries = {entry.name: entry for entry in list_transforms()}
    assert list(entries) == list(ALL)
    rotate, invert, mixup = entries["rotate"], entries["invert"], entries["mixup"]
    assert (rotate.at_level_0, rotate.at_level_1, rotate.at_level_minus_1, rotate.levels) == (0, 30, -30, (-4.5, 4.5))
    assert (invert.at_level_0, invert.levels, invert.needs) == (None, None, ())
    assert (mixup.needs, mixup.in_paper, mixup.of) == (("partner",), True, "images")
    assert all(entry.description for entry in entries.values())
