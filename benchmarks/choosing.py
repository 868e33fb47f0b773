"""Compare ways of choosing augmentations on CIFAR-10 at equal time: one process, one compiled model, many short runs.

    PYTHONPATH=src python3 benchmarks/choosing.py --variants random,proportional4 --time-of random:111 --result choosing.json
    python benchmarks/choosing.py --smoke                                        # every variant, tiny, on the CPU

All variants share the data, the initial weights of a seed, the order of the images and the schedule. Weights are reset in
place, so that nothing is compiled or recorded twice. Every run also keeps an average of the weights (EMA). Choose settings by
the validation accuracy, which is measured on train images that are held out; never by the test accuracy.
"""

import argparse
import copy
import itertools
import json
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch
from machine import machine, wait
from torch import Tensor, nn

from outspan import rng
from outspan.config import Recipe
from outspan.data.sets import hold_out, load
from outspan.devices import to_device
from outspan.models.evaluating import evaluating
from outspan.policies.batch import Batch
from outspan.policies.drawing import draw
from outspan.policies.losses import soft_cross_entropy
from outspan.policies.plain import Plain
from outspan.policies.proposals import Proposal, Step, any_of, over_range, sequence
from outspan.policies.published import randaugment, trivialaugment
from outspan.policies.table import parse_transforms
from outspan.policies.targets import make_targets
from outspan.policies.uncertain import Uncertain, choose
from outspan.training.graphs import Learner, Replayed
from outspan.training.loop import algorithms
from outspan.training.state import State, initial, lr_at, make_optimizer, take_step
from outspan.training.trained import accuracy, last_step
from outspan.transforms.normalize import Normalize

DEFAULTS = "cifar-cutout"  # applied after every policy
CLASSES = 10
DECAY = 0.999  # of the average of the weights
WINDOW = 50  # steps between two looks at the clock and at the loss
WARM, TIMED = 20, 200  # steps that measure a variant's step time: the first compile and record
MIN_SECONDS = 45  # seconds that must be left to try a variant
Policy = Callable[..., Batch]


@dataclass(frozen=True)
class Variant:
    """One way to augment and choose. Any field can be changed by name on the command line: `max4+finish=0.2`."""

    base: str = "random"  # or "randaugment", "trivialaugment"
    transforms: str = "paper16"
    depth: int = 2
    strength: float = 1.0  # scales levels and probabilities; at most 1
    finish: float = 0.0  # last fraction of the steps, with the defaults alone
    candidates: int = 1
    select: str = "proportional"  # or "max"
    score_every: int = 1  # between, one candidate is drawn plainly
    start: float = 0.0  # choose only in this part of the run
    stop: float = 1.0
    part: float = 1.0  # fraction of the batch whose candidates are scored; the rest is drawn plainly
    proxy: str = ""  # a small model that learns along and scores; empty: the main model scores
    proxy_every: int = 1  # the proxy learns from every k-th batch
    reference: bool = False  # subtract the loss under the average of the scoring model's weights
    pool: int = 0  # rank all rows together: of each step's pool x batch rows, train on one batch
    draws: int = 1  # draws of each image in a batch of draws x fewer images, none of them scored


SMALL = "wide_resnet-16-1"
NO_MIXUP = ",".join(name for name in parse_transforms("paper16") if name != "mixup")
VARIANTS: dict[str, Variant] = {
    "none": Variant(depth=0),
    "random": Variant(),
    "strength0.5": Variant(strength=0.5),
    "strength0.75": Variant(strength=0.75),
    "depth3": Variant(depth=3),
    "depth4": Variant(depth=4),
    "nomixup": Variant(transforms=NO_MIXUP),
    "randaugment": Variant(base="randaugment"),
    "trivialaugment": Variant(base="trivialaugment"),
    "finish0.1": Variant(finish=0.1),
    "finish0.2": Variant(finish=0.2),
    "strength0.5-finish0.2": Variant(strength=0.5, finish=0.2),
    "proportional4": Variant(candidates=4),
    "proportional2": Variant(candidates=2),
    "max4": Variant(candidates=4, select="max"),
    "proportional4-nomixup": Variant(candidates=4, transforms=NO_MIXUP),
    "proportional4-finish0.2": Variant(candidates=4, finish=0.2),
    "proxy": Variant(candidates=4, proxy=SMALL),
    "proxy-every4": Variant(candidates=4, proxy=SMALL, proxy_every=4),
    "proxy-max": Variant(candidates=4, proxy=SMALL, select="max"),
    "proxy16-2": Variant(candidates=4, proxy="wide_resnet-16-2"),
    "proxy10-1": Variant(candidates=4, proxy="wide_resnet-10-1"),
    "proxy10-1-every4": Variant(candidates=4, proxy="wide_resnet-10-1", proxy_every=4),
    "rho": Variant(candidates=4, proxy=SMALL, reference=True, select="max"),
    "hardest-rows": Variant(candidates=2, pool=2, proxy=SMALL, proxy_every=4, select="max"),  # 2 draws of each image
    "hardest-images": Variant(candidates=1, pool=2, proxy=SMALL, proxy_every=4, select="max"),  # 1 draw of twice the images
    "proportional-rows": Variant(candidates=2, pool=2, proxy=SMALL, proxy_every=4),
    "proportional-images": Variant(candidates=1, pool=2, proxy=SMALL, proxy_every=4),
    "part0.25": Variant(candidates=4, part=0.25),
    "part0.5": Variant(candidates=4, part=0.5),
    "every2": Variant(candidates=4, score_every=2),
    "first-half": Variant(candidates=4, stop=0.5),
    "last-half": Variant(candidates=4, start=0.5, finish=0.1),
    "draws4": Variant(draws=4),
}


def find_variant(name: str) -> Variant:
    """Return a variant by name, with fields changed: "proxy+finish=0.2+strength=0.5"."""
    first, *changes = name.split("+")
    if first not in VARIANTS:
        raise ValueError(f"unknown variant {first!r} (known: {', '.join(VARIANTS)})")
    known = {field.name: type(field.default) for field in fields(Variant)}
    values = dict(change.partition("=")[::2] for change in changes)
    if wrong := values.keys() - known.keys():
        raise ValueError(f"unknown field {min(wrong)!r} in {name!r} (known: {', '.join(known)})")
    typed = {key: value == "True" if known[key] is bool else known[key](value) for key, value in values.items()}
    return replace(VARIANTS[first], **typed)


def proposal_of(variant: Variant) -> Proposal:
    """Return what a variant draws from; a strength below 1 scales both the levels and the probability of each transform."""
    if variant.base == "randaugment":
        return randaugment(3, 4)
    if variant.base == "trivialaugment":
        return trivialaugment()
    ranges = [over_range(name, 0.5) for name in parse_transforms(variant.transforms)]
    s = variant.strength
    steps = [Step(step.name, s * step.low, s * step.high, s * step.probability) for step in ranges]
    return any_of(steps, variant.depth, replacement=False)


class Net:
    """A model, the average of its weights, and what learns from and scores batches with it, recorded on a GPU."""

    def __init__(
        self, recipe: Recipe, shape: tuple[int, ...], device: torch.device, *, compiled: bool, score_rows: int
    ) -> None:
        on_gpu = device.type == "cuda"
        self.recipe, self.shape, self.on_gpu = recipe, shape, on_gpu
        model = initial(recipe, shape, CLASSES).to(device)
        self.model = model.to(memory_format=torch.channels_last) if on_gpu else model
        self.averaged = copy.deepcopy(self.model).requires_grad_(False)
        fast, averaged = self.model, self.averaged
        if compiled:
            fast, averaged = torch.compile(self.model, dynamic=False), torch.compile(self.averaged, dynamic=False)
        self.learn = Learner(fast, 0.0, graphs=on_gpu)
        self.score, self.score_averaged = Chunked(Replayed(fast), score_rows), Chunked(Replayed(averaged), score_rows)
        pairs = list(zip(self.averaged.state_dict().values(), self.model.state_dict().values(), strict=True))
        self.floats = [list(tensors) for tensors in zip(*(pair for pair in pairs if pair[0].is_floating_point()), strict=True)]
        self.others = [pair for pair in pairs if not pair[0].is_floating_point()]

    def reset(self, seed: int) -> State:
        """Return to the initial weights of a seed, in place, with a new optimizer."""
        fresh = initial(replace(self.recipe, seed=seed), self.shape, CLASSES).state_dict()
        for target in (self.model, self.averaged):
            for name, tensor in target.state_dict().items():
                tensor.copy_(fresh[name])
        self.learn.model.train()
        weights = [p for p in self.model.parameters() if p.ndim > 1]
        others = [p for p in self.model.parameters() if p.ndim <= 1]
        return State(self.model, make_optimizer(self.recipe, weights, others, on_gpu=self.on_gpu))

    def average(self, step: int) -> None:
        """Move the averaged weights and statistics towards the present ones."""
        torch._foreach_lerp_(*self.floats, 1 - min(DECAY, (1 + step) / (10 + step)))


class Chunked(nn.Module):
    """A model that scores `rows` rows at a time, so that all numbers of candidates share one recording; 0 is all at once."""

    def __init__(self, model: nn.Module, rows: int) -> None:
        super().__init__()
        self.model, self.rows = model, rows

    def forward(self, images: Tensor) -> Tensor:
        parts = images.split(self.rows) if self.rows else [images]
        return torch.cat([self.model(part) for part in parts]) if len(parts) > 1 else self.model(images)


@dataclass(frozen=True)
class Ranked:
    """Score candidates and keep one batch of them: of each image's, or of all rows together; optionally by excess loss."""

    model: nn.Module
    reference: nn.Module | None
    propose: Proposal
    candidates: int
    keep: int  # rows
    pooled: bool
    power: float
    preprocess: Normalize
    seed: int

    def __call__(self, images: Tensor, labels: Tensor, *, step: int) -> Batch:
        plan = draw(self.propose, DEFAULTS, len(images), seed=self.seed, step=step, candidates=self.candidates)
        pixels = self.preprocess.execute(images, plan)
        targets = make_targets(images, labels, plan, CLASSES)
        score = self._losses(self.model, pixels, targets)
        if self.reference is not None:
            score = score - self._losses(self.reference, pixels, targets)
        groups = 1 if self.pooled else len(images)
        chosen = choose(score.view(groups, -1), self.keep // groups, self.power, seed=self.seed, step=step)
        return Batch(pixels[chosen], targets[chosen], plan, chosen)

    def _losses(self, model: nn.Module, pixels: Tensor, targets: Tensor) -> Tensor:
        with evaluating(model):
            losses = soft_cross_entropy(model(pixels).float(), targets, reduction="none")
        return losses.clone()  # out of inference mode


@dataclass(frozen=True)
class Part:
    """Choose for the first images of a batch, and draw plainly for the rest."""

    chosen: Uncertain
    plain: Plain
    count: int

    def __call__(self, images: Tensor, labels: Tensor, *, step: int) -> Batch:
        first = self.chosen(images[: self.count], labels[: self.count], step=step)
        rest = self.plain(images[self.count :], labels[self.count :], step=step)
        return Batch(torch.cat([first.inputs, rest.inputs]), torch.cat([first.targets, rest.targets]), rest.drawn)


@lru_cache(maxsize=8)
def _order(seed: int, epoch: int, size: int) -> Tensor:
    return torch.from_numpy(rng.generator(seed, "order", epoch).permutation(size))


def rows_of(step: int, count: int, size: int, seed: int) -> Tensor:
    """Return the images of a step. Epochs follow one another without a break: every batch is full."""
    begin, end = step * count, (step + 1) * count
    epochs = range(begin // size, (end - 1) // size + 1)
    return torch.cat([_order(seed, epoch, size)[max(begin - epoch * size, 0) : end - epoch * size] for epoch in epochs])


@dataclass
class Outcome:
    """What a run measured."""

    seconds: float
    windows: list[float]  # ms per step, by window
    train_loss: float | None  # over the last epoch; None if it diverged


class Bench:
    """The data on its device, the models that are built so far, and the measured step times."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        data = load("cifar10")
        train, self.test = data.train, data.test
        if options.smoke:
            self.test = self.test.take(torch.arange(200))
        if options.images < len(train):  # held out of the images that are not trained on
            rest = train.take(torch.arange(options.images, len(train)))
            train, self.validation = train.take(torch.arange(options.images)), hold_out(rest, options.validation, 0)[1]
        else:
            train, self.validation = hold_out(train, options.validation, 0)
        self.preprocess = last_step(*train.statistics(), on_gpu=self.device.type == "cuda")
        self.shape, self.train_split = train.shape, train.to(self.device)
        self.recipe = Recipe(data="cifar10", model=options.model, batch=options.batch, lr=options.lr)
        self.compiled = self.device.type == "cuda" and not options.no_compile
        self.machine = machine("triton")
        self.net = cache(self._build)
        self.probe = cache(self._probe)

    def _build(self, role: str, model: str) -> Net:
        recipe = replace(self.recipe, model=model)
        return Net(recipe, self.shape, self.device, compiled=self.compiled, score_rows=self.options.score_rows)

    def steps_in(self, epochs: float) -> int:
        return max(1, round(epochs * len(self.train_split) / self.recipe.batch))

    def proxy_of(self, variant: Variant) -> Net | None:
        name = "wide_resnet-10-1" if self.options.smoke else variant.proxy
        return self.net("proxy", name) if variant.proxy else None

    def policies(self, variant: Variant, seed: int) -> dict[str, tuple[Policy, int]]:
        """Return the policy of each phase, "choose", "plain" and "finish", and how many images it takes a step."""
        propose, batch = proposal_of(variant), self.recipe.batch
        common: dict[str, Any] = {"defaults": DEFAULTS, "preprocess": self.preprocess, "classes": CLASSES}
        plain = Plain(propose, seed=seed, **common)
        phases: dict[str, tuple[Policy, int]] = {
            "plain": (plain, batch),
            "finish": (Plain(sequence(), seed=seed, **common), batch),
            "choose": (plain, batch),
        }
        scorer = self.proxy_of(variant) or self.net("main", self.recipe.model)
        if variant.draws > 1:  # nothing is scored where all candidates are kept
            draws = {"candidates": variant.draws, "keep": variant.draws}
            phases["choose"] = Uncertain(scorer.score, propose, seed=seed, **draws, **common), batch // variant.draws
        elif variant.pool or variant.reference:
            reference = scorer.score_averaged if variant.reference else None
            images = batch * max(variant.pool, 1) // (variant.candidates if variant.pool else 1)
            power = float("inf") if variant.select == "max" else 1.0
            of_rows = (variant.candidates, batch, variant.pool > 0, power, self.preprocess, seed)
            phases["choose"] = Ranked(scorer.score, reference, propose, *of_rows), images
        elif variant.candidates > 1:
            how = {"candidates": variant.candidates, "select": variant.select, "score_every": variant.score_every}
            chosen = Uncertain(scorer.score, propose, seed=seed, **how, **common)
            rest = Plain(propose, seed=rng.derive(seed, "rest"), **common)
            phases["choose"] = chosen if variant.part == 1 else Part(chosen, rest, round(variant.part * batch)), batch
        return phases

    def train(self, variant: Variant, seed: int, steps: int) -> Outcome:
        """Train the main model from the start. The host reads a loss only when the device has long passed it."""
        main, proxy, split = self.net("main", self.recipe.model), self.proxy_of(variant), self.train_split
        state, proxy_state = main.reset(seed), proxy.reset(seed) if proxy else None
        phases = self.policies(variant, seed)
        last_epoch, layout = self.steps_in(1), self.preprocess.layout
        means: list[Tensor] = []
        window, waiting, diverged = min(WINDOW, max(1, steps // 4)), None, False
        wait(self.device)
        began = time.perf_counter()
        marks = [self._mark()]
        for step in range(steps):
            progress = step / steps
            choosing = variant.start <= progress < variant.stop
            policy, count = phases["finish" if progress >= 1 - variant.finish else "choose" if choosing else "plain"]
            here = to_device(rows_of(step, count, len(split), seed), self.device)
            batch = policy(split.images[here], split.labels[here], step=step)
            batch = replace(batch, inputs=batch.inputs.contiguous(memory_format=layout))  # one layout: one recording
            lr = lr_at(self.recipe, step, steps)
            means.append(take_step(state, main.learn, main.recipe, batch, lr).mean())
            main.average(step)
            if proxy and proxy_state and step % variant.proxy_every == 0:
                take_step(proxy_state, proxy.learn, proxy.recipe, batch, lr)
                if variant.reference:
                    proxy.average(step)
            state.step = step + 1
            if (step + 1) % window == 0:
                marks.append(self._mark())
                diverged = waiting is not None and not waiting.isfinite().item()
                waiting = torch.stack(means[-window:]).mean()
                if diverged:
                    break
        wait(self.device)
        seconds = time.perf_counter() - began
        loss = torch.stack(means[-last_epoch:]).mean().item()
        windows = [self._elapsed(*pair) / window for pair in itertools.pairwise(marks)]
        return Outcome(seconds, windows, loss if loss == loss and not diverged else None)

    def _mark(self) -> Any:
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _elapsed(self, before: Any, after: Any) -> float:
        """Return the milliseconds between two marks."""
        return before.elapsed_time(after) if self.device.type == "cuda" else 1000 * (after - before)

    def _probe(self, name: str) -> float | None:
        """Return a variant's ms per step, phases in proportion; None if it fails, so that the others still run."""
        warm, timed = (4, 8) if self.options.smoke else (WARM, TIMED)
        began = time.perf_counter()
        try:
            self.train(find_variant(name), 0, warm)
            compiling = time.perf_counter() - began
            measured = 1000 * self.train(find_variant(name), 0, timed).seconds / timed
        except RuntimeError:  # CUDA and the compiler raise these
            traceback.print_exc()
            print(f"{name}: failed, skipped", flush=True)
            return None
        print(f"{name}: {measured:.2f} ms per step (first {warm} steps {compiling:.0f} s)", flush=True)
        return measured

    def run(self, name: str, seed: int, steps: int) -> dict[str, Any]:
        """Train and evaluate a variant; return its row."""
        outcome = self.train(find_variant(name), seed, steps)
        windows = outcome.windows[1:] or outcome.windows
        return {
            **self.evaluate(),
            "epochs": round(steps * self.recipe.batch / len(self.train_split), 2),  # counted in gradients, not in images read
            "steps": steps,
            "seconds": round(outcome.seconds, 2),
            "ms_per_step": round(statistics.median(windows), 4),
            "ms_per_step_mean": round(statistics.fmean(windows), 4),  # what counts where phases differ
            "train_loss": outcome.train_loss,
            "settings": asdict(find_variant(name)),
            "score_rows": self.options.score_rows,
            "compiled": self.compiled,
            "machine": self.machine,
        }

    def evaluate(self) -> dict[str, float | None]:
        """Return the accuracies of the main model, in %, raw and of the averaged weights."""
        main, accuracies = self.net("main", self.recipe.model), {}
        for target, source in main.others:
            target.copy_(source)
        for split_name, split in (("validation", self.validation), ("test", self.test)):
            for weights, model in (("raw", main.model), ("ema", main.averaged)):
                value = None if split is None else 100 * accuracy(model, split, self.preprocess, self.device)
                accuracies[f"{split_name}_{weights}"] = None if value is None else round(value, 3)
        return accuracies


def split_epochs(text: str, epochs: float) -> tuple[str, float, bool]:
    """Read "random:111" as a variant, its epochs, and whether they were given."""
    name, colon, given = text.partition(":")
    return name, float(given) if colon else epochs, bool(colon)


def read_options(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line; the settings that depend on one another are filled in."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variants", default="", help=f"NAME[+FIELD=VALUE][:EPOCHS] with commas; of {', '.join(VARIANTS)}")
    parser.add_argument("--epochs", type=float, default=60)
    parser.add_argument("--time-of", default="", help="NAME:EPOCHS; variants get as many steps as fit in its time")
    parser.add_argument("--seeds", default="0", help="with commas")
    parser.add_argument("--images", type=int, default=50_000, help="train on the first N train images")
    parser.add_argument("--validation", type=int, default=5_000, help="train images held out")
    parser.add_argument("--model", default="wide_resnet-28-2")
    parser.add_argument("--batch", type=int, default=0, help="512; 128 with at most 10,000 images")
    parser.add_argument("--lr", type=float, default=0.0, help="0.2; 0.1 with at most 10,000 images")
    parser.add_argument("--score-rows", type=int, default=0, help="rows the scoring model takes at a time; 0 is all")
    parser.add_argument("--minutes", type=float, default=1e9, help="start no run that would not end in time")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--result", type=Path, help="a JSON file that rows are added to; rows it has are not run again")
    parser.add_argument("--smoke", action="store_true", help="tiny settings, to see that every variant runs")
    options = parser.parse_args(arguments)
    if options.smoke:
        options.images, options.validation, options.batch, options.epochs = 512, 200, 32, 1
        options.model = "wide_resnet-10-1"
    small = options.images <= 10_000
    options.batch, options.lr = options.batch or (128 if small else 512), options.lr or (0.1 if small else 0.2)
    options.variants = [split_epochs(text, options.epochs) for text in (options.variants or ",".join(VARIANTS)).split(",")]
    options.seeds = [int(seed) for seed in options.seeds.split(",")]
    try:
        for name, _, _ in [*options.variants, split_epochs(options.time_of or "random", 0)]:
            find_variant(name)
    except ValueError as error:
        parser.error(str(error))
    return options


def main() -> None:
    """Run what is missing, write a row after every run, and print a table."""
    options, end = read_options(), time.monotonic()
    end += 60 * options.minutes
    torch._dynamo.config.recompile_limit = 64  # models and shapes share the code of nn.Sequential
    rows = json.loads(options.result.read_text()) if options.result and options.result.exists() else []
    base, base_epochs, _ = split_epochs(options.time_of or "random", options.epochs)
    with algorithms(deterministic=False):
        bench = Bench(options)
        base_ms = bench.probe(base)
        if base_ms is None:
            sys.exit(f"{base}: does not run, so that no cost can be measured")
        for seed, (name, epochs, own) in itertools.product(options.seeds, options.variants):
            requested = f"time of {options.time_of}" if options.time_of and not own else f"{epochs:g} epochs"
            key = {"variant": name, "requested": requested, "seed": seed}
            key |= {field: getattr(options, field) for field in ("images", "model", "validation", "batch", "lr")}
            if any(key.items() <= row.items() for row in rows):
                continue
            ms = bench.probe(name) if end - time.monotonic() > MIN_SECONDS else None
            if ms is None:
                print(f"{name} seed {seed}: not started", flush=True)
                continue
            steps = (
                round(bench.steps_in(base_epochs) * base_ms / ms) if requested.startswith("time") else bench.steps_in(epochs)
            )
            needed, left = 5 + 1.03 * steps * ms / 1000, end - time.monotonic()
            if needed > left:
                print(f"{name} seed {seed}: not started, needs {needed:.0f} s of {left:.0f}", flush=True)
                continue
            cost = round(ms / base_ms, 4) if base == "random" else None
            rows.append(key | bench.run(name, seed, steps) | {"cost": cost, "ms_per_step_probe": round(ms, 4)})
            if options.result:
                options.result.write_text(json.dumps(rows, indent=1) + "\n")
            print(describe(rows[-1:]), flush=True)
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in ("images", "model", "requested", "variant")), []).append(row)
    print("\nMeans over seeds. Accuracies in %: raw weights, averaged weights (EMA). Cost: step time relative to random.")
    for _, group in sorted(groups.items()):
        print(describe(group))


def describe(rows: list[dict[str, Any]]) -> str:
    """Return one line for the runs of a variant: the means over their seeds."""

    def mean(name: str, form: str) -> str:
        values = [row[name] for row in rows if row[name] is not None]
        return format(statistics.fmean(values), form) if values else "-"

    names = {"validation_raw": "8.2f", "validation_ema": "6.2f", "test_raw": "8.2f", "test_ema": "6.2f", "train_loss": "7.3f"}
    names |= {"epochs": "7.1f", "ms_per_step": "7.2f", "cost": "6.2f", "seconds": "6.0f"}
    first, seeds = rows[0], ",".join(str(row["seed"]) for row in rows)
    figures = "  ".join(f"{name} {mean(name, form)}" for name, form in names.items())
    return f"{first['variant']:24} {first['requested']}, {first['images']} images, seeds {seeds}: {figures}"


if __name__ == "__main__":
    main()
