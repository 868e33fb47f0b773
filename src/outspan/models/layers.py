"""The layers of a model from its input to its output, for fine-tuning: smaller learning rates, and parts that do not train."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True, eq=False)
class Layer:
    """A block of a model, or a single layer outside of blocks."""

    modules: list[nn.Module]  # with normalization layers that follow
    parameters: list[nn.Parameter]


def find_layers(model: nn.Module) -> list[Layer]:
    """Return the layers of a model in the order of their definition. The last one is the head, the classifier.

    A block, such as a residual or a transformer block, is one layer. Parameters of the model itself, such as embeddings of
    positions, belong to the first layer, and normalization layers between blocks to the layer before them.
    """
    layers: list[Layer] = []
    seen: set[int] = set()
    for module in _parts(model):
        parameters = [p for p in module.parameters() if id(p) not in seen]
        seen.update(map(id, parameters))
        if layers and all(parameter.ndim <= 1 for parameter in parameters):
            layers[-1].modules.append(module)
            layers[-1].parameters.extend(parameters)
        elif parameters:
            layers.append(Layer([module], parameters))
    if layers:
        layers[0].parameters.extend(p for p in model.parameters() if id(p) not in seen)
    return layers


def _parts(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the blocks of a module, and the layers beside them."""
    for child in module.children():
        if isinstance(child, nn.Sequential | nn.ModuleList) or _has_blocks(child):
            yield from _parts(child)
        else:
            yield child


def _has_blocks(module: nn.Module) -> bool:
    """Return whether a module contains a list of blocks: at least two modules of one type that have parts themselves."""
    return any(_are_blocks(list(part)) for part in module.modules() if isinstance(part, nn.Sequential | nn.ModuleList))


def _are_blocks(modules: Sequence[nn.Module]) -> bool:
    types = [type(module) for module in modules if next(module.children(), None) is not None]
    return len(types) > len(set(types))
