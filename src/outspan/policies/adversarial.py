"""Adversarial AutoAugment (arXiv:1912.11188): a controller generates policies and is rewarded for the loss that they cause.

The controller is small and runs on the CPU. The device keeps only the sum of the losses of each policy, which is read once per
round. The generated policies depend on the seed, the round and the controller's weights. The weights change only between
rounds, so a run that is killed within a round generates the same policies when it resumes.
"""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from outspan import rng
from outspan.limits import check_whole
from outspan.messages import unknown
from outspan.policies.batch import Batch, check_batch, execute
from outspan.policies.drawing import draw
from outspan.policies.proposals import pick_pair
from outspan.policies.published import at_fraction
from outspan.policies.ranks import find_ranks, sum_over_ranks
from outspan.policies.sampler import propose
from outspan.policies.settings import check_settings
from outspan.policies.state import check_state
from outspan.policies.steps import Proposal, Step
from outspan.policies.strength import check_confidence, strength_at
from outspan.policies.targets import make_targets
from outspan.shapes import BatchLabels, Float32, Inputs, Int64, describe
from outspan.transforms.normalize import Preprocess

# The operations of AutoAugment without sample pairing, which blends images but not their labels.
OPERATIONS = (
    "shear_x", "shear_y", "translate_x", "translate_y", "rotate", "auto_contrast", "invert", "equalize", "solarize",
    "posterize", "contrast", "color", "brightness", "sharpness", "cutout",
)  # fmt: skip


class Controller(nn.Module):
    """An LSTM that chooses the operations and magnitudes of a policy, one after another: two of each per sub-policy."""

    def __init__(self, operations: int, magnitudes: int, subpolicies: int, *, embedding: int = 32, hidden: int = 100) -> None:
        super().__init__()
        self.choices = (operations, magnitudes)
        self.decisions = 4 * subpolicies
        self.embedding = nn.Embedding(operations + magnitudes, embedding)
        self.lstm = nn.LSTMCell(embedding, hidden)
        self.heads = nn.ModuleList(nn.Linear(hidden, count) for count in self.choices)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.1, 0.1)

    def decide(self, noise: Float32[Tensor, "policies decisions choices"]) -> Int64[Tensor, "policies decisions"]:
        """Draw policies: the argmax of logits plus Gumbel noise is a draw from their softmax."""
        with torch.no_grad():
            return self._unroll(len(noise), lambda at, logits: (logits + noise[:, at, : logits.shape[1]]).argmax(1))[0]

    def log_probabilities(self, decisions: Int64[Tensor, "policies decisions"]) -> tuple[Tensor, Tensor]:
        """Return the log probability of each policy, and the summed entropy of its decisions."""
        _, logs, entropies = self._unroll(len(decisions), lambda at, _: decisions[:, at])
        return logs, entropies

    def _unroll(self, policies: int, choose: Callable[[int, Tensor], Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        state, embedded = None, torch.zeros(policies, self.embedding.embedding_dim)
        choices, logs, entropies = [], torch.zeros(policies), torch.zeros(policies)
        for at in range(self.decisions):
            head = at % 2  # 0: choose an operation, 1: choose its magnitude
            state = self.lstm(embedded, state)
            logits = self.heads[head](state[0])
            choice = choose(at, logits)
            log = logits.log_softmax(1)
            logs = logs + log.gather(1, choice.unsqueeze(1)).squeeze(1)
            entropies = entropies - (log.exp() * log).sum(1)
            embedded = self.embedding(choice + head * self.choices[0])
            choices.append(choice)
        return torch.stack(choices, 1), logs, entropies


def reinforce(logs: Tensor, entropies: Tensor, rewards: Tensor, entropy: float) -> Tensor:
    """Return the loss of REINFORCE with an entropy bonus: minimizing it raises the expected reward."""
    return -(rewards * logs + entropy * entropies).mean()


def standardize(rewards: Tensor) -> Tensor:
    """Return rewards with mean 0 and standard deviation 1 over the policies; equal rewards become 0."""
    return (rewards - rewards.mean()) / (rewards.std(correction=0) + 1e-5)


@dataclass(eq=False)
class Adversarial:
    """Augment every sample by `policies` policies, and train a controller to generate policies that raise the loss.

    A policy is `subpolicies` pairs of operations; each sample gets one pair at random. A round is `update_every` steps. In the
    paper it is one epoch. After a round, the reward of a policy is its mean loss, standardized over the policies. Call `learn`
    with the losses of every batch.
    """

    _: KW_ONLY
    update_every: int
    policies: int = 8
    subpolicies: int = 5
    lr: float = 0.00035
    entropy: float = 1e-5
    operations: tuple[str, ...] = OPERATIONS
    magnitudes: int = 10
    embedding: int = 32
    hidden: int = 100
    # The settings that all policies share; `Settings` describes them.
    classes: int
    defaults: str | Proposal = "none"
    preprocess: Preprocess | None = None
    strength: float = 1.0
    finish: float = 0.0
    steps: int | None = None
    seed: int = 0
    rank: int | None = None  # of this process, and the number of processes; None: those of the process group
    world: int | None = None
    controller: Controller = field(init=False, repr=False)
    _optimizer: torch.optim.Adam = field(init=False, repr=False)
    _sums: Tensor = field(init=False, repr=False)  # sum of the losses in this round so far, by policy
    _samples: int = field(init=False, default=0, repr=False)  # number of samples in the sums
    _generated: tuple[int, Tensor, Proposal] | None = field(init=False, default=None, repr=False)  # the round and its policies

    def __post_init__(self) -> None:
        find_ranks(self.rank, self.world)
        for name, least in {"update_every": 1, "policies": 2, "subpolicies": 1, "magnitudes": 2}.items():
            check_whole(name, getattr(self, name), least)
        if not self.operations:
            raise ValueError("operations must name at least one operation, got none")
        for name in self.operations:
            if name not in OPERATIONS:
                raise unknown("operation", name, OPERATIONS)
        check_settings(self.defaults, self.preprocess, self.strength, self.finish, self.steps, self.classes)
        with torch.random.fork_rng([]):
            torch.manual_seed(rng.derive(self.seed, "controller"))
            sizes = len(self.operations), self.magnitudes, self.subpolicies
            self.controller = Controller(*sizes, embedding=self.embedding, hidden=self.hidden)
        self._optimizer = torch.optim.Adam(self.controller.parameters(), lr=self.lr)
        self._sums = torch.zeros(self.policies)

    def __call__(
        self, inputs: Inputs, labels: BatchLabels, *, step: int, confidence: Float32[Tensor, " B"] | None = None
    ) -> Batch:
        """Return `policies` augmented samples for each sample of the batch; those of one sample are adjacent.

        `confidence`, in [0, 1], multiplies the strength of each sample.
        """
        check_batch(inputs, labels, self.preprocess)
        options = {"seed": self.seed, "step": step, "confidence": check_confidence(confidence, len(inputs))}
        options["ranks"] = find_ranks(self.rank, self.world)
        strength = strength_at(step, self.strength, self.finish, self.steps)
        propose = self._policies_of(step // self.update_every)[1]
        plan = draw(propose, self.defaults, len(inputs), candidates=self.policies, strength=strength, **options)
        return Batch(execute(inputs, plan, self.preprocess), make_targets(inputs, labels, plan, self.classes), plan)

    def learn(self, losses: Float32[Tensor, " BM"], *, step: int) -> None:
        """Add the losses of a batch that this policy returned; at the end of a round, update the controller."""
        if not isinstance(losses, Tensor) or losses.ndim != 1 or len(losses) % self.policies:
            expected = f"[B * {self.policies}], one loss per augmented sample"
            raise ValueError(f'losses must be a tensor {expected}, got {describe(losses)}: use reduction="none"')
        if strength_at(step, self.strength, self.finish, self.steps):  # at strength 0 all policies do the same
            rows, (_, world) = losses.detach().view(-1, self.policies), find_ranks(self.rank, self.world)
            sums = sum_over_ranks(rows.sum(0)) if world > 1 else rows.sum(0)
            self._sums, self._samples = self._sums.to(losses.device) + sums, self._samples + len(rows) * world
        if (step + 1) % self.update_every == 0 and self._samples:
            means = self._sums.cpu() / self._samples
            self._sums, self._samples = torch.zeros_like(self._sums), 0
            if not bool(means.isfinite().all()):
                raise ValueError(f"a loss of the {self.update_every} steps up to step {step} is not finite: try a smaller lr")
            self._update(step // self.update_every, means)

    def metrics(self) -> dict[str, float]:
        """Return nothing: a policy of the controller has no single number that describes it."""
        return {}

    def state_dict(self) -> dict[str, Tensor]:
        """Return all tensors that a checkpoint must store."""
        state = {f"controller.{name}": tensor for name, tensor in self.controller.state_dict().items()}
        for name, parameter in self.controller.named_parameters():
            for key, tensor in self._optimizer.state.get(parameter, {}).items():
                state[f"adam.{key}.{name}"] = tensor
        return state | {"sums": self._sums, "images": torch.tensor(self._samples)}  # checkpoints keep the name "images"

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue from a `state_dict`; tensors that do not fit this policy raise a ValueError."""
        self._check_state(state)
        weights = {k.removeprefix("controller."): v for k, v in state.items() if k.startswith("controller.")}
        self.controller.load_state_dict(weights)
        for name, parameter in self.controller.named_parameters():
            for key in ("step", "exp_avg", "exp_avg_sq"):
                if f"adam.{key}.{name}" in state:
                    self._optimizer.state[parameter][key] = state[f"adam.{key}.{name}"].clone()
        self._sums, self._samples, self._generated = state["sums"].clone(), int(state["images"]), None

    def _check_state(self, state: dict[str, Tensor]) -> None:
        expected = {f"controller.{name}": tensor for name, tensor in self.controller.state_dict().items()}
        expected |= {"sums": torch.zeros(self.policies), "images": torch.tensor(0)}
        if any(name.startswith("adam.") for name in state):  # Adam has no state before the end of the first round
            for name, parameter in self.controller.named_parameters():
                moments = {"step": torch.tensor(0.0), "exp_avg": parameter, "exp_avg_sq": parameter}
                expected |= {f"adam.{key}.{name}": tensor for key, tensor in moments.items()}
        check_state(expected, state)

    def _policies_of(self, round_number: int) -> tuple[Tensor, Proposal]:
        """Return the controller's decisions of a round, and the proposal that applies them."""
        if self._generated is None or self._generated[0] != round_number:
            shape = (self.policies, self.controller.decisions, max(self.controller.choices))
            noise = rng.generator(self.seed, "policies", round_number).gumbel(size=shape).astype(np.float32)
            decisions = self.controller.decide(torch.from_numpy(noise))
            self._generated = round_number, decisions, self._proposal(decisions)
        return self._generated[1:]

    def _proposal(self, decisions: Tensor) -> Proposal:
        """Return the proposal that gives candidate m of a sample a random pair of policy m."""
        steps: list[Step] = []
        for operation, magnitude in decisions.view(-1, 2).tolist():
            steps.append(at_fraction(self.operations[operation], magnitude / (self.magnitudes - 1)))
        return propose(steps, 2, partial(_pick_by_policy, self.policies, self.subpolicies))

    def _update(self, round_number: int, means: Tensor) -> None:
        logs, entropies = self.controller.log_probabilities(self._policies_of(round_number)[0])
        self._optimizer.zero_grad()
        reinforce(logs, entropies, standardize(means), self.entropy).backward()
        self._optimizer.step()


def _pick_by_policy(policies: int, pairs: int, bits: np.ndarray, generators: Sequence[np.random.Generator]) -> np.ndarray:
    """Choose one of the `pairs` pairs of each row's policy. Row i has policy i modulo `policies`."""
    policy = np.arange(len(bits))[:, None] % policies
    return 2 * pairs * policy + pick_pair(pairs, bits, generators)
