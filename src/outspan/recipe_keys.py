"""The keys of a recipe as keyword arguments of library functions, with their types."""

from typing import TypedDict


class StudyKeys(TypedDict, total=False):
    """The keys that every library function takes. A study, such as `outspan.measure`, sets all other keys itself."""

    data: str
    model: str
    weights: str
    epochs: int
    steps: int
    batch: int
    lr: float
    optimizer: str
    momentum: float
    weight_decay: float
    schedule: str
    warmup: float
    label_smoothing: float
    clip: float
    accumulate: int
    size: int
    crop: str
    fraction: float
    length: int
    truncate: str
    text_column: str
    label_column: str
    cache: str
    validation: int
    profile: str
    candidates: int
    keep: int
    select: str
    score: str
    score_every: int
    magnitude: float
    strength: float
    ema: float
    finish: float
    adversaries: int
    subpolicies: int
    controller_lr: float
    entropy: float
    policy_epochs: int


class RecipeKeys(StudyKeys, total=False):
    """All keys of a recipe."""

    policy: str
    seed: int
    transforms: str
    depth: int
    probability: float
    defaults: str
    same_class: float
    policy_file: str
