"""The documentation agrees with the code: formulas are read from a page and evaluated."""

import importlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outspan import rng
from outspan.config import DEFAULTS, KEYS, Recipe
from outspan.policies.files import pba
from outspan.theory import mixup, simulate
from outspan.theory.bounds import Setting
from outspan.theory.generate import centred, rotation
from outspan.theory.minnorm import minnorm_error
from outspan.theory.ridge import ridge_error
from outspan.theory.rows import Rows, projected, transformed
from outspan.transforms.table import TRANSFORMS

DOCS = Path(__file__).parent.parent / "docs"
MINUS = "\N{MINUS SIGN}"
# Symbols of the page on the theory, and the same in Python.
SYMBOLS = {
    "⟨z,β⟩": "zb", "‖Xβ‖²": "signal", "‖X‖²": "size", "‖z‖²": "zz", "‖a‖²": "aa", "σ²": "noise", "γ²": "gamma2", "Dᵢ": "D",
    "bᵢ": "b", "λ": "lam", "n": "n", "r": "r", "Σᵢ": "total", "[": "(", "]": ")", "(": "(", ")": ")", "+": "+", "/": "/",
    MINUS: "-", "²": "**2", "³": "**3", "1": "1", "2": "2", "3": "3",
}  # fmt: skip


def evaluate(formula: str, **values: Any) -> float:
    """Return the value of a formula of the page. Neighbouring factors are multiplied, and Σᵢ sums all factors after it."""
    text = re.sub(r"\s", "", formula)
    symbols = re.findall("|".join(map(re.escape, sorted(SYMBOLS, key=len, reverse=True))), text)
    assert "".join(symbols) == text  # every character is a known symbol
    code, before, open_sums = "", "+", 0
    for symbol in [SYMBOLS[name] for name in symbols]:
        if symbol in "+-" and code.count("(") - code.count(")") == open_sums:  # the end of a term
            code, open_sums = code + ")" * open_sums, 0
        elif before not in ("+", "-", "/", "(", "total") and (symbol[0].isalnum() or symbol == "("):
            code += "*"
        code += "total(" if symbol == "total" else symbol
        open_sums += symbol == "total"
        before = symbol
    return float(eval(code + ")" * open_sums, {"__builtins__": {}, "total": np.sum}, values))  # noqa: S307


def blocks(page: str) -> list[str]:
    """Return the formulas in separate blocks, without the text after the comma."""
    paragraphs = re.findall(r"(?m)(?:^    .*\n)+", (DOCS / page).read_text(encoding="utf-8"))
    return [re.split(r",\s|,$|\.$", block.strip())[0] for block in paragraphs]


def formula(begins: str) -> str:
    [match] = [block for block in blocks("theory.md") if block.startswith(begins)]
    return match


def sample(case: int, n: int, p: int, sigma: float) -> tuple[Setting, Rows, dict[str, Any]]:
    """Return a setting, the rows that a label-invariant transform of its first sample adds, and the values of the letters."""
    g = rng.generator(case, "pages")
    s = Setting(g.standard_normal((n, p)), g.standard_normal(p), float(g.uniform(0.05, 1)), sigma)
    row = projected(s.X, transformed(s.X, rotation(s.beta, float(g.uniform(0.5, 3)), g), 0))
    _, singular, V = np.linalg.svd(s.X, full_matrices=False)
    letters = {"zb": float(row.x[0] @ s.beta), "zz": float(row.x[0] @ row.x[0])}
    letters |= {"aa": float(row.weights[0] @ row.weights[0]), "noise": sigma**2, "lam": s.lam, "n": n}
    return s, row, letters | {"D": singular**2, "b": V @ s.beta}


@pytest.mark.parametrize(("begins", "fixed_penalty"), [("⟨z,β⟩² (2nλ", True), ("⟨z,β⟩² (2(n+1)λ", False)])
def test_the_documented_gain_of_a_label_invariant_sample(begins, fixed_penalty):
    for case, (n, p, sigma) in enumerate([(6, 12, 0.8), (1, 3, 0.0), (20, 30, 2.0), (3, 40, 0.1), (6, 12, 3.0)]):
        s, row, letters = sample(case, n, p, sigma)
        printed = evaluate(formula(begins), **letters)
        exact = ridge_error(s.X, s.beta, s.lam, sigma) - ridge_error(
            s.X, s.beta, s.lam, sigma, added=row, fixed_penalty=fixed_penalty
        )
        assert printed == pytest.approx(exact.total, rel=1e-9)
        before, after = (
            simulate.ridge_map(s, None, fixed_penalty=fixed_penalty),
            simulate.ridge_map(s, row, fixed_penalty=fixed_penalty),
        )
        draws = simulate.decrease(s, before, after, 20_000, rng.generator(case, "noise"))
        assert abs(draws.mean() - printed) <= 5 * draws.std() / len(draws) ** 0.5 + 1e-12


def test_the_documented_bound_of_mixup():
    g = rng.generator(0, "mixup")
    X = centred(20, 5, 1.0, g)
    gamma = float(np.linalg.norm(X, axis=1).max())
    s = Setting(X, g.standard_normal(5), 0.9, 0.3)
    letters = {"n": 20, "lam": 0.9, "gamma2": gamma**2, "noise": 0.3**2, "r": 2 / 3}  # r for a uniform α
    letters |= {"signal": float(np.sum((X @ s.beta) ** 2)), "size": float(np.sum(X**2))}
    printed = evaluate(formula("E gain ≥").removeprefix("E gain ≥").rstrip("."), **letters)
    assert printed == pytest.approx(mixup.theorem_2(s, gamma).repaired, rel=1e-9)
    assert sum(mixup.mixup_gain(s)) >= printed


def test_the_documented_gains_of_the_minimum_norm():
    page = " ".join((DOCS / "theory.md").read_text(encoding="utf-8").split())
    bias, variance = re.findall(r"sample lowers the bias by (\S+) and raises the variance by (\S+)\. ", page)[0]
    for case in range(5):
        s, row, letters = sample(case, 6, 12, 0.8)
        exact = minnorm_error(s.X, s.beta, s.sigma) - minnorm_error(s.X, s.beta, s.sigma, added=row)
        assert evaluate(bias, **letters) == pytest.approx(exact.bias, rel=1e-9)
        assert -evaluate(variance, **letters) == pytest.approx(exact.variance, rel=1e-9)


def defaults_of(page: str) -> list[tuple[str, str]]:
    """Return the recipe keys in the tables of a page, with the defaults that it prints."""
    rows = re.findall(r"(?m)^\| `(\w+)` \| (.+?) \|", (DOCS / page).read_text(encoding="utf-8"))
    return [(key, text.strip("`") if text != "empty" else "") for key, text in rows if key in KEYS]


def test_the_tables_of_recipe_keys_have_every_key_and_its_default():
    images, texts = defaults_of("training.md"), dict(defaults_of("text.md"))
    assert sorted(key for key, _ in images) == sorted(KEYS)  # every key exactly once
    for key, text in images:
        assert type(getattr(Recipe(), key))(text) == getattr(Recipe(), key), key
    assert DEFAULTS["texts"].keys() <= texts.keys()
    for key, text in texts.items():
        default = DEFAULTS["texts"].get(key, getattr(Recipe(), key))
        assert type(default)(text) == default, key


def test_links_between_pages_exist():
    for page in [DOCS.parent / "README.md", DOCS.parent / "CONTRIBUTING.md", *DOCS.glob("*.md")]:
        for file, anchor in re.findall(r"\]\((?!http)([\w./-]*)(?:#([\w-]+))?\)", page.read_text(encoding="utf-8")):
            target = (page.parent / file).resolve() if file else page
            assert target.exists(), f"{page.name}: {file}"
            if anchor:
                headings = re.findall(r"(?m)^#+ (.+)$", target.read_text(encoding="utf-8"))
                anchors = [re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings]
                assert anchor in anchors, f"{page.name}: {file}#{anchor}"


def test_the_documented_ends_of_pba(tmp_path):
    page = " ".join((DOCS / "policies.md").read_text(encoding="utf-8").split())
    assert "The magnitudes are those of the authors, down to posterizing to 0 bits" in page
    assert "the square of cutout is at most half of the side" in page
    assert "keeps at least" not in page
    most = [10, 10] * 30
    (tmp_path / "schedule.txt").write_text(str([0, 1, 1, 1, most, most]))
    plan = pba(str(tmp_path / "schedule.txt"), searched=2, epochs=2, epoch_steps=1).at(0)(2_000, rng=rng.generator(0))
    largest = {name: plan.levels[plan.ops == plan.names.index(name)].max() for name in ("posterize", "cutout")}
    units = {name: float(TRANSFORMS[name].rest + TRANSFORMS[name].span * level) for name, level in largest.items()}
    assert units == {"posterize": 0.0, "cutout": 0.5}


def test_the_page_on_policies_is_written_from_the_result_files(monkeypatch):
    monkeypatch.syspath_prepend(DOCS.parent / "benchmarks")
    which_policy = importlib.import_module("which_policy")
    assert (DOCS / "which-policy.md").read_text(encoding="utf-8") == which_policy.read_page()


def test_the_tables_of_the_page_on_speed_have_the_numbers_of_the_result_files():
    page = (DOCS / "speed.md").read_text(encoding="utf-8")
    names = {"outspan, drawing and applying": "outspan", "outspan, applying a given plan": "outspan, plan given"}
    names |= {"timm": "timm", "torchvision v2, Pillow images": "torchvision v2, Pillow", "albumentations": "albumentations"}
    names |= {
        "torchvision v2, tensors": "torchvision v2, tensor",
        "kornia": "kornia",
        "Pillow, the same operations": "Pillow, same operations",
    }
    measured = json.loads((DOCS.parent / "results" / "transforms-cpu.json").read_text())["speeds"]
    for column, side in enumerate((32, 224)):
        (one,) = [speed for speed in measured if (speed["side"], speed["cores"]) == (side, 1)]
        cpu = {name.replace("**", ""): values[column] for name, values in rows_of(page, "## Transforms on a CPU")}
        assert {names[name]: int(cpu[name].replace(",", "")) for name in names} == one["images_per_second"]
        assert float(cpu["outspan relative to the fastest of them"].rstrip("\N{MULTIPLICATION SIGN}")) == one["over_best_peer"]
        assert float(cpu["outspan relative to Pillow"].rstrip("\N{MULTIPLICATION SIGN}")) == one["over_pillow"]
    gpu = json.loads((DOCS.parent / "results" / "gpu.json").read_text())["images_per_second"]
    keys = (
        "2 and defaults, normalised",
        "  drawing the plan too",
        "torchvision v2, per sample",
        "torchvision v2, one draw a batch",
    )
    printed = [[int(value.replace(",", "")) for value in values] for _, values in rows_of(page, "## Transforms on a GPU")]
    sizes = ("32 px, 4096 images", "224 px, 256 images")
    assert printed == [[round(gpu[size][key]) for size in sizes] for key in keys]


def rows_of(page: str, heading: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return the rows of the table below a heading: the first cell, and the others."""
    part = page[page.index(heading) + len(heading) :].split("\n## ")[0]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line.startswith("|")]
    return [(cells[0], tuple(cells[1:])) for cells in lines[2:]]


def test_the_tables_of_the_page_on_many_gpus_are_calculated_from_the_result_files(monkeypatch):
    monkeypatch.syspath_prepend(DOCS.parent / "benchmarks")
    scale = importlib.import_module("scale")
    model, page = scale.Model(scale.Inputs()), (DOCS / "scale.md").read_text(encoding="utf-8")
    assert page == scale.filled(page, model)
    parts = [model.compute(32), model.reduce(64, 12.2), model.host(64), model.read(32)]
    assert model.step(64, 32, 12.2) == max(parts[0] + parts[1], *parts[2:])
    assert model.reduce(64, 12.2) == pytest.approx(2 * 63 / 64 * 4 * (25_557_032 + 53_120) / 12.2e9 * 1000)
    few = scale.Model(scale.Inputs(cores=1, decode=100.0))
    assert few.limit(8, 32, 48.0) == "reading"
    assert few.step(8, 32, 48.0) == 320
