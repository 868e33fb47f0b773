"""The plain policy: draw one plan a batch and apply it."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from outspan import rng
from outspan.plan import Plan
from outspan.policies.batch import Batch, check_batch
from outspan.policies.drawing import draw_several, find_defaults
from outspan.policies.partners import check_same_class, partners_by_class
from outspan.policies.proposals import Proposal, Schedule
from outspan.policies.targets import make_targets
from outspan.shapes import Images, Num
from outspan.text.apply import PadTokens
from outspan.text.apply import apply as apply_to_text
from outspan.text.tokens import Passages
from outspan.transforms.apply import apply
from outspan.transforms.normalize import Normalize


@dataclass(frozen=True)
class Plain:
    """Apply what is proposed, then the default transforms: `policy(images, labels, step=step)`."""

    propose: Proposal | Schedule
    classes: int
    defaults: str | Proposal = "none"
    normalize: Normalize | PadTokens | None = None  # None scales bytes to [0, 1]
    seed: int = 0
    same_class: float = -1.0  # the share of mixing partners that are of an image's own class; -1 takes them as they come

    def __post_init__(self) -> None:
        find_defaults(self.defaults)
        check_same_class(self.same_class)

    def __call__(self, images: Images | Passages, labels: Num[Tensor, "B ..."], *, step: int) -> Batch:
        """Augment a batch; what is drawn depends on the seed and the step alone, and with `same_class` on the labels.

        Those must then be class numbers, and on a GPU reading them waits for the device.
        """
        check_batch(images, labels)
        plan = self.draw_several(labels if self.same_class < 0 else labels.cpu(), seeds=[self.seed], step=step)
        return Batch(execute(images, plan, self.normalize), make_targets(images, labels, plan, self.classes), plan)

    def draw_several(self, labels: Num[Tensor, "B ..."], *, seeds: Sequence[int], step: int) -> Plan:
        """Draw the plans of a step of several seeds as one; their batches, and the labels of these, lie one after another."""
        plan = draw_several(self.propose, self.defaults, len(labels) // len(seeds), seeds=seeds, step=step)
        if self.same_class < 0:
            return plan
        return partners_by_class(plan, labels, self.same_class, [rng.generator(seed, "partners", step) for seed in seeds])


def execute(images: Images | Passages, plan: Plan, normalize: Normalize | PadTokens | None) -> Tensor:
    """Apply a plan and normalise; cutout is filled with the data's mean. Texts come out as tokens."""
    if isinstance(images, Passages):
        return apply_to_text(images, plan)
    if isinstance(normalize, PadTokens):
        raise ValueError("normalize must be a Normalize or None for images, got PadTokens, which is for texts")
    channels = images.shape[1]
    last = normalize or Normalize((0.0,) * channels, (1.0,) * channels)
    if len(last.mean) != channels:
        raise ValueError(f"normalize must have a mean a channel, got {len(last.mean)} for images of {channels}")
    return apply(images, plan, fill=[round(255 * min(max(mean, 0), 1)) for mean in last.mean], normalize=last)
