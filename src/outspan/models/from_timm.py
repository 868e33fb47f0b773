"""Models of timm, with initial weights published by timm or read from a safetensors file."""

from collections.abc import Callable
from textwrap import shorten
from typing import Any

import torch
from torch import nn

from outspan.messages import first_line, shown
from outspan.models.weights import PUBLISHED_WEIGHTS, read_weights


def from_timm(name: str, shape: tuple[int, ...], classes: int, weights: str = "") -> nn.Module:
    """Return `timm:NAME` for images [C, H, W], initialized at random or with `weights`: "published", or a file.

    The classifier layer is new if the number of classes differs from that of the weights.
    """
    try:
        import timm  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError as error:
        if error.name != "timm":
            raise _broken(name, error) from error
        raise ValueError(f"model {shown(name)} needs timm, which is not installed: pip install timm") from None
    except (ImportError, OSError, RuntimeError, AttributeError) as error:  # a torchvision that was built for another torch
        raise _broken(name, error) from error

    def create(**options: Any) -> nn.Module:
        return timm.create_model(name.removeprefix("timm:"), num_classes=classes, in_chans=shape[0], **options)

    state = torch.get_rng_state()
    model = _build(name, create)
    if not weights:
        return model
    options = {} if weights == PUBLISHED_WEIGHTS else {"pretrained_cfg_overlay": {"state_dict": read_weights(weights)}}
    torch.set_rng_state(state)
    pretrained = _build(f"{name}, weights {weights}", lambda: create(pretrained=True, **options))
    _check_weights(name, weights, pretrained, model)
    return pretrained


def _broken(name: str, error: Exception) -> ValueError:
    """Return the error for a timm that is installed and cannot be imported."""
    cause = shorten(first_line(error), 200)
    how = "timm needs a torchvision that fits the installed torch: reinstall both"
    return ValueError(f"model {shown(name)} needs timm, which cannot be imported ({type(error).__name__}: {cause}); {how}")


def _check_weights(name: str, weights: str, pretrained: nn.Module, initial: nn.Module) -> None:
    """Refuse the weights of another model: timm skips what does not fit, and the model would keep its random weights."""
    head: Any = getattr(pretrained, "pretrained_cfg", {}).get("classifier") or ()
    heads = (head,) if isinstance(head, str) else tuple(head)
    before = dict(initial.named_parameters())
    prefixes = tuple(f"{head}." for head in heads)
    matrices = (key for key, parameter in pretrained.named_parameters() if parameter.ndim > 1)
    body = [key for key in matrices if not key.startswith(prefixes)]
    unchanged = [key for key in body if torch.equal(pretrained.get_parameter(key), before[key])]
    if len(unchanged) > len(body) // 10:
        raise ValueError(
            f"weights {weights!r} fit {len(body) - len(unchanged)} of the {len(body)} matrices "
            f"of model {shown(name)}: another model's?"
        )


def _build(name: str, create: Callable[[], nn.Module]) -> nn.Module:
    """Build with timm. Any failure of the name, the network or the weights raises a ValueError of one line."""
    try:
        return create()
    except (OSError, ValueError, RuntimeError, LookupError, TypeError, AttributeError, AssertionError) as error:
        raise ValueError(f"model {name!r}: timm cannot build it ({shorten(str(error), 200)})") from None
