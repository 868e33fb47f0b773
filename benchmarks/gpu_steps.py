"""Training steps on a GPU: their cost by policy and model, absence of synchronisation, and bit-identical resuming."""

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from outspan.config import Recipe
from outspan.data.sets import Data
from outspan.data.splits import InMemory
from outspan.models.evaluating import evaluating
from outspan.policies.drawing import draw
from outspan.policies.protocols import LearningPolicy
from outspan.policies.table import build_policy
from outspan.policies.uncertain import Uncertain
from outspan.training import Stopped, checkpoint
from outspan.training.graphs import GraphModel
from outspan.training.setup import use_algorithms
from outspan.training.state import new_state
from outspan.training.step import Learner, take_step
from outspan.training.train import train
from outspan.transforms.normalize import Normalize

GPU = torch.device("cuda")
STEPS = 24  # per turn: a multiple of every `score_every`
PREPROCESS = Normalize((0.49, 0.48, 0.45), (0.25, 0.24, 0.26), torch.bfloat16, channels_last=True)
POLICIES = {
    "none": {"policy": "none"},
    "random": {"policy": "random"},
    "uncertain, C=4, S=1": {"policy": "uncertain"},
    "uncertain, C=4, S=1, every 2nd": {"policy": "uncertain", "score_every": 2},
    "uncertain, C=4, S=1, every 3rd": {"policy": "uncertain", "score_every": 3},
    "uncertain, C=8, S=4": {"policy": "uncertain", "candidates": 8, "keep": 4},
}


def random_data(count: int) -> Data:
    """Return random images of CIFAR's size. The cost of a step does not depend on their content."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator)
    labels = torch.randint(0, 10, (count,), generator=generator)
    return Data("cifar10", InMemory(images, labels), InMemory(images[:100], labels[:100]), tuple("0123456789"))


def measure_steps(model: str, batch: int, rounds: int, how: str) -> dict[str, float]:
    """Return milliseconds per step by policy, and for the augmentation and the scoring of Algorithm 1 alone."""
    data = random_data(batch)
    images, labels = data.train.images.to(GPU), data.train.labels.to(GPU)
    runs: dict[str, Callable[[int], object]] = {}
    for name, values in POLICIES.items():
        recipe = Recipe(data="cifar10", model=model, batch=batch, defaults="cifar", **values)
        state = new_state(recipe, data.train.shape, 10, GPU)
        learn = Learner(torch.compile(state.model) if "compiled" in how else state.model, 0.0, graphs="graphs" in how)
        net = GraphModel(learn.model) if "graphs" in how else learn.model
        policy = build_policy(recipe, net, data, PREPROCESS)
        net.train()
        runs[name] = lambda step, s=state, f=learn, r=recipe, p=policy: take_step(s, f, r, p(images, labels, step=step), 0.01)
        if isinstance(policy, Uncertain) and policy.score_every == 1:
            runs[f"{name}: augmenting"] = lambda step, p=policy: augment(p, images, step)
            pixels = augment(policy, images, 0)
            runs[f"{name}: scoring"] = lambda step, n=net, x=pixels: score(n, x)
    times: dict[str, list[float]] = {name: [] for name in runs}
    with use_algorithms(deterministic=False):
        for turn in range(rounds + 1):  # the first round is a warm-up: it compiles and selects algorithms
            for name, run in runs.items():
                torch.cuda.synchronize()
                start = time.perf_counter()
                for step in range(STEPS):
                    run(step)
                torch.cuda.synchronize()
                if turn:
                    times[name].append(1000 * (time.perf_counter() - start) / STEPS)
    return {name: statistics.median(values) for name, values in times.items()}


def augment(policy: Uncertain, images: torch.Tensor, step: int) -> torch.Tensor:
    """Return every candidate of a batch: draw, transform and normalise as the policy does."""
    plan = draw(policy.propose, policy.defaults, len(images), seed=0, step=step, candidates=policy.candidates)
    return policy.preprocess.execute(images, plan)


def score(model: torch.nn.Module, pixels: torch.Tensor) -> torch.Tensor:
    """Return the logits of every candidate, computed as the policy does."""
    with evaluating(model):
        return model(pixels)


def check_that_steps_do_not_wait() -> str:
    """Return "nothing waits", or the error of torch for the first call that synchronises, in whole steps of every policy."""
    data = random_data(128)
    images, labels = data.train.images.to(GPU), data.train.labels.to(GPU)
    others = {"proportional": {"policy": "uncertain", "select": "proportional"}, "adversarial": {"policy": "adversarial"}}
    for name, values in {**POLICIES, **others}.items():
        recipe = Recipe(data="cifar10", model="wide_resnet-16-4", defaults="cifar", batch=16, **values)  # a round is 8 steps
        state = new_state(recipe, data.train.shape, 10, GPU)
        learn, net = Learner(state.model, 0.0, graphs=True), GraphModel(state.model)
        policy = build_policy(recipe, net, data, PREPROCESS)
        net.train()

        def run_step(step: int, s=state, f=learn, r=recipe, p=policy) -> None:
            losses = take_step(s, f, r, p(images, labels, step=step), 0.01)
            if isinstance(p, LearningPolicy):
                p.learn(losses, step=step)

        for step in range(3):
            run_step(step)
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            for step in range(3, 7):
                run_step(step)
        except RuntimeError as error:
            return f"{name}: {error}"
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return "nothing waits"


def count_resumed(stops: int = 10) -> str:
    """Return how many stopped and resumed runs end with the tensors and metrics of a run without a stop."""
    data = random_data(2048)
    recipe = Recipe(data="cifar10", model="wide_resnet-16-4", policy="uncertain", defaults="cifar", epochs=2, batch=128)
    same = 0
    with tempfile.TemporaryDirectory() as folder:
        train(recipe, out=Path(folder) / "whole", device=GPU, splits=data, deterministic=True)
        expected = checkpoint.load(Path(folder) / "whole")
        assert expected is not None
        for stop in range(stops):
            out = Path(folder) / str(stop)
            at = 1 + stop * 31 // stops  # of 32 steps
            try:
                train(recipe, out=out, device=GPU, splits=data, deterministic=True, on_step=lambda p, at=at: p.step == at)
            except Stopped:
                train(recipe, out=out, device=GPU, splits=data, deterministic=True)
                resumed = checkpoint.load(out)
                assert resumed is not None
                tensors = all(torch.equal(resumed[0][name], tensor) for name, tensor in expected[0].items())
                same += tensors and resumed[1]["metrics"] == expected[1]["metrics"]
    return f"{same}/{stops}"


def end_alike() -> dict[str, bool]:
    """Return whether CUDA graphs change nothing and another seed changes the losses. Otherwise the test above means little."""
    data = random_data(1000)
    recipe = Recipe(data="cifar10", model="wide_resnet-16-4", policy="uncertain", epochs=2, batch=128)
    with tempfile.TemporaryDirectory() as folder:

        def losses(name: str, **options: bool) -> list[float]:
            changed = replace(recipe, seed=int(name == "other"))
            run = train(changed, out=Path(folder) / name, device=GPU, splits=data, deterministic=True, **options)
            return [row["train_loss"] for row in run.metrics]

        first = losses("recorded")
        return {
            "without graphs the same": losses("plain", graphs=False) == first,
            "another seed differs": losses("other") != first,
        }
