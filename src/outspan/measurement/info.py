"""What all studies report besides their scores: how they were made, and the caveats."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outspan.files import Json
from outspan.measurement.predictions import Predictions
from outspan.measurement.recipes import BASELINE
from outspan.measurement.scores import count_ties
from outspan.measurement.settings import StudySettings

_SHARED = (
    "all seeds saw the same samples and transforms in the same order, and differ only by their initialization: "
    "their instability is not that of independent runs"
)


@dataclass(frozen=True)
class StudyInfo:
    """How a study was made, and what to consider when reading its scores."""

    settings: StudySettings
    seeds: tuple[int, ...]
    samples: int  # in the test split
    noun: str  # what the samples are called: "images" or "texts"
    ties: int  # votes without a majority, which were decided at random
    votes: int  # all votes: one per sample and configuration
    largest_class: float  # the fraction of the largest class in the test split
    learned: bool  # whether the baseline is above `largest_class`
    note: str = ""  # a caveat

    def as_dict(self) -> dict[str, Json]:
        """Return the first keys of the JSON files of all studies."""
        values: dict[str, Json] = {
            "settings": self.settings.as_dict(),
            "seeds": list(self.seeds),
            "samples": self.samples,
            "kind": self.noun,  # stored files keep the names `kind` and `learnt`
            "ties": self.ties,
            "votes": self.votes,
            "largest_class": self.largest_class,
            "learnt": self.learned,
        }
        return values | ({"note": self.note} if self.note else {})

    @property
    def test_set(self) -> str:
        """The number of seeds and the size of the test split, for titles and tables."""
        return f"{len(self.seeds)} seeds, {self.samples:,} test {self.noun}"


def study_info(
    settings: StudySettings, seeds: Sequence[int], predictions: Mapping[str, Predictions], noun: str, *, seed: int = 0
) -> StudyInfo:
    """Return the information about a study from the predictions of its configurations. `seed` decides tied votes."""
    baseline = predictions[BASELINE]
    labels = baseline.labels
    largest = int(labels.bincount().max()) / len(labels)
    learned = bool((baseline.classes == labels).double().mean() > largest)
    ties, votes = count_ties(predictions.values(), seed=seed)
    note = _SHARED if settings.shared_batches else ""
    return StudyInfo(settings, tuple(seeds), len(labels), noun, ties, votes, largest, learned, note)
