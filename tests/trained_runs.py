"""Runs as tests load them: the model and its data."""

from pathlib import Path

from outspan.data.dataset import Data
from outspan.training.tested import load_tested
from outspan.training.trained import Trained, load


def load_run(folder: Path) -> tuple[Trained, Data]:
    """Return the model of a run and the data that it is tested on."""
    run = load(folder)
    return run, load_tested(run).data
