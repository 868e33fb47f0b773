"""Models. A model knows nothing of training: bytes have become numbers before, logits come out."""

import re
from collections.abc import Callable

from torch import nn

from outspan.config import unknown
from outspan.models.convnet import convnet
from outspan.models.mlp import mlp
from outspan.models.wide_resnet import wide_resnet

# Called with the images' shape [C, H, W] and the number of classes.
MODELS: dict[str, Callable[[tuple[int, int, int], int], nn.Module]] = {
    "mlp": lambda shape, classes: mlp(shape, classes),
    "convnet": lambda shape, classes: convnet(shape, classes),
    "wide_resnet-16-4": lambda shape, classes: wide_resnet(shape, classes, depth=16, width=4),
    "wide_resnet-28-2": lambda shape, classes: wide_resnet(shape, classes, depth=28, width=2),
    "wide_resnet-28-10": lambda shape, classes: wide_resnet(shape, classes, depth=28, width=10),
    "wide_resnet-40-2": lambda shape, classes: wide_resnet(shape, classes, depth=40, width=2),
}


def build(name: str, shape: tuple[int, int, int], classes: int) -> nn.Module:
    """Return a model by name, for images [C, H, W]; `mlp-HIDDEN`, and `timm:NAME` where timm is installed."""
    if name.startswith("timm:"):
        try:
            import timm  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise ValueError(f"model {name!r} needs timm, which is not installed") from None
        return timm.create_model(name.removeprefix("timm:"), num_classes=classes, in_chans=shape[0])
    if re.fullmatch("mlp-[1-9][0-9]*", name):
        return mlp(shape, classes, hidden=int(name.removeprefix("mlp-")))
    if name not in MODELS:
        raise unknown("model", name, MODELS, "mlp-HIDDEN", "timm:NAME")
    return MODELS[name](shape, classes)
