"""Results show their tables and figures in notebooks."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

import outspan
from html_pages import read_page
from outspan.data.dataset import Data
from outspan.data.splits import InMemory
from outspan.measurement.compose import compose
from outspan.measurement.core import find_core_set
from outspan.measurement.mixup import study_mixup
from outspan.training.predicted import Predicted

KEYS = {"model": "mlp", "epochs": 1, "batch": 20, "device": "cpu"}


def check(result, *texts: str, has_figure: bool = True) -> None:
    page = read_page(result._repr_html_())
    for text in texts:
        assert text in page.text
    assert page.of("table")
    assert bool(page.of("img")) == has_figure
    if has_figure:
        assert Image.open(io.BytesIO(result._repr_png_())).format == "PNG"


def test_a_run_and_its_evaluation(tiny, tmp_path):
    summary = outspan.train(data=tiny, policy="random", out=tmp_path / "run", **KEYS)
    check(summary, f"{100 * summary.accuracy:.2f} %", "seconds of training")
    evaluation = outspan.evaluate(tmp_path / "run")
    check(evaluation, "balanced_accuracy", "recall, %")


def test_a_comparison(tiny, tmp_path):
    check(
        outspan.compare(data=tiny, policies="none,random", seeds=2, out=tmp_path, **KEYS), "none", "random", "seconds per run"
    )


def test_studies(few, tmp_path):
    study = {"data": few, "seeds": 2, **KEYS}
    measurement = outspan.measure(transforms="rotate,invert", out=tmp_path / "a", **study)
    check(measurement, "baseline", "invert", measurement.transforms["invert"].effect.verdict)
    check(compose(transforms="rotate,invert", out=tmp_path / "a", **study), "reduction, %")
    check(find_core_set(transforms="rotate,invert", out=tmp_path / "a", **study), "Core set: ", has_figure=False)
    check(study_mixup(weight_decays=[1e-4], fractions=[0.0], out=tmp_path / "b", **study), "weight decay")


def test_class_names_are_text(tmp_path):
    predicted = Predicted(torch.tensor([[0.9, 0.1]]), ("<script>alert(1)</script>", "b"))
    check(predicted, "<script>alert(1)</script> 90.0 %", has_figure=False)
    assert not read_page(predicted._repr_html_()).of("script")
    images, labels = torch.from_numpy(np.zeros((40, 1, 8, 8), np.uint8)), torch.arange(40) % 2
    data = Data("d", InMemory(images, labels), InMemory(images, labels), ("<b>x</b>", "y"))
    outspan.train(splits=data, policy="random", out=tmp_path / "run", **KEYS)
    page = read_page(outspan.evaluate(tmp_path / "run", splits=data)._repr_html_())
    assert "<b>x</b>" in page.text
    assert not page.of("b")


@pytest.mark.parametrize("count", [0, 1, 30])
def test_only_the_first_inputs_are_shown(count):
    predicted = Predicted(torch.full((count, 2), 0.5), ("a", "b"))
    assert len(read_page(predicted._repr_html_()).of("tr")) == 1 + min(count, 20)
