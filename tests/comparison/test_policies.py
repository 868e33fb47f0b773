"""`outspan.compare` from Python: its result, its files, and the output of the command."""

import json
import re

import numpy as np
import pytest

import outspan
from outspan.config import Recipe
from outspan.training import checkpoint

pytestmark = pytest.mark.usefixtures("one_thread")


def test_the_result_agrees_with_the_runs_and_the_stored_file(tiny, tmp_path):
    out = tmp_path / "compared"
    keys = {"data": str(tiny), "model": "mlp", "epochs": 2, "batch": 20}
    result = outspan.compare(policies=["none", "random", "none"], seeds=2, out=out, **keys)
    assert isinstance(result, outspan.Comparison)
    assert list(result.policies) == ["none", "random"]
    for policy, entry in result.policies.items():
        for seed, curve in enumerate(entry.curves):
            metrics = checkpoint.load(out / f"{policy}-{seed}")[1]["metrics"]
            assert curve == tuple(row["test_accuracy"] for row in metrics)
            assert entry.accuracies[seed] == curve[-1]
        assert entry.mean == pytest.approx(sum(entry.accuracies) / 2)
    stored = json.loads((out / "comparison.json").read_text())
    assert stored == result.as_dict()
    assert set(stored) == {"recipe", "equal", "metric", "seeds", "chance", "policies", "budgets", "differences", "warnings"}
    assert set(stored["policies"]["none"]) == {"test_accuracy", "mean", "std", "steps", "epochs", "seconds"}
    assert {"policy", "seed"}.isdisjoint(stored["recipe"])
    assert len(result.figure().axes[0].get_lines()) == 2
    assert result.chance == 0.5


def test_the_command_prints_the_result_of_the_function(tiny, tmp_path, run):
    out = tmp_path / "compared"
    recipe = Recipe(data=str(tiny), model="mlp", epochs=2, batch=20)
    result = outspan.compare(recipe, policies="none, random", seeds=2, out=str(out))
    before = sorted(path.stat().st_mtime_ns for path in out.glob("*/step-*.safetensors"))
    changes = [f"data={tiny}", "model=mlp", "epochs=2", "batch=20"]
    arguments = ["--policies", "none,random", "--seeds", "2", *(x for change in changes for x in ("--set", change))]
    printed = run("compare", *arguments, "-o", out)
    for policy, entry in result.policies.items():
        assert f"{100 * entry.mean:.2f} ± {100 * entry.std:.2f}" in next(
            x for x in printed.splitlines() if x.startswith(policy)
        )
    assert all(sentence in printed for sentence in result.verdicts)
    assert sorted(path.stat().st_mtime_ns for path in out.glob("*/step-*.safetensors")) == before  # nothing was trained again


def test_policies_are_compared_by_another_metric(tiny, tmp_path, run):
    out, options = tmp_path / "compared", ("--set", "epochs=1", "--set", "batch=20", "--set", "lr=0.001")
    command = ("compare", "--data", tiny, "--model", "mlp", "--policies", "none,random", "--seeds", "2", *options, "-o", out)
    printed = run(*command, "--metric", "macro_f1")
    stored = json.loads((out / "comparison.json").read_text())
    assert stored["metric"] == "macro_f1"
    for policy, entry in stored["policies"].items():
        values = [outspan.evaluate(out / f"{policy}-{seed}", device="cpu").metrics.macro_f1 for seed in range(2)]
        assert entry["test_macro_f1"] == values != entry["test_accuracy"]
        assert (entry["mean"], entry["std"]) == pytest.approx((np.mean(values), np.std(values, ddof=1)))
        assert f"{100 * entry['mean']:.2f} ± {100 * entry['std']:.2f}" in printed
    assert "test macro_f1, %" in printed
    assert "\nBy macro_f1:\n" in printed
    by_seed = np.array([entry["test_macro_f1"] for entry in stored["policies"].values()])
    assert stored["differences"][0]["mean"] == pytest.approx(abs(np.diff(by_seed.mean(1))[0]))
    other = (*command[:-1], tmp_path / "other")
    defined = "use one of accuracy, balanced_accuracy, macro_f1, weighted_f1, auroc"
    for name in ("top5", "map"):
        assert re.search(f"metric '{name}' is not defined for .* {defined}", run(*other, "--metric", name, code=2))
    assert not (tmp_path / "other").exists()  # nothing was trained
    assert "unknown metric 'ece' (known: accuracy, top5" in run(*command, "--metric", "ece", code=2)


def test_a_recipe_file_and_wrong_arguments(tiny, tmp_path, unchecked):
    path = tmp_path / "r.toml"
    path.write_text(f'data = "{tiny}"\nmodel = "mlp"\nepochs = 3\nbatch = 20\n')
    result = outspan.compare(path, policies=["none"], seeds=1, out=tmp_path / "one", epochs=1)
    assert (result.recipe.model, result.recipe.epochs) == ("mlp", 1)
    assert result.verdicts[0] == "Only one policy: nothing to compare."
    for keys, message in (
        ({"policy": "none"}, "compare sets policy itself"),
        ({"seed": 3}, "compare sets seed itself"),
        ({"epoch": 3}, "unknown key 'epoch', did you mean 'epochs'"),
        ({"policies": ["nne"]}, "unknown policy 'nne'"),
        ({"policies": []}, r"policies must have at least one name, .*got \[\]"),
        ({"policies": [outspan.uniform(2)]}, "policies must be names such as 'random', got"),
        ({"seeds": 0}, "seeds must be at least 1, got 0"),
        ({"seeds": [0, 1]}, r"seeds must be a whole number, got \[0, 1\]"),
        ({"jobs": 0}, "jobs must be at least 1, got 0"),
        ({"device": "gpu"}, "unknown device 'gpu'"),
    ):
        with pytest.raises(ValueError, match=message):
            outspan.compare(path, out=tmp_path / "refused", **keys)
    assert not (tmp_path / "refused").exists()
