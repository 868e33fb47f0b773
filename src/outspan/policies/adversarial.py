"""Adversarial AutoAugment (arXiv:1912.11188): a controller writes policies and is rewarded for the loss that they cause.

The controller is small and lives on the host; all that the device keeps for it is a sum of losses a policy, which is read once
a round. What it draws depends on the seed, the round and its weights, and these change only between rounds: a run that was
killed within one draws the same policies again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from outspan import rng
from outspan.messages import unknown
from outspan.policies.batch import Batch, check_batch
from outspan.policies.drawing import draw, find_defaults
from outspan.policies.plain import execute
from outspan.policies.proposals import Proposal, Step, propose
from outspan.policies.published import at_share
from outspan.policies.targets import make_targets
from outspan.shapes import Float32, Images, Int64, Num
from outspan.transforms.normalize import Normalize

# AutoAugment's, less sample pairing, which blends images without their labels.
OPERATIONS = (
    "shear_x", "shear_y", "translate_x", "translate_y", "rotate", "auto_contrast", "invert", "equalize", "solarize",
    "posterize", "contrast", "color", "brightness", "sharpness", "cutout",
)  # fmt: skip


@runtime_checkable
class Learns(Protocol):
    """A policy that learns from the losses of what it proposed, and whose state belongs in a checkpoint."""

    def learn(self, losses: Tensor, *, step: int) -> None: ...

    def tensors(self) -> dict[str, Tensor]: ...

    def restore(self, tensors: dict[str, Tensor]) -> None: ...


class Controller(nn.Module):
    """An LSTM that decides, one after the other, on operations and magnitudes: two of each a sub-policy."""

    def __init__(self, operations: int, magnitudes: int, subpolicies: int, *, embedding: int = 32, hidden: int = 100) -> None:
        super().__init__()
        self.kinds = (operations, magnitudes)
        self.decisions = 4 * subpolicies
        self.embedding = nn.Embedding(operations + magnitudes, embedding)
        self.lstm = nn.LSTMCell(embedding, hidden)
        self.heads = nn.ModuleList(nn.Linear(hidden, count) for count in self.kinds)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.1, 0.1)

    def decide(self, noise: Float32[Tensor, "policies decisions most"]) -> Int64[Tensor, "policies decisions"]:
        """Draw policies: the largest of logits plus Gumbel noise is a draw from their softmax."""
        with torch.no_grad():
            return self._unroll(len(noise), lambda at, logits: (logits + noise[:, at, : logits.shape[1]]).argmax(1))[0]

    def judge(self, decisions: Int64[Tensor, "policies decisions"]) -> tuple[Tensor, Tensor]:
        """Return the logarithm of each policy's probability, and the entropy met on the way to it."""
        _, logs, entropies = self._unroll(len(decisions), lambda at, _: decisions[:, at])
        return logs, entropies

    def _unroll(self, policies: int, choose: Callable[[int, Tensor], Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        state, heard = None, torch.zeros(policies, self.embedding.embedding_dim)
        made, logs, entropies = [], torch.zeros(policies), torch.zeros(policies)
        for at in range(self.decisions):
            kind = at % 2  # an operation, then its magnitude
            state = self.lstm(heard, state)
            logits = self.heads[kind](state[0])
            choice = choose(at, logits)
            log = logits.log_softmax(1)
            logs = logs + log.gather(1, choice.unsqueeze(1)).squeeze(1)
            entropies = entropies - (log.exp() * log).sum(1)
            heard = self.embedding(choice + kind * self.kinds[0])
            made.append(choice)
        return torch.stack(made, 1), logs, entropies


def reinforce(logs: Tensor, entropies: Tensor, rewards: Tensor, entropy: float) -> Tensor:
    """Return what to minimise: a step along its gradient raises the rewards, as REINFORCE does, and a little the entropy."""
    return -(rewards * logs + entropy * entropies).mean()


def standardise(rewards: Tensor) -> Tensor:
    """Return rewards with mean 0 and standard deviation 1 over the policies; alike ones are 0."""
    return (rewards - rewards.mean()) / (rewards.std(correction=0) + 1e-5)


@dataclass(eq=False)
class Adversarial:
    """Give every image `policies` augmentations, each by another policy, and make policies that raise the loss likelier.

    A policy is `subpolicies` pairs of operations, one of them at random for each image. A round is `every` steps, in the paper
    an epoch; then each policy's mean loss, standardised over the policies, is its reward. `learn` is told the losses.
    """

    classes: int
    every: int
    policies: int = 8
    subpolicies: int = 5
    lr: float = 0.00035
    entropy: float = 1e-5
    operations: tuple[str, ...] = OPERATIONS
    magnitudes: int = 10
    embedding: int = 32
    hidden: int = 100
    defaults: str | Proposal = "none"
    normalize: Normalize | None = None
    seed: int = 0
    controller: Controller = field(init=False, repr=False)
    _optimizer: torch.optim.Adam = field(init=False, repr=False)
    _sums: Tensor = field(init=False, repr=False)  # of losses in this round so far, one a policy
    _images: int = field(init=False, default=0, repr=False)  # that they are summed over: a last batch may be short
    _written: tuple[int, Tensor, Proposal] | None = field(init=False, default=None, repr=False)  # the round and its policies

    def __post_init__(self) -> None:
        for name, least in {"every": 1, "policies": 2, "subpolicies": 1, "magnitudes": 2}.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if not self.operations:
            raise ValueError("operations must be at least one, got none")
        for name in self.operations:
            if name not in OPERATIONS:
                raise unknown("operation", name, OPERATIONS)
        find_defaults(self.defaults)
        with torch.random.fork_rng([]):
            torch.manual_seed(rng.derive(self.seed, "controller"))
            sizes = len(self.operations), self.magnitudes, self.subpolicies
            self.controller = Controller(*sizes, embedding=self.embedding, hidden=self.hidden)
        self._optimizer = torch.optim.Adam(self.controller.parameters(), lr=self.lr)
        self._sums = torch.zeros(self.policies)

    def __call__(self, images: Images, labels: Num[Tensor, "B ..."], *, step: int) -> Batch:
        """Return `policies` augmented images for each of the batch; an image's stand next to one another."""
        check_batch(images, labels, texts=False)
        plan = draw(
            self._policies_of(step // self.every)[1],
            self.defaults,
            len(images),
            seed=self.seed,
            step=step,
            candidates=self.policies,
        )
        return Batch(execute(images, plan, self.normalize), make_targets(images, labels, plan, self.classes), plan)

    def learn(self, losses: Float32[Tensor, " BM"], *, step: int) -> None:
        """Take in the losses of a batch that came from here; where a round ends, update the controller."""
        if len(losses) % self.policies:
            raise ValueError(f"a batch has {self.policies} losses an image, one of each policy, got {len(losses)} in all")
        rows = losses.view(-1, self.policies)
        self._sums, self._images = self._sums.to(losses.device) + rows.sum(0), self._images + len(rows)
        if (step + 1) % self.every == 0:
            means = self._sums.cpu() / self._images
            self._sums, self._images = torch.zeros_like(self._sums), 0
            if not bool(means.isfinite().all()):
                raise ValueError(f"a loss of the {self.every} steps to step {step} is not finite: try a smaller lr")
            self._update(step // self.every, means)

    def tensors(self) -> dict[str, Tensor]:
        """Return everything that a checkpoint must hold."""
        found = {f"controller.{name}": tensor for name, tensor in self.controller.state_dict().items()}
        for name, parameter in self.controller.named_parameters():
            for key, tensor in self._optimizer.state.get(parameter, {}).items():
                found[f"adam.{key}.{name}"] = tensor
        return found | {"sums": self._sums, "images": torch.tensor(self._images)}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Go on from what a checkpoint holds; tensors that are not this policy's are a ValueError."""
        self._check_tensors(tensors)
        own = {k.removeprefix("controller."): v for k, v in tensors.items() if k.startswith("controller.")}
        self.controller.load_state_dict(own)
        for name, parameter in self.controller.named_parameters():
            for key in ("step", "exp_avg", "exp_avg_sq"):
                if f"adam.{key}.{name}" in tensors:
                    self._optimizer.state[parameter][key] = tensors[f"adam.{key}.{name}"].clone()
        self._sums, self._images, self._written = tensors["sums"].clone(), int(tensors["images"]), None

    def _check_tensors(self, tensors: dict[str, Tensor]) -> None:
        expected = {f"controller.{name}": tensor for name, tensor in self.controller.state_dict().items()}
        expected |= {"sums": torch.zeros(self.policies), "images": torch.tensor(0)}
        if any(name.startswith("adam.") for name in tensors):  # there is none before the first round has ended
            for name, parameter in self.controller.named_parameters():
                own = {"step": torch.tensor(0.0), "exp_avg": parameter, "exp_avg_sq": parameter}
                expected |= {f"adam.{key}.{name}": tensor for key, tensor in own.items()}
        if different := expected.keys() ^ tensors.keys():
            state = "has no" if min(different) in expected else "has an unknown"
            raise ValueError(f"the checkpoint {state} tensor {f'policy.{min(different)}'!r}")
        for name, tensor in expected.items():
            stored = tensors[name]
            if (stored.shape, stored.dtype) != (tensor.shape, tensor.dtype):
                allowed, found = (f"{one.dtype} {list(one.shape)}" for one in (tensor, stored))
                raise ValueError(f"the checkpoint's tensor {f'policy.{name}'!r} must be {allowed}, got {found}")

    def _policies_of(self, turn: int) -> tuple[Tensor, Proposal]:
        """Return what the controller decided in a round, and what it comes to."""
        if self._written is None or self._written[0] != turn:
            shape = (self.policies, self.controller.decisions, max(self.controller.kinds))
            noise = rng.generator(self.seed, "policies", turn).gumbel(size=shape).astype(np.float32)
            decisions = self.controller.decide(torch.from_numpy(noise))
            self._written = turn, decisions, self._proposal(decisions)
        return self._written[1:]

    def _proposal(self, decisions: Tensor) -> Proposal:
        """Return the proposal whose candidate m of an image is by policy m, one of its pairs at random."""
        steps: list[Step] = []
        for operation, magnitude in decisions.view(-1, 2).tolist():
            steps.append(at_share(self.operations[operation], magnitude / (self.magnitudes - 1)))
        pairs, policies = self.subpolicies, self.policies

        def pick(bits: np.ndarray, _: Sequence[np.random.Generator]) -> np.ndarray:
            pair = (bits[:, :1] * np.uint64(pairs) >> np.uint64(20)).astype(np.intp)
            policy = np.arange(len(bits))[:, None] % policies
            return 2 * (pairs * policy + pair) + np.arange(2)

        return propose(steps, 2, pick)

    def _update(self, turn: int, means: Tensor) -> None:
        logs, entropies = self.controller.judge(self._policies_of(turn)[0])
        self._optimizer.zero_grad()
        reinforce(logs, entropies, standardise(means), self.entropy).backward()
        self._optimizer.step()
