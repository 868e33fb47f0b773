"""Settings of studies whose predictions are written by hand."""

from outspan.config import Recipe
from outspan.measurement.settings import StudySettings

SETTINGS = StudySettings(Recipe(model="mlp", policy="none"), False, "cpu", "train", "test", {})
