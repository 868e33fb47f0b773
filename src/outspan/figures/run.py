"""The curves of one run."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from outspan.figures.style import colour_of, new_figure, scale_accuracy, use_whole_epochs


def run_figure(rows: Sequence[Mapping[str, float]], title: str = "") -> Figure:
    """Return the test accuracy and the training loss after each epoch, from the metrics of a run."""
    figure = new_figure(9, 3.5)
    left, right = figure.subplots(1, 2)
    epochs = [row["epoch"] + 1 for row in rows]
    marker = "o" if len(rows) == 1 else ""  # a line through one point is invisible
    accuracies = [row["test_accuracy"] for row in rows]
    left.plot(epochs, [100 * value for value in accuracies], color=colour_of(0), marker=marker)
    right.plot(epochs, [row["train_loss"] for row in rows], color=colour_of(1), marker=marker)
    scale_accuracy(left, accuracies)
    right.set_ylabel("training loss")
    for axis in (left, right):
        use_whole_epochs(axis)
        axis.grid(alpha=0.3)
    figure.suptitle(title, fontsize=11, parse_math=False)
    return figure
