"""Transforms with the names and arguments of torchvision.transforms.v2: every image of a batch gets its own draws.

A transform takes a uint8 batch [B, C, H, W], or one image [C, H, W], on a CPU or a GPU. Further arguments, such as labels, are
returned unchanged, so a transform can be a step of `v2.Compose`. `MixUp` and `CutMix` take images and labels.

By default each call takes one random number from PyTorch's global generator, as torchvision does. So the workers and the
epochs of a `DataLoader` have different draws, and `torch.manual_seed` repeats them. With `generator=torch.Generator()` the
number comes from that generator. With `seed=0` the draws depend only on the seed and on `step`, which each call must pass.
"""

from outspan.dropin.images import Augment, AugMix, AutoAugment, RandAugment, TrivialAugmentWide
from outspan.dropin.mixing import CutMix, MixUp

__all__ = ["AugMix", "Augment", "AutoAugment", "CutMix", "MixUp", "RandAugment", "TrivialAugmentWide"]
