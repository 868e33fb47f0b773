"""The function `outspan.predict`: the class probabilities of inputs without labels."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from outspan import devices
from outspan.training.predicted import Predicted, predict_inputs
from outspan.training.trained import Trained, as_trained


def predict(
    run: Trained | Path | str,
    inputs: Any,
    *,
    device: str | torch.device | None = None,
    skip_bad: int = 0,
    on_error: Callable[[ValueError], object] | None = None,
    on_batch: Callable[[Predicted], object] = lambda predicted: None,
) -> Predicted:
    """Return the class probabilities of inputs without labels.

    Example::

        outspan.predict("runs/a", ["cat.png", "more/pets"]).classes
        outspan.predict("runs/a", images).probabilities  # images: uint8 [B, C, H, W], a tensor or a numpy array
        outspan.predict("runs/text", ["What a film!", "Dull."]).top(2)
        outspan.predict("runs/text", Path("reviews.csv")).save("predicted.csv")  # a row each

    Args:
        run: The folder of a run, or what `outspan.load` returns.
        inputs: For an image model: paths of files and folders (strings or `Path` objects), or a batch of images, uint8
            [B, C, H, W] of the run's shape. For a text model: a list of texts, or `Path` objects of .txt files, folders and
            tables (.csv, .tsv, .jsonl), whose texts are in the column `text_column` of the recipe.
            Folders are searched recursively.
        device: Where to compute. By default a GPU if there is one, otherwise the CPU. Afterwards the model of a loaded run is
            where it was before.
        skip_bad: Leave out up to this number of rows without a text, with a warning, in each table.
        on_error: Called with the error of each unreadable file. The file is then skipped. By default the error is raised.
        on_batch: Called with each part of the result as soon as it is computed.

    Raises:
        ValueError: If the run cannot be loaded, or its model cannot take an input.
    """
    return predict_inputs(
        as_trained(run), inputs, devices.find_device(device), skip_bad=skip_bad, on_error=on_error, on_batch=on_batch
    )
