"""The logits of a model for a split, and its accuracy."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from outspan.data.splits import Split
from outspan.models.outputs import read_logits
from outspan.policies.objectives import MULTI_LABEL, find_objective
from outspan.training.distributed import Ranks
from outspan.training.label_metrics import compute_label_metrics
from outspan.training.metrics import mean_scores
from outspan.transforms.normalize import Preprocess

_MAX_BATCH = 1000
_MAX_VALUES = 20_000_000  # of a batch: more may not fit into memory


def compute_logits(
    model: nn.Module,
    split: Split,
    preprocess: Preprocess,
    device: torch.device | str,
    on_batch: Callable[[int, int], object] = lambda done, total: None,
) -> Tensor:
    """Return the logits of a split, [N, classes], without augmentation.

    `on_batch` is called after each batch with the number of samples done and the total number.
    """
    model.eval()
    size = max(1, min(_MAX_BATCH, _MAX_VALUES // math.prod(split.shape)))
    device = torch.device(device)
    with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        order = split.evaluation_order()
        logits = []
        for i, (inputs, _) in enumerate(split.batches(order.split(size), device), 1):
            logits.append(read_logits(model(preprocess(inputs))).float().cpu())
            on_batch(min(i * size, len(split)), len(split))
        return torch.cat(logits)[order.argsort()]


def accuracy(
    model: nn.Module, split: Split, preprocess: Preprocess, device: torch.device | str, ranks: Ranks | None = None
) -> float:
    """Return the fraction of a split that is classified correctly: all labels of a sample. Every rank evaluates a part."""
    ranks = ranks or Ranks()
    # Every n-th sample: the order may be by length.
    own = split if ranks.world == 1 else split.take(split.evaluation_order()[ranks.rank :: ranks.world])
    correct = torch.zeros(1, dtype=torch.int64)
    if len(own):
        correct += find_objective(own.labels).correct(compute_logits(model, own, preprocess, device), own.labels).sum()
    ranks.all_reduce(correct)
    return int(correct) / len(split)


def validation_metrics(
    model: nn.Module,
    split: Split,
    preprocess: Preprocess,
    device: torch.device | str,
    ranks: Ranks,
    metric: str = "accuracy",
) -> dict[str, float]:
    """Return the accuracy, and another metric of one label per sample, or the mean average precision of several labels.

    Every rank evaluates a part.
    """
    if split.labels.ndim == 1 and metric == "accuracy":
        return {"accuracy": accuracy(model, split, preprocess, device, ranks)}
    rows, is_multi_label = split.evaluation_order()[ranks.rank :: ranks.world], split.labels.ndim == 2
    predicted = torch.zeros(split.labels.shape, dtype=torch.float32 if is_multi_label else torch.int64)
    if len(rows):
        logits = compute_logits(model, split.take(rows), preprocess, device)
        predicted[rows] = MULTI_LABEL.probabilities(logits).nan_to_num(0.0) if is_multi_label else logits.argmax(1)
    ranks.all_reduce(predicted)
    if not is_multi_label:
        scores = mean_scores(predicted, split.labels)
        return {"accuracy": scores["accuracy"], metric: scores[metric]}
    metrics = compute_label_metrics(predicted, split.labels)
    return {"accuracy": metrics.accuracy, "map": metrics.map or 0.0}
