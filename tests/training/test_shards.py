"""Runs on tar shards: stopped and resumed, evaluated from another folder, and with shards that are gone."""

import json
import shutil

import pytest
import torch

import outspan
from made import make_shards
from outspan.training import Stopped

KEYS = {"model": "mlp-8", "size": 8, "epochs": 3, "batch": 8, "policy": "random", "crop": "resized"}


def test_a_run_on_shards_resumes_exactly_and_is_evaluated_from_anywhere(tmp_path, monkeypatch, run, one_thread):
    monkeypatch.setenv("OUTSPAN_DATA", str(tmp_path / "cache"))
    make_shards(tmp_path)
    monkeypatch.chdir(tmp_path)
    data = "shard-{000..002}.tar"
    whole = outspan.train(data=data, **KEYS, out="whole")
    with pytest.raises(Stopped):
        outspan.train(data=data, **KEYS, out="parts", on_step=lambda progress: progress.step == 9)
    assert outspan.train(data=data, **KEYS, out="parts").accuracy == whole.accuracy
    one, other = (outspan.load(tmp_path / name).model.state_dict() for name in ("whole", "parts"))
    assert all(torch.equal(one[name], other[name]) for name in one)

    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    own = json.loads(run("evaluate", tmp_path / "whole", "--json"))
    assert own["tested"]["part"] == "held out"
    shutil.copytree(tmp_path, tmp_path / "copy", ignore=shutil.ignore_patterns("copy", "whole", "parts"))
    copied = json.loads(run("evaluate", tmp_path / "whole", "--data", tmp_path / "copy" / data, "--json"))
    assert copied["tested"] == own["tested"] | {"data": str(tmp_path / "copy" / data)}
    only = json.loads(run("evaluate", tmp_path / "whole", "--data", tmp_path / "copy" / "shard-001.tar", "--json"))["tested"]
    assert (only["part"], only["count"]) == ("whole", 20)
    assert 0 < only["trained_on"] < 20
    (tmp_path / "shard-001.tar").unlink()
    assert f"{data}: no longer exists; pass --data with its new path" in run("evaluate", tmp_path / "whole", code=2)
