"""Compare our training step with a plain PyTorch loop on the same model and data, and measure the cost of choosing.

    python benchmarks/train.py --rounds 7
    .venv-bench/bin/python benchmarks/train.py --photographs --rounds 3  # needs timm; writes results/train-photographs.json

All take turns in every round of one process; the result is the median over rounds. A turn is one epoch of the included
digits: without augmentation, with random transforms, and with Algorithm 1.

With --photographs a turn is a run of two epochs that fine-tunes a ResNet-18 of timm from a made checkpoint, on 20 classes of 50
photographs at 224 px: by `outspan.train`, and by a training loop with the parts of timm: its model, data set, transforms
without augmentation, loader and optimizer. Both read JPEG files with two processes. The seconds are those of the whole call,
with building the model. Those of outspan also contain the statistics of the data, for which it reads all photographs once and
keeps them in memory, the evaluation on 20 photographs after each epoch, and the checkpoint. timm's loader leaves out the
incomplete last batch, so its seconds are scaled to all photographs.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch
from machine import ROOT, machine
from photographs import make
from safetensors.torch import load_file, save_file

from outspan import models, rng, soft_cross_entropy
from outspan.config import Recipe
from outspan.data.sets import load
from outspan.policies.table import build_policy
from outspan.training.loss_queue import LossQueue, Outcome
from outspan.training.state import new_state
from outspan.training.step import Learner, lr_at, take_step
from outspan.training.train import train
from outspan.transforms.normalize import Normalize
from transforms import declare_torchvision_operators


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "train-cpu.json")
    parser.add_argument("--photographs", action="store_true", help="fine-tuning on photographs, beside timm")
    parser.add_argument("--per-class", type=int, default=50, help="photographs per class")
    options = parser.parse_args()
    rounds = options.rounds
    if options.photographs:
        out = options.out if options.out != parser.get_default("out") else ROOT / "results" / "train-photographs.json"
        return compare_with_timm(rounds, options.per_class, out)
    data = load("digits")
    recipe = Recipe(model="convnet", policy="none", epochs=1)
    preprocess = Normalize(*data.train.statistics())
    steps = len(data.train) // recipe.batch

    def ours(policy: str) -> None:
        changed = replace(recipe, policy=policy, transforms="geometric")
        state = new_state(changed, data.train.shape, 10, torch.device("cpu"))
        policy_step = build_policy(changed, state.model, data, preprocess)
        learn = Learner(state.model, 0.0, graphs=False)
        losses = LossQueue(torch.device("cpu"), lambda outcome, loss: loss)
        order = rng.generator(0, "order", 0).permutation(len(data.train))
        for step in range(steps):
            rows = torch.from_numpy(order[step * recipe.batch : (step + 1) * recipe.batch])
            batch = policy_step(data.train.images[rows], data.train.labels[rows], step=step)
            losses.add(Outcome(step, take_step(state, learn, changed, batch, lr_at(changed, step, steps)).mean()))
            state.step += 1

    def bare() -> None:
        model = models.build(recipe.model, (1, 28, 28), 10)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
        order = torch.randperm(len(data.train))
        mean, std = (torch.tensor(value).view(1, -1, 1, 1) for value in data.train.statistics())
        for step in range(steps):
            rows = order[step * recipe.batch : (step + 1) * recipe.batch]
            images = (data.train.images[rows].float() / 255 - mean) / std
            targets = torch.nn.functional.one_hot(data.train.labels[rows], 10).float()
            loss = soft_cross_entropy(model(images), targets)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            loss.item()

    contestants = {
        "bare loop": bare,
        "none": lambda: ours("none"),
        "random": lambda: ours("random"),
        "uncertain": lambda: ours("uncertain"),
    }
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(rounds + 1):
        for name, run in contestants.items():
            start = time.perf_counter()
            run()
            if turn:  # the first round is a warm-up
                seconds[name].append(time.perf_counter() - start)
    median = {name: statistics.median(times) for name, times in seconds.items()}
    for name, value in median.items():
        print(f"{name:12} {1000 * value / steps:7.2f} ms per step, {value / median['bare loop']:.2f} of a bare loop")
    steps_ms = {name: 1000 * value / steps for name, value in median.items()}
    ratios = {name: value / median["bare loop"] for name, value in median.items()}
    result = {"what": "convnet, embedded digits, batch 128", "rounds": rounds, "ms_a_step": steps_ms, "of_a_bare_loop": ratios}
    options.out.write_text(json.dumps({"machine": machine(), **result}, indent=2) + "\n")


EPOCHS, BATCH, BAR = 2, 32, 1.05
KEYS = {"size": 224, "epochs": EPOCHS, "batch": BATCH, "optimizer": "adamw", "lr": 5e-4, "weight_decay": 0.05, "policy": "none"}


def compare_with_timm(rounds: int, per_class: int, out: Path) -> None:
    """Measure the seconds of an epoch of fine-tuning, of outspan and of a loop of timm. Print and write them."""
    declare_torchvision_operators()  # before timm imports torchvision
    import timm

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder / "photos" / "train", 20, per_class, (500, 375))
        make(folder / "photos" / "val", 20, 1, (500, 375))
        torch.manual_seed(0)
        weights = folder / "made.safetensors"
        save_file(timm.create_model("resnet18", num_classes=1000).state_dict(), weights)

        def ours(turn: int) -> float:
            keys = {**KEYS, "data": str(folder / "photos"), "model": "timm:resnet18", "weights": str(weights), "workers": 2}
            began = time.perf_counter()
            train(out=folder / f"run{turn}", save_every=3600.0, **keys)
            return (time.perf_counter() - began) / EPOCHS

        contestants = {"outspan": ours, "timm": lambda turn: timm_seconds(folder, weights)}
        seconds: dict[str, list[float]] = {name: [] for name in contestants}
        for turn in range(rounds):
            for contestant, run in contestants.items():
                seconds[contestant].append(run(turn))
                print(f"round {turn}, {contestant}: {seconds[contestant][-1]:.2f} s per epoch", flush=True)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    ratio = medians["outspan"] / medians["timm"]
    print(f"outspan takes {ratio:.3f} times as long as timm (bar: {BAR})")
    result = {
        "what": f"timm's resnet18, 20 classes of {per_class} photographs, 224 px, batch {BATCH}, adamw, no augmentation",
        "seconds_an_epoch": seconds,
        "of_timm": ratio,
        "bar": {"at most": BAR, "reached": ratio <= BAR},
        "load": os.getloadavg(),
    }
    out.write_text(json.dumps({"machine": machine("timm", "torchvision"), **result}, indent=2) + "\n")


def timm_seconds(folder: Path, weights: Path) -> float:
    """Return the seconds of an epoch of a training loop with the parts of timm."""
    import timm
    from timm.data import ImageDataset, create_loader
    from timm.optim import create_optimizer_v2

    began = time.perf_counter()
    torch.manual_seed(0)
    overlay = {"state_dict": load_file(weights)}
    model = timm.create_model("resnet18", num_classes=20, pretrained=True, pretrained_cfg_overlay=overlay)
    optimizer = create_optimizer_v2(model, "adamw", lr=KEYS["lr"], weight_decay=KEYS["weight_decay"])
    data = ImageDataset(str(folder / "photos" / "train"))
    options = {"no_aug": True, "is_training": True, "use_prefetcher": False, "num_workers": 2, "device": torch.device("cpu")}
    loader = create_loader(data, (3, 224, 224), BATCH, interpolation="bilinear", crop_pct=1.0, **options)
    loss_function = torch.nn.CrossEntropyLoss()
    model.train()
    seen = 0
    for _ in range(EPOCHS):
        for images, labels in loader:
            seen += len(images)
            loss = loss_function(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item()
    return (time.perf_counter() - began) * len(data) / seen


if __name__ == "__main__":
    main()
