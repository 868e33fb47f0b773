"""The table of all transforms: function, unit, range and arguments. A new transform is one line here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from torch import Tensor

from outspan.messages import unknown
from outspan.transforms import color, erase, filter, geometry, mix, token_ops, word_ops


@dataclass(frozen=True, slots=True)
class Transform:
    """A function of a batch and a magnitude, `rest + span * level`. Level 0 of a graded transform is the identity."""

    function: Callable[..., Any]
    rest: float = 0.0
    span: float = 0.0  # 0: not graded, the level is ignored
    unit: str = ""
    limit: float = 1.0  # the largest |level| allowed; 1 is the end of the paper's range
    signed: bool = True  # whether a level may be negative
    placed: bool = False  # takes `place`
    fills: bool = False  # takes `fill`
    stage: str = "tokens"  # of text only: what it changes: "sentences", before documents are truncated, "words" or "tokens"
    # Of text only: "cache", translations in it; "proposals", words in it; "wordnet"; "case", a tokenizer that sees it.
    needs: str = ""
    label_weight: Callable[..., Tensor] | None = None  # of mixing transforms: the partner's weight in the label

    @property
    def graded(self) -> bool:
        """Whether the transform depends on the level."""
        return self.span != 0

    @property
    def levels(self) -> tuple[float, float]:
        """The lowest and the highest allowed level, in float32 as in plans."""
        limit = float(np.float32(self.limit))
        return (-limit if self.signed else 0.0), limit

    @property
    def mixes(self) -> bool:
        """Whether the transform takes a partner."""
        return self.label_weight is not None


def _identity(images: Tensor) -> Tensor:
    """Change nothing."""
    return images


TRANSFORMS: Mapping[str, Transform] = MappingProxyType(
    {
        "identity": Transform(_identity),
        "auto_contrast": Transform(color.auto_contrast),
        "brightness": Transform(color.brightness, 1.0, 0.9, "factor", limit=1.1),
        "color": Transform(color.color, 1.0, 0.9, "factor", limit=1.1),
        "contrast": Transform(color.contrast, 1.0, 0.9, "factor", limit=1.1),
        "cutout": Transform(erase.cutout, 0.0, 0.5, "side / image's side", signed=False, placed=True, fills=True),
        "equalize": Transform(color.equalize),
        "invert": Transform(color.invert),
        "mixup": Transform(mix.mixup, 0.0, 1.0, "partner's weight", signed=False, label_weight=mix.mixup_label_weight),
        "posterize": Transform(color.posterize, 8.0, -4.0, "bits kept", limit=2.0, signed=False),
        "rotate": Transform(geometry.rotate, 0.0, 30.0, "degrees", limit=4.5),
        "sharpness": Transform(filter.sharpness, 1.0, 0.9, "factor", limit=1.1),
        "shear_x": Transform(geometry.shear_x, 0.0, 0.3, "columns / row", limit=3.3),
        "shear_y": Transform(geometry.shear_y, 0.0, 0.3, "rows / column", limit=3.3),
        "solarize": Transform(color.solarize, 256.0, -256.0, "threshold", signed=False),
        "translate_x": Transform(geometry.translate_x, 0.0, 10 / 32, "shift / width", limit=3.2),
        "translate_y": Transform(geometry.translate_y, 0.0, 10 / 32, "shift / height", limit=3.2),
        "blur": Transform(filter.blur),
        "cutmix": Transform(
            mix.cutmix, 0.0, 1.0, "side / image's side", signed=False, placed=True, label_weight=mix.cutmix_label_weight
        ),
        "horizontal_flip": Transform(geometry.horizontal_flip),
        "random_crop": Transform(geometry.random_crop, 0.0, 4 / 32, "padding / side", signed=False, placed=True),
        "resized_crop": Transform(filter.resized_crop, placed=True),
        "smooth": Transform(filter.smooth),
        "vertical_flip": Transform(geometry.vertical_flip),
    }
)


def _of_text(function: Callable[..., Any], span: float, unit: str, stage: str = "words", needs: str = "") -> Transform:
    return Transform(function, 0.0, span, unit, signed=False, placed=True, stage=stage, needs=needs)


# For text. Level 0 is the identity. The place of a row is the seed of its draws.
TEXT_TRANSFORMS: Mapping[str, Transform] = MappingProxyType(
    {
        "switchout": _of_text(token_ops.switchout, 0.2, "temperature / length", "tokens"),
        "word_replacement": _of_text(token_ops.word_replacement, 0.3, "fraction of words", "tokens"),
        "back_translation": _of_text(token_ops.back_translation, 1.0, "fraction of sentences", "sentences", "cache"),
        "protected_replacement": _of_text(token_ops.protected_replacement, 0.3, "fraction of words", "tokens"),
        "word_deletion": _of_text(word_ops.word_deletion, 0.2, "fraction of words"),
        "word_swap": _of_text(word_ops.word_swap, 0.2, "swaps / words"),
        "synonym_replacement": _of_text(word_ops.synonym_replacement, 0.2, "fraction of words", needs="wordnet"),
        "word_insertion": _of_text(word_ops.word_insertion, 0.2, "insertions / words", needs="wordnet"),
        "punctuation_insertion": _of_text(word_ops.punctuation_insertion, 1 / 3, "most marks / words"),
        "masked_replacement": _of_text(word_ops.masked_replacement, 0.3, "fraction of words", needs="proposals"),
        "keyboard_typos": _of_text(word_ops.keyboard_typos, 0.2, "fraction of words"),
        "ocr_errors": _of_text(word_ops.ocr_errors, 0.2, "fraction of words"),
        "casing": _of_text(word_ops.casing, 0.2, "fraction of words", needs="case"),
        "sentence_shuffle": _of_text(token_ops.sentence_shuffle, 1.0, "fraction of sentences", "sentences"),
        "sentence_crop": _of_text(token_ops.sentence_crop, 0.5, "fraction of sentences", "sentences"),
    }
)

TEXT_SETS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "words": ("switchout", "word_replacement"),
        "paper3": ("switchout", "word_replacement", "back_translation"),
        "eda": ("synonym_replacement", "word_insertion", "word_swap", "word_deletion"),
    }
)
PAPER_16 = (
    "auto_contrast", "brightness", "color", "contrast", "cutout", "equalize", "invert", "mixup",
    "posterize", "rotate", "sharpness", "shear_x", "shear_y", "solarize", "translate_x", "translate_y",
)  # fmt: skip


BY_NOUN: Mapping[str, Mapping[str, Transform]] = MappingProxyType({"images": TRANSFORMS, "texts": TEXT_TRANSFORMS})
ALL: Mapping[str, Transform] = MappingProxyType({**TRANSFORMS, **TEXT_TRANSFORMS})


def find(name: str, known: Mapping[str, Transform] = ALL) -> Transform:
    """Return a transform by name; an unknown name raises a ValueError that suggests the nearest known one."""
    if name in known:
        return known[name]
    raise unknown("transform", name, known)
