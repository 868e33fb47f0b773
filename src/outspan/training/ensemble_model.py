"""Several perceptrons as one batched model."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from outspan.shapes import Normalized, Num


class Ensemble(nn.Module):
    """Perceptrons of one shape as one model. Every parameter has a leading axis of members."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        layers = [[layer for layer in member.modules() if isinstance(layer, nn.Linear)] for member in members]
        layers_by_depth = list(zip(*layers, strict=True))
        # [members, in, out], the transpose of `nn.Linear`: so the gradients have the memory layout of the weights.
        weights = [torch.stack([layer.weight.detach().T for layer in same_layer]) for same_layer in layers_by_depth]
        self.weights = nn.ParameterList([nn.Parameter(weight.contiguous()) for weight in weights])
        self.biases = nn.ParameterList(
            [nn.Parameter(torch.stack([layer.bias.detach()[None] for layer in same_layer])) for same_layer in layers_by_depth]
        )

    def each(self, inputs: Num[Tensor, "members B pixels"]) -> Num[Tensor, "members B classes"]:
        """Return the logits of each member for its own images."""
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            inputs = torch.baddbmm(bias, inputs.relu() if i else inputs, weight)
        return inputs

    def forward(self, images: Normalized) -> Num[Tensor, "B members classes"]:
        """Return the logits of all members for the same images."""
        return self.each(images.flatten(1).expand(len(self.weights[0]), -1, -1)).transpose(0, 1)

    def member(self, index: int) -> list[tuple[Tensor, Tensor]]:
        """Return the weight and bias of each layer of one member, in the layout of `nn.Linear`."""
        pairs = zip(self.weights, self.biases, strict=True)
        return [(weight[index].detach().T, bias[index, 0].detach()) for weight, bias in pairs]
