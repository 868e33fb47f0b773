"""The transforms as a list for people and programs."""

from dataclasses import dataclass

from outspan.transforms.table import PAPER_16, TEXT_SETS, TEXT_TRANSFORMS, TRANSFORMS, Transform


@dataclass(frozen=True)
class TransformInfo:
    """What the table says about a transform. Values at levels are None if the transform is not graded."""

    name: str
    of: str  # "images" or "texts"
    unit: str
    at_level_0: float | None
    at_level_1: float | None
    at_level_minus_1: float | None
    levels: tuple[float, float] | None  # the lowest and the highest level
    needs: tuple[str, ...]  # of "place", "partner" and "fill"
    in_paper: bool
    description: str


def list_transforms() -> list[TransformInfo]:
    """Return all image transforms, then all text transforms."""
    in_paper = {*PAPER_16, *TEXT_SETS["paper3"]}
    return [
        _info(name, noun, transform, name in in_paper)
        for noun, table in (("images", TRANSFORMS), ("texts", TEXT_TRANSFORMS))
        for name, transform in table.items()
    ]


def _info(name: str, noun: str, transform: Transform, in_paper: bool) -> TransformInfo:
    graded = transform.graded
    needs = {"place": transform.placed, "partner": transform.mixes, "fill": transform.fills}
    return TransformInfo(
        name=name,
        of=noun,
        unit=transform.unit,
        at_level_0=transform.rest if graded else None,
        at_level_1=transform.rest + transform.span if graded else None,
        at_level_minus_1=transform.rest - transform.span if graded and transform.signed else None,
        levels=transform.levels if graded else None,
        needs=tuple(need for need, is_needed in needs.items() if is_needed),
        in_paper=in_paper,
        description=(transform.function.__doc__ or "").splitlines()[0],
    )
