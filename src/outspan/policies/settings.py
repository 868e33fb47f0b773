"""The settings that all policies share, and their checks."""

from typing import TypedDict

from outspan.limits import check_whole
from outspan.policies.batch import check_preprocess
from outspan.policies.drawing import check_proposal, find_defaults, names_of
from outspan.policies.steps import Proposal, Schedule
from outspan.policies.strength import check_strength
from outspan.transforms.normalize import Preprocess


class Settings(TypedDict):
    """The keyword arguments that all policies share. `Auto`, `Plain`, `Uncertain` and `Adversarial` have a field for each."""

    classes: int  # number of classes, the width of the soft targets
    defaults: str | Proposal  # transforms that are applied after those of the policy, e.g. "flip"
    preprocess: Preprocess | None  # usually `Normalize`; None scales pixels to [0, 1]
    strength: float  # scales the levels and probabilities of the policy's transforms, not of the defaults
    finish: float  # last fraction of the steps, in which only the defaults are applied
    steps: int | None  # total number of steps of the run; needed for `finish`
    seed: int
    rank: int | None  # of this process, and the number of processes; None: those of the process group
    world: int | None


def check_settings(
    defaults: str | Proposal,
    preprocess: Preprocess | None,
    strength: float,
    finish: float,
    steps: int | None,
    classes: int | None = None,
) -> None:
    """Raise a ValueError for a setting that no policy can use."""
    if classes is not None:
        check_whole("classes", classes, 2)
    check_proposal(find_defaults(defaults), "defaults")
    check_preprocess(preprocess)
    check_strength(strength, finish, steps)


def check_transforms(preprocess: Preprocess | None, *proposals: Proposal | Schedule | None) -> None:
    """Raise a ValueError for transforms of images if `preprocess` is for texts: a run would fail when one is first drawn."""
    known = getattr(preprocess, "transforms", None)
    if known is None:
        return
    for proposal in proposals:
        for one in proposal.proposals if isinstance(proposal, Schedule) else (proposal,):
            if wrong := [name for name in names_of(one) if name not in known]:
                how = 'use those of texts, as in outspan.uniform(1, transforms=("switchout", "word_replacement"))'
                raise ValueError(
                    f"transform {wrong[0]!r} is not for texts, and preprocess is {type(preprocess).__name__}: {how}"
                )
