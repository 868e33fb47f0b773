"""The training loss on soft targets, its excess over the lowest possible loss, label smoothing, and the losses of users."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from outspan.messages import first_line, shown
from outspan.models.outputs import read_logits
from outspan.shapes import Float32, describe


def soft_cross_entropy(logits: Any, targets: Tensor, *, reduction: str = "mean") -> Tensor:
    """Return the mean cross entropy against soft targets [B, classes]. With reduction="none", return one loss per sample.

    `logits` are a tensor [B, classes], or the output of a Hugging Face model, which has the attribute `logits`.
    """
    return torch.nn.functional.cross_entropy(read_logits(logits), targets, reduction=reduction)


def check_loss(loss: object) -> None:
    """Refuse what cannot be a loss for `sample_losses`, as far as this can be seen without calling it."""
    if isinstance(loss, type):
        raise ValueError(f"loss must be a function or a module, got the class {loss.__name__}: pass {loss.__name__}()")
    if not callable(loss):
        raise ValueError(f'loss must be a function of (logits, targets, reduction="none") or a module, got {shown(loss)}')
    if not _takes_options(loss) and not _takes_options(loss, reduction="none"):
        raise ValueError(f"loss {_name(loss)} must take logits and targets: use a loss such as torch.nn.CrossEntropyLoss()")


def sample_losses(
    loss: Callable[..., Tensor], logits: Float32[Tensor, "B classes"], targets: Float32[Tensor, "B classes"]
) -> Float32[Tensor, " B"]:
    """Return one loss per sample, whatever the reduction of the loss is; afterwards it is as before.

    A loss with one value per class, such as binary cross entropy, counts with its mean over the classes.
    """
    options = {"reduction": "none"} if _takes_options(loss, reduction="none") else {}
    modules = [] if options else _reducing_modules(loss)
    before = [module.reduction for module in modules]
    for module in modules:
        module.reduction = "none"
    try:
        losses = loss(logits, targets, **options)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, IndexError) as error:
        problem = f"loss {_name(loss)} fails for logits and soft targets of shape {list(targets.shape)} ({first_line(error)})"
        if _takes_indices(loss, logits, targets, options):
            problem += ": it takes class indices only, use one for class probabilities, such as torch.nn.CrossEntropyLoss"
        raise ValueError(problem) from error
    finally:
        for module, reduction in zip(modules, before, strict=True):
            module.reduction = reduction
    if not isinstance(losses, Tensor) or losses.shape[:1] != logits.shape[:1]:
        problem = f"loss {_name(loss)} must return one loss per sample, [{len(logits)}] or [{len(logits)}, classes]"
        how = "return them without a mean, or give it an argument `reduction`, or an attribute if it is a module"
        raise ValueError(f"{problem}, got {describe(losses)}: {how}")
    return losses.flatten(1).mean(1) if losses.ndim > 1 else losses


def _name(loss: object) -> str:
    return getattr(loss, "__name__", type(loss).__name__)


def _takes_indices(loss: Callable[..., object], logits: Tensor, targets: Tensor, options: Mapping[str, str]) -> bool:
    """Return whether a loss that fails for soft targets can be called with class indices."""
    try:
        loss(logits, targets.argmax(1), **options)
    except (RuntimeError, IndexError, TypeError, ValueError):
        return False
    return True


def _takes_options(loss: Callable[..., object], **options: str) -> bool:
    """Return whether a loss can be called with logits, targets, and these options."""
    try:
        inspect.signature(loss.forward if isinstance(loss, nn.Module) else loss).bind(None, None, **options)
    except TypeError:
        return False
    except ValueError:  # some functions that are not written in Python have no signature
        return True
    return True


def _reducing_modules(loss: object) -> list[Any]:
    """Return the modules of a loss that have a reduction: it may consist of others, such as a focal loss."""
    modules = loss.modules() if isinstance(loss, nn.Module) else ()
    return [module for module in modules if isinstance(getattr(module, "reduction", None), str)]


def excess_loss(losses: Tensor, targets: Tensor, *, smoothing: float = 0.0) -> Tensor:
    """Return losses [B] minus the lowest loss that soft targets [B, classes] allow: their entropy, 0 for a single class.

    This is the Kullback-Leibler divergence of the prediction from the target. `smoothing` is the label smoothing of the losses.
    """
    return losses.detach().float() - entropy(smooth(targets, smoothing))


def entropy(targets: Tensor) -> Tensor:
    """Return the entropy of soft targets [B, classes]: 0 for a single class, up to 0.69 for two mixed classes."""
    return -torch.xlogy(targets, targets).sum(1)


def smooth(targets: Tensor, smoothing: float) -> Tensor:
    """Return targets [..., classes] with label smoothing: the fraction `smoothing` is spread evenly over the classes."""
    return (1 - smoothing) * targets + smoothing / targets.shape[-1] if smoothing else targets
