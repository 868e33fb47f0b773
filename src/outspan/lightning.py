"""Augmentation in Lightning: the callback `Augment` (docs/loops.md)."""

from typing import TYPE_CHECKING

from outspan.lazy import attach

if TYPE_CHECKING:
    from outspan.integrations.lightning import Augment as Augment

__all__ = ["Augment"]
__getattr__, __dir__ = attach(__name__, {"Augment": "outspan.integrations.lightning"})
