"""Data augmentation for PyTorch: transforms of batches, policies, and functions that train, compare and measure.

Names are imported when they are first used, so that the command line starts without torch.
"""

from typing import TYPE_CHECKING

from outspan.lazy import attach

if TYPE_CHECKING:
    from outspan import dropin as dropin
    from outspan import lightning as lightning
    from outspan import rng as rng
    from outspan import text as text
    from outspan import theory as theory
    from outspan import transformers as transformers
    from outspan.comparison.policies import compare as compare
    from outspan.comparison.result import Comparison as Comparison
    from outspan.config import Recipe as Recipe
    from outspan.data.image import read_image as read_image
    from outspan.data.image import write_image as write_image
    from outspan.data.objects import from_datasets as from_datasets
    from outspan.data.sets import load as load_data
    from outspan.integrations.export import Exported as Exported
    from outspan.integrations.export import export as export
    from outspan.measurement.effects import Measurement as Measurement
    from outspan.measurement.measure import measure as measure
    from outspan.plan import Plan as Plan
    from outspan.policies.adversarial import Adversarial as Adversarial
    from outspan.policies.auto import Auto as Auto
    from outspan.policies.batch import Batch as Batch
    from outspan.policies.hard_samples import HardSamples as HardSamples
    from outspan.policies.losses import soft_cross_entropy as soft_cross_entropy
    from outspan.policies.plain import Plain as Plain
    from outspan.policies.proposals import any_of as any_of
    from outspan.policies.proposals import blend as blend
    from outspan.policies.proposals import natural as natural
    from outspan.policies.proposals import sequence as sequence
    from outspan.policies.proposals import uniform as uniform
    from outspan.policies.published import augmix as augmix
    from outspan.policies.published import autoaugment as autoaugment
    from outspan.policies.published import crop_and_flip as crop_and_flip
    from outspan.policies.published import cutmix as cutmix
    from outspan.policies.published import mixup as mixup
    from outspan.policies.published import randaugment as randaugment
    from outspan.policies.published import trivialaugment as trivialaugment
    from outspan.policies.published import uniformaugment as uniformaugment
    from outspan.policies.steps import Proposal as Proposal
    from outspan.policies.steps import Schedule as Schedule
    from outspan.policies.steps import Step as Step
    from outspan.policies.timm import parse_policy as policy
    from outspan.policies.uncertain import Uncertain as Uncertain
    from outspan.reporting.report import report as report
    from outspan.training import Diverged as Diverged
    from outspan.training import Progress as Progress
    from outspan.training import Stopped as Stopped
    from outspan.training.averaging import Average as Average
    from outspan.training.evaluate import Evaluation as Evaluation
    from outspan.training.evaluate import evaluate as evaluate
    from outspan.training.predict import Predicted as Predicted
    from outspan.training.predict import predict as predict
    from outspan.training.run import Summary as Summary
    from outspan.training.trackers import EpochReport as EpochReport
    from outspan.training.train import train as train
    from outspan.training.trained import Trained as Trained
    from outspan.training.trained import load as load
    from outspan.transforms.apply import apply as apply
    from outspan.transforms.by_name import apply_ops as apply_ops
    from outspan.transforms.labels import mix_labels as mix_labels
    from outspan.transforms.normalize import Normalize as Normalize
    from outspan.transforms.table import PAPER_16 as PAPER_16
    from outspan.transforms.table import TRANSFORMS as TRANSFORMS
    from outspan.transforms.table import Transform as Transform

__version__ = "0.1.0"

_HOMES = {
    **{name: f"outspan.{name}" for name in ("dropin", "lightning", "rng", "text", "theory", "transformers")},
    "Recipe": "outspan.config",
    "train": "outspan.training.train",
    "EpochReport": "outspan.training.trackers",
    "Summary": "outspan.training.run",
    "Average": "outspan.training.averaging",
    "load": "outspan.training.trained",
    "Trained": "outspan.training.trained",
    "evaluate": "outspan.training.evaluate",
    "Evaluation": "outspan.training.evaluate",
    "predict": "outspan.training.predict",
    "Predicted": "outspan.training.predict",
    **dict.fromkeys(("Diverged", "Progress", "Stopped"), "outspan.training"),
    "Comparison": "outspan.comparison.result",
    "compare": "outspan.comparison.policies",
    **dict.fromkeys(("Exported", "export"), "outspan.integrations.export"),
    "Measurement": "outspan.measurement.effects",
    "measure": "outspan.measurement.measure",
    "report": "outspan.reporting.report",
    "Plan": "outspan.plan",
    "Batch": "outspan.policies.batch",
    "soft_cross_entropy": "outspan.policies.losses",
    "Plain": "outspan.policies.plain",
    **dict.fromkeys(("any_of", "blend", "natural", "sequence", "uniform"), "outspan.policies.proposals"),
    **dict.fromkeys(("Proposal", "Schedule", "Step"), "outspan.policies.steps"),
    **dict.fromkeys(
        ("augmix", "autoaugment", "crop_and_flip", "cutmix", "mixup", "randaugment", "trivialaugment", "uniformaugment"),
        "outspan.policies.published",
    ),
    "Adversarial": "outspan.policies.adversarial",
    "Auto": "outspan.policies.auto",
    "HardSamples": "outspan.policies.hard_samples",
    "Uncertain": "outspan.policies.uncertain",
    "policy": "outspan.policies.timm:parse_policy",
    **dict.fromkeys(("read_image", "write_image"), "outspan.data.image"),
    "load_data": "outspan.data.sets:load",
    "from_datasets": "outspan.data.objects",
    "apply": "outspan.transforms.apply",
    "apply_ops": "outspan.transforms.by_name",
    "mix_labels": "outspan.transforms.labels",
    "Normalize": "outspan.transforms.normalize",
    "PAPER_16": "outspan.transforms.table",
    "TRANSFORMS": "outspan.transforms.table",
    "Transform": "outspan.transforms.table",
}

__all__ = [
    "PAPER_16",
    "TRANSFORMS",
    "Adversarial",
    "Auto",
    "Average",
    "Batch",
    "Comparison",
    "Diverged",
    "EpochReport",
    "Evaluation",
    "Exported",
    "HardSamples",
    "Measurement",
    "Normalize",
    "Plain",
    "Plan",
    "Predicted",
    "Progress",
    "Proposal",
    "Recipe",
    "Schedule",
    "Step",
    "Stopped",
    "Summary",
    "Trained",
    "Transform",
    "Uncertain",
    "any_of",
    "apply",
    "apply_ops",
    "augmix",
    "autoaugment",
    "blend",
    "compare",
    "crop_and_flip",
    "cutmix",
    "dropin",
    "evaluate",
    "export",
    "from_datasets",
    "lightning",
    "load",
    "load_data",
    "measure",
    "mix_labels",
    "mixup",
    "natural",
    "policy",
    "predict",
    "randaugment",
    "read_image",
    "report",
    "rng",
    "sequence",
    "soft_cross_entropy",
    "text",
    "theory",
    "train",
    "transformers",
    "trivialaugment",
    "uniform",
    "uniformaugment",
    "write_image",
]

__getattr__, __dir__ = attach(__name__, _HOMES)
