"""Calculate the time of ImageNet with ResNet-50 and Algorithm 1 on many GPUs, from results/*.json and cited numbers.

    python benchmarks/scale.py                          # write the tables of docs/scale.md
    python benchmarks/scale.py --cores 2 --images 64    # print them with other assumptions

The page names the sources.
"""

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from machine import ROOT

from outspan import models
from outspan.config import tomllib

PAGE = ROOT / "docs" / "scale.md"
GPUS = (8, 16, 32, 64, 128, 256)
A100 = 2470.0  # images per second, in mixed precision
PILLOW = 537.0  # images per second
NODE = 8  # GPUs of a machine
TRAIN, TEST = 1_281_167, 50_000  # images of ILSVRC 2012
NETWORKS = {"one 100 Gb/s card": 12.2, "four 100 Gb/s cards": 48.0}  # GB/s between machines, of an all-reduce
SOURCES = {
    "A100": "[NVIDIA, DeepLearningExamples](https://github.com/NVIDIA/DeepLearningExamples/tree/master/PyTorch/Classification/ConvNets/resnet50v1.5)",
    "node": "[nccl-tests issue 212](https://github.com/NVIDIA/nccl-tests/issues/212)",
    "network": "[nccl-tests issue 29](https://github.com/NVIDIA/nccl-tests/issues/29)",
    "decode": "[imread_benchmark](https://github.com/ternaus/imread_benchmark) of [arXiv:2605.08731](https://arxiv.org/abs/2605.08731)",
    "bytes": "[PaddlePaddle/models issue 1633](https://github.com/PaddlePaddle/models/issues/1633)",
    "ring": "[gloo/allreduce.cc](https://github.com/facebookincubator/gloo/blob/main/gloo/allreduce.cc)",
    "batch": "[arXiv:1706.02677](https://arxiv.org/abs/1706.02677)",
}


def read(name: str) -> dict[str, Any]:
    """Return a result file, or nothing if it has not been measured yet."""
    path = ROOT / "results" / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


@dataclass(frozen=True)
class Inputs:
    """The numbers that a reader may change, with those of the results and of the sources as defaults."""

    images: int = 32  # of a GPU in a step
    cores: int = 16  # that read images, per GPU
    node_gb: float = 370.0  # GB/s of an all-reduce in a machine
    file_kb: float = 138e6 / TRAIN  # kB of an image file
    hop_us: float = 30.0  # µs of a small message between machines, over TCP
    decode: float = 0.0  # images per second and core; 0: measured, or else cited


class Model:
    """The time of a step. All times are in ms and of one GPU."""

    def __init__(self, inputs: Inputs) -> None:
        with open(ROOT / "recipes" / "paper" / "imagenet-resnet-50.toml", "rb") as file:
            recipe = tomllib.load(file)
        self.inputs, self.measured = inputs, read("scale").get("resnet-50", {}).get("ms", {})
        self.candidates, self.keep, self.epochs, self.batch = (recipe[key] for key in ("candidates", "keep", "epochs", "batch"))
        network = models.build("resnet-50", (3, 224, 224), 1000)
        self.parameters = sum(parameter.numel() for parameter in network.parameters())
        self.statistics = sum(buffer.numel() for buffer in network.buffers() if buffer.is_floating_point())

    @property
    def scoring(self) -> float:
        """How many rows are scored in the time of training on one: measured with a WRN-28-10."""
        steps = read("gpu")["ms_a_step, graphs"]["wide_resnet-28-10, batch 128"]
        return 4 * steps["none"] / steps["uncertain, C=4, S=1: scoring"]

    @property
    def augmenting(self) -> float:
        """Images per second that a GPU augments."""
        return read("gpu")["images_per_second"]["224 px, 256 images"]["  drawing the plan too"]

    @property
    def decoding(self) -> float:
        """Images per second that a core reads."""
        measured = read("scale").get("decode", {}).get("images_per_second", {}).get("one worker", PILLOW)
        return self.inputs.decode or measured

    def compute(self, images: float) -> float:
        """Augmenting, scoring and training."""
        if self.measured:
            sizes = sorted(map(int, self.measured))
            return float(np.interp(images, sizes, [self.measured[str(size)]["algorithm 1"] for size in sizes]))
        rows = self.candidates / self.scoring + self.keep
        return 1000 * images * (rows / A100 + self.candidates / self.augmenting)

    @property
    def megabytes(self) -> float:
        """What the ranks add up after the backward pass: gradients and running statistics, float32."""
        return 4e-6 * (self.parameters + self.statistics)

    def reduce(self, gpus: int, network: float) -> float:
        """The all-reduce over a ring of all GPUs. It starts after the backward pass, so nothing hides it."""
        speed = self.inputs.node_gb if gpus <= NODE else min(self.inputs.node_gb, network)
        return 2 * (gpus - 1) / gpus * self.megabytes / speed

    def host(self, gpus: int) -> float:
        """What the CPU does in a step: the work of a rank, and the agreement of all whether to go on, a ring over TCP."""
        row = next(row for row in read("distributed")["cpu"] if row["model"] == "convnet" and row["group"])
        return row["wall_ms_per_step"] * (row["wall_ratio"] - 1) + 2 * (gpus - 1) * self.inputs.hop_us / 1000

    def read(self, images: float) -> float:
        """Reading the images of the step."""
        return 1000 * images / (self.inputs.cores * self.decoding)

    def step(self, gpus: int, images: float, network: float) -> float:
        """The longest of what happens at the same time."""
        return max(self.compute(images) + self.reduce(gpus, network), self.host(gpus), self.read(images))

    def limit(self, gpus: int, images: float, network: float) -> str:
        """What the step waits for."""
        reduce = self.reduce(gpus, network)
        compute = self.compute(images)
        times = {"GPU": compute + reduce, "agreement": self.host(gpus), "reading": self.read(images)}
        longest = max(times, key=lambda name: times[name])
        return f"GPU; all-reduce {100 * reduce / (compute + reduce):.0f} %" if longest == "GPU" else longest

    def hours(self, gpus: int, images: float, network: float) -> float:
        """The whole run, with the evaluation after every epoch."""
        steps = self.epochs * math.ceil(TRAIN / (gpus * images))
        test = self.epochs * TEST / gpus / self.images_evaluated
        return (steps * self.step(gpus, images, network) / 1000 + test) / 3600

    @property
    def images_evaluated(self) -> float:
        """Test images per second and GPU: not more than the cores read."""
        return min(self.scoring * A100, self.inputs.cores * self.decoding)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table in Markdown."""
    align = ["---:" if cell[:1].isdigit() else "---" for cell in rows[0]]
    return [f"| {' | '.join(row)} |" for row in (head, align, *rows)]


def sizes(model: Model) -> list[str]:
    """Return the table of batches, steps and bytes."""
    rows = []
    for gpus in GPUS:
        batch = gpus * model.inputs.images
        steps = math.ceil(TRAIN / batch)
        counts = (gpus, batch, batch * model.keep, steps, steps * model.epochs)
        rows.append([*(f"{count:,}" for count in counts), f"{2 * (gpus - 1) / gpus * model.megabytes:.0f}"])
    return table(["GPUs", "batch", "rows trained", "steps per epoch", "steps", "MB sent per GPU and step"], rows)


def times(model: Model, network: str) -> list[str]:
    """Return the table of times with a network."""
    speed, images, rows = NETWORKS[network], model.inputs.images, []
    for gpus in GPUS:
        step, hours = model.step(gpus, images, speed), model.hours(gpus, images, speed)
        parts = [model.compute(images), model.reduce(gpus, speed), model.host(gpus), model.read(images), step]
        each = gpus * images / step * 1000
        sums = [f"{each:,.0f}", f"{hours:.1f}", f"{gpus * hours:.0f}", model.limit(gpus, images, speed)]
        rows.append([f"{gpus}", *(f"{part:.1f}" for part in parts), *sums])
    head = ["GPUs", "GPU ms", "all-reduce ms", "host ms", "reading ms", "step ms", "images/s", "hours", "GPU hours", "limit"]
    return table(head, rows)


def recipe_times(model: Model) -> list[str]:
    """Return the table of the recipe's own batch."""
    rows = []
    for gpus in (8, 16, 32):
        images = model.batch / gpus
        for network, speed in NETWORKS.items() if gpus > NODE else {"within a machine": model.inputs.node_gb}.items():
            limit, hours = model.limit(gpus, images, speed), model.hours(gpus, images, speed)
            rows.append([f"{gpus}", network, f"{images:.0f}", f"{model.step(gpus, images, speed):.1f}", f"{hours:.1f}", limit])
    return table(["GPUs", "network", "images per GPU", "step ms", "hours", "limit"], rows)


def reading(model: Model) -> list[str]:
    """Return the table of what the input pipeline has to deliver."""
    rows, speed = [], NETWORKS["four 100 Gb/s cards"]
    for gpus in GPUS:
        per_gpu = 1000 * model.inputs.images / model.step(gpus, model.inputs.images, speed)
        total = gpus * per_gpu * model.inputs.file_kb / 1e6
        rows.append([f"{gpus}", f"{per_gpu:.0f}", f"{per_gpu / model.decoding:.2f}", f"{total:.2f}"])
    return table(["GPUs", "images/s per GPU", "cores per GPU", "GB/s from the storage"], rows)


def sources(model: Model) -> list[str]:
    """Return the table of the inputs of the model, with their sources."""
    gpu, inputs, scale = read("gpu")["machine"]["gpu"], model.inputs, read("scale")
    if model.measured:
        device, step = scale["resnet-50"]["machine"]["gpu"], f"{model.compute(inputs.images):.1f} ms"
        rows = [[f"step of ResNet-50 with {inputs.images} images", step, f"`results/scale.json`, resnet-50 ({device})"]]
    else:
        rows = [
            ["training of ResNet-50 per GPU", f"{A100:,.0f} images/s", f"A100, mixed precision: {SOURCES['A100']}"],
            ["rows scored while one is trained on", f"{model.scoring:.2f}", f"`results/gpu.json`, WRN-28-10, graphs ({gpu})"],
            ["augmenting", f"{model.augmenting:,.0f} images/s", f"`results/gpu.json`, 224 px, drawing the plan too ({gpu})"],
        ]
    pillow = f"decoding alone, Pillow, AMD EPYC 9B14: {SOURCES['decode']}"
    rows += [
        [
            "reading an image file, per core",
            f"{model.decoding:,.0f} images/s",
            "`results/scale.json`, decode, one worker" if "decode" in scale else pillow,
        ],
        ["parameters and running statistics", f"{model.parameters:,} + {model.statistics:,}", "`outspan.models`, counted"],
        ["all-reduce within a machine", f"{inputs.node_gb:.0f} GB/s", f"H100, NVLink, large messages: {SOURCES['node']}"],
        *([f"all-reduce between machines, {name}", f"{speed} GB/s", SOURCES["network"]] for name, speed in NETWORKS.items()),
        ["work of a rank on the CPU", f"{model.host(1):.2f} ms per step", "`results/distributed.json`, convnet, wall ratio"],
        ["order of the agreement", "2 (GPUs - 1) messages", f"a ring: {SOURCES['ring']}"],
        ["size of an image file", f"{inputs.file_kb:.0f} kB", f"138 GB for {TRAIN:,} images: {SOURCES['bytes']}"],
        ["small message between machines", f"{inputs.hop_us:.0f} µs", "assumption"],
        ["CPU cores per GPU", f"{inputs.cores}", f"assumption: that of our machine with an {gpu} (`results/gpu.json`)"],
        ["images of a GPU in a step", f"{inputs.images}", f"assumption: that of {SOURCES['batch']}"],
    ]
    return table(["input", "value", "source"], rows)


def measured() -> list[str]:
    """Return the table of what was measured here, per rank."""
    rows = [
        [row["model"], f"{row['wall_ms_per_step']:.1f} ms", f"{row['wall_ratio']:.3f}", f"{row['cpu_ratio']:.3f}"]
        for row in read("distributed")["cpu"]
        if row["group"]
    ]
    lines = table(["model, one CPU core", "step of the plain loop", "one rank, wall time", "one rank, CPU time"], rows)
    lines += ["", "The last two columns are ratios to the plain loop (`results/distributed.json`)."]
    if agree := read("scale").get("agree", {}).get("ms", {}):
        times = ", ".join(f"{ms:.2f} ms for {world}" for world, ms in agree.items())
        lines += [f"An agreement of ranks on one machine takes {times} ranks (`results/scale.json`)."]
    return lines


def summary(model: Model) -> list[str]:
    """Return the results in words."""
    images, (slow, fast) = model.inputs.images, NETWORKS.values()
    hours = [model.hours(gpus, images, fast) for gpus in (GPUS[0], GPUS[-1])]
    lost = [100 * model.reduce(256, speed) / (model.reduce(256, speed) + model.compute(images)) for speed in (fast, slow)]
    most = 100 * model.reduce(32, slow) / (model.reduce(32, slow) + model.compute(model.batch / 32))
    cores = 1000 * images / model.step(8, images, fast) / model.decoding
    met = model.compute(images) * 1000 / (2 * model.inputs.hop_us)
    return [
        f"- **Time.** About {hours[0]:.0f} hours on 8 GPUs and {hours[1]:.1f} on 256, if the batch grows with the GPUs.",
        f"- **All-reduce.** {lost[0]:.0f} % of a step on 256 GPUs with four cards of 100 Gb/s per machine,",
        f"  {lost[1]:.0f} % with one. With the recipe's batch of {model.batch} images it is up to {most:.0f} % on 32 GPUs.",
        f"- **Reading.** A GPU needs {cores:.2f} cores, because Algorithm 1 uses every image {model.candidates} times.",
        f"  Plain training at {A100:,.0f} images per second needs {A100 / model.decoding:.1f}.",
        "- **Agreement.** After every step the ranks agree whether to go on, while the GPU works. This becomes",
        f"  the limit at about {met:,.0f} GPUs.",
    ]


def sections(model: Model) -> dict[str, list[str]]:
    """Return the computed parts of the page, by heading."""
    parts = {"Result": summary(model), "Inputs": sources(model), "Measured here": measured(), "Batches and bytes": sizes(model)}
    parts |= {f"Times with {network} per machine": times(model, network) for network in NETWORKS}
    return parts | {"Batch of the recipe": recipe_times(model), "Reading": reading(model)}


def filled(page: str, model: Model) -> str:
    """Return the page with the computed parts in place of the text between their heading and the next one."""
    for heading, lines in sections(model).items():
        start = page.index(f"# {heading}\n") + len(f"# {heading}\n")
        page = page[:start] + "\n".join(["", *lines, "", ""]) + page[page.index("\n#", start) + 1 :]
    return page


def main() -> None:
    """Write the page, or print its computed parts with other assumptions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for field in fields(Inputs):
        parser.add_argument(f"--{field.name}", type=type(field.default), default=field.default)
    inputs = Inputs(**vars(parser.parse_args()))
    if inputs == Inputs():
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), Model(inputs)), encoding="utf-8")
        return
    for heading, lines in sections(Model(inputs)).items():
        print("\n".join([heading, "", *lines, ""]))


if __name__ == "__main__":
    main()
