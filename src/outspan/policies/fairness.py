"""Which policies of a comparison crop and flip by themselves, so that the others need `defaults`."""

from collections.abc import Iterable

from outspan.policies.table import BENCHMARKS, POLICIES


def policies_with_crops(policies: Iterable[str], data: str) -> list[str]:
    """Return the policies that crop and flip the images of a data set without any `defaults`."""
    return [name for name in policies if POLICIES[name].crops and BENCHMARKS.get(data) != "none"]


def policies_without_transforms(policies: Iterable[str], data: str) -> list[str]:
    """Return the policies other than `none` that have no transforms of their own for a data set."""
    return [name for name in policies if POLICIES[name].crops and BENCHMARKS.get(data) == "none"]
