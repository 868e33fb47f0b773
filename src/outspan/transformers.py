"""Augmentation in the `Trainer` of Hugging Face transformers (docs/loops.md)."""

from typing import TYPE_CHECKING

from outspan.lazy import attach

if TYPE_CHECKING:
    from outspan.integrations.collators import ImageCollator as ImageCollator
    from outspan.integrations.transformers import AugmentedTrainer as AugmentedTrainer
    from outspan.integrations.transformers import Augmenting as Augmenting
    from outspan.text.tokenized import TokenizedTexts as TokenizedTexts
    from outspan.text.tokenized import tokenize as tokenize

_HOMES = {
    "ImageCollator": "outspan.integrations.collators",
    **dict.fromkeys(("TokenizedTexts", "tokenize"), "outspan.text.tokenized"),
    **dict.fromkeys(("AugmentedTrainer", "Augmenting"), "outspan.integrations.transformers"),
}
__all__ = ["AugmentedTrainer", "Augmenting", "ImageCollator", "TokenizedTexts", "tokenize"]
__getattr__, __dir__ = attach(__name__, _HOMES)
