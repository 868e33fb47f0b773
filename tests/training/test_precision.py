"""The precision of a run, the loss scaling of fp16, and devices."""

from dataclasses import replace

import pytest
import torch

import outspan
from outspan import devices
from outspan.models.precision import in_precision
from outspan.training import Stopped, checkpoint
from outspan.training.metadata import RUN_CHECKS, check_metadata
from outspan.training.train import train
from outspan.training.trained import load
from trained_runs import SMALL, equal, few, final

CONV = replace(SMALL, model="convnet", epochs=2, clip=1.0, ema=0.5)


@pytest.mark.parametrize(("precision", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16), ("fp32", torch.float32)])
def test_a_precision_is_that_of_the_matrix_products(precision, dtype):
    model, seen = torch.nn.Linear(4, 3), []
    model.register_forward_hook(lambda _module, _inputs, output: seen.append(output.dtype))
    for outside in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=outside):
            in_precision(model, precision)(torch.randn(2, 4))
            in_precision(model, "auto")(torch.randn(2, 4))
    assert seen == [dtype, torch.float32, dtype, torch.bfloat16]


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_run_in_half_precision_learns_and_resumes_exactly(precision, tmp_path):
    recipe = replace(CONV, precision=precision, epochs=3)
    summary = train(recipe, out=tmp_path / "whole", splits=(data := few(100)))
    assert summary.loss < 2.2  # chance: 2.3
    stop = True
    while stop:
        try:
            train(recipe, out=tmp_path / "parts", splits=data, on_step=lambda progress: progress.step % 4 == 1)
            stop = False
        except Stopped:
            continue
    assert equal(final(tmp_path / "whole"), final(tmp_path / "parts"))
    assert outspan.evaluate(tmp_path / "whole", splits=data).accuracy == pytest.approx(summary.accuracy)


def test_fp32_on_a_cpu_is_the_default(tmp_path):
    train(CONV, out=tmp_path / "auto", splits=few())
    train(replace(CONV, precision="fp32"), out=tmp_path / "fp32", splits=few())
    one, other = final(tmp_path / "auto")[0], final(tmp_path / "fp32")[0]
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_loss_scaling_skips_steps_that_overflow_and_stays_in_the_checkpoint(tmp_path, monkeypatch):
    """With a scale of 2**40 the gradients overflow in the first steps, which must not change the weights."""
    scaler = torch.amp.GradScaler
    monkeypatch.setattr(torch.amp, "GradScaler", lambda device, enabled: scaler(device, init_scale=2.0**40, enabled=enabled))
    recipe = replace(CONV, precision="fp16", epochs=4)
    scales, weights = [], []

    def stop(progress):
        return progress.step in (1, 35)

    for _ in range(2):
        with pytest.raises(Stopped):
            train(recipe, out=tmp_path, splits=few(), on_step=stop)
        stored = checkpoint.load(tmp_path)
        scales.append(stored.metadata["scaler"][0])
        weights.append(stored.tensors["model.0.weight"])
        load(tmp_path)
    assert scales[0] == 2.0**39
    assert scales[1] < 2.0**30
    assert not torch.equal(*weights)
    assert any(name.startswith("momentum") for name in checkpoint.load(tmp_path).tensors)
    bad = {**checkpoint.load(tmp_path).metadata, "scaler": [0.0, 1]}
    with pytest.raises(ValueError, match="metadata 'scaler' must be a list of a positive number and an integer"):
        check_metadata(bad, RUN_CHECKS)


def test_a_device_that_is_not_there_is_refused_with_those_that_are(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert devices.available_devices() == ["cpu", "cuda:0", "cuda:1"]
    assert devices.find_device("cuda:1") == torch.device("cuda:1")
    assert devices.find_device("cuda") == torch.device("cuda")
    for name in ("cuda:2", "mps", "meta", "cpu:1"):
        with pytest.raises(ValueError, match=rf"device '{name}' is not there \(available: cpu, cuda:0, cuda:1\)$"):
            devices.find_device(name)
    with pytest.raises(ValueError, match=r"unknown device 'gpu' \(available: cpu, cuda:0, cuda:1\)"):
        devices.find_device("gpu")


def test_channels_last_and_workers_change_speed_only(tmp_path):
    """The sums of a convolution may be in another order, so the results are close, not equal."""
    usual = train(CONV, out=tmp_path / "usual", splits=few())
    last = train(CONV, out=tmp_path / "last", splits=few(), channels_last=True, workers=0)
    assert last.loss == pytest.approx(usual.loss, rel=0.05)
    model = final(tmp_path / "last")[0]
    assert all(torch.allclose(model[name], tensor, atol=0.05) for name, tensor in final(tmp_path / "usual")[0].items())
    with pytest.raises(ValueError, match="workers must be at least 0, got -1"):
        train(CONV, out=tmp_path / "wrong", splits=few(), workers=-1)


def test_resuming_with_another_memory_format_warns(tmp_path):
    with pytest.raises(Stopped):
        train(CONV, out=tmp_path, splits=few(), on_step=lambda progress: progress.step == 5)
    with pytest.warns(UserWarning, match="not be bit-identical .channels_last False then, True now"):
        train(CONV, out=tmp_path, splits=few(), channels_last=True)
