"""Augmentation in the `Trainer` of Hugging Face transformers (docs/loops.md)."""

from typing import TYPE_CHECKING

from outspan.lazy import attach

if TYPE_CHECKING:
    from outspan.integrations.collators import ImageCollator as ImageCollator
    from outspan.integrations.collators import TokenizedTexts as TokenizedTexts
    from outspan.integrations.collators import tokenize as tokenize
    from outspan.integrations.transformers import AugmentedTrainer as AugmentedTrainer
    from outspan.integrations.transformers import Augmenting as Augmenting

_HOMES = {
    **dict.fromkeys(("ImageCollator", "TokenizedTexts", "tokenize"), "outspan.integrations.collators"),
    **dict.fromkeys(("AugmentedTrainer", "Augmenting"), "outspan.integrations.transformers"),
}
__all__ = ["AugmentedTrainer", "Augmenting", "ImageCollator", "TokenizedTexts", "tokenize"]
__getattr__, __dir__ = attach(__name__, _HOMES)
