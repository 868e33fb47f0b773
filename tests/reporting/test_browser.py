"""Reports in a real browser: they render, sort, filter and toggle, load nothing, run no text, and are accessible."""

import json
from pathlib import Path

import pytest

import outspan
from browsers import WIDTHS, broken_images, excess_width, fetch_axe, open_page, serious_violations, start_browser, use_scheme
from outspan.data.dataset import Data
from outspan.data.splits import InMemory
from outspan.measurement.compose import compose
from outspan.measurement.core import find_core_set
from outspan.measurement.mixup import study_mixup
from reviews import make_reviews, write_model

pytestmark = pytest.mark.slow
IMAGES = {"model": "mlp", "epochs": 2, "batch": 32, "fraction": 0.05, "device": "cpu"}
NAMES = "rotate,invert,shear_x"
HOSTILE = '<script>document.title="hacked"</script>"\'><img src=x onerror=document.title="hacked">\x1b[31m\n</script>'
KINDS = ("run", "text", "compared", "measured", "mixup", "hostile", "all")


@pytest.fixture(scope="module")
def browser():
    yield from start_browser()


@pytest.fixture(scope="module")
def axe(tmp_path_factory) -> str:
    return fetch_axe(tmp_path_factory.mktemp("axe"))


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    """One page of each kind of result, and one about all of them."""
    root = tmp_path_factory.mktemp("results")
    digits = outspan.load_data("digits")
    outspan.train(data="digits", policy="uncertain", transforms=NAMES, out=root / "run", **IMAGES)
    policies = {"policies": ["none", "random", "auto"], "seeds": 2, "equal": "time", "budgets": (1, 2)}
    times = {"step_seconds": {"none": 0.002, "random": 0.003, "auto": 0.003}, "minutes": 0.002}
    outspan.compare(data="digits", out=root / "compared", **policies, **times, **{**IMAGES, "model": "mlp"})
    study = {"data": "digits", "seeds": 2, **IMAGES}
    for run in (outspan.measure, compose, find_core_set):
        run(transforms=NAMES, out=root / "measured", **study)
    study_mixup(weight_decays=[1e-4], fractions=[0.0, 1.0], out=root / "mixup", **study)
    classes, few = (HOSTILE, *map(str, range(1, 10))), slice(200)
    splits = [InMemory(split.images[few], split.labels[few]) for split in (digits.train, digits.test)]
    hostile = {**IMAGES, "fraction": 1.0, "policy": "uncertain", "transforms": NAMES}
    outspan.train(splits=Data("d", *splits, classes), out=root / "hostile", **hostile)
    metrics = root / "hostile" / "metrics.jsonl"
    metrics.write_text(f"{metrics.read_text()}{HOSTILE}\n")
    texts(root)
    found = {name: outspan.report(root / name) for name in KINDS[:-1]}
    return {**found, "all": outspan.report(root, out=root / "all.html")}


def texts(root: Path) -> None:
    """Train on documents with markup in them."""
    (root / "bert").mkdir()
    write_model(root / "bert")
    reviews = [(f"{text} </script><script>document.title='hacked'</script>", label) for text, label in make_reviews(60)]
    lines = [json.dumps({"text": text, "label": str(label)}) for text, label in reviews]
    (root / "reviews.jsonl").write_text("\n".join(lines) + "\n")
    keys = {"model": str(root / "bert"), "length": 64, "epochs": 1, "batch": 16, "device": "cpu"}
    outspan.train(data=root / "reviews.jsonl", policy="uncertain", out=root / "text", **keys)


def click(browser, button) -> None:
    """Click a button in the middle of the window."""
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
    button.click()


def visit(browser, page: Path, width: int = 1400) -> None:
    """Open a page. Errors of the console, and requests for anything but the page itself, fail the test."""
    assert open_page(browser, page.as_uri(), width) == [page.as_uri()]
    assert browser.title != "hacked"


@pytest.mark.parametrize("kind", KINDS)
def test_every_section_renders_and_nothing_is_loaded_or_run(browser, pages, kind):
    visit(browser, pages[kind])
    headings = browser.find_elements("css selector", "h2, h3")
    assert len(headings) >= 4
    assert all(heading.is_displayed() and heading.size["height"] > 0 for heading in headings)
    for svg in browser.find_elements("css selector", ".chart svg"):
        assert svg.size["height"] > 100
    assert broken_images(browser) == 0
    assert len(browser.find_elements("tag name", "script")) == 1
    assert browser.execute_script("return [...document.querySelectorAll('[onerror], [onclick], iframe, link')].length") == 0
    assert browser.title != "hacked"
    assert pages[kind].stat().st_size <= 3_000_000


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_no_page_is_wider_than_the_screen(browser, pages, kind, width):
    visit(browser, pages[kind], width)
    assert excess_width(browser) <= 0


def test_tables_sort_and_filter(browser, pages):
    visit(browser, pages["run"])
    table = browser.find_element("xpath", "//table[caption[contains(., 'the worst first')]]")
    recall = table.find_element("xpath", ".//th[contains(., 'recall')]")
    for order, is_reverse in (("ascending", False), ("descending", True)):
        click(browser, recall.find_element("tag name", "button"))
        assert recall.get_attribute("aria-sort") == order
        cells = [float(cell.text or -1) for cell in table.find_elements("css selector", "tbody tr td:nth-of-type(2)")]
        assert cells == sorted(cells, reverse=is_reverse)
        assert len(set(cells)) > 1
    table.find_element("xpath", "../label/input").send_keys("7")
    shown = [row.text for row in table.find_elements("css selector", "tbody tr") if row.is_displayed()]
    assert shown
    assert all("7" in row for row in shown)


def test_lines_are_hidden_and_their_values_are_shown(browser, pages):
    visit(browser, pages["compared"])
    figure = browser.find_element("xpath", "//figure[.//strong[.='Accuracy against epochs']]")
    button = figure.find_element("xpath", ".//button[.='random']")
    groups = figure.find_elements("css selector", "g[data-series=random]")
    assert groups
    for pressed in ("false", "true"):
        click(browser, button)
        assert button.get_attribute("aria-pressed") == pressed
        assert all(("off" in (group.get_attribute("class") or "")) == (pressed == "false") for group in groups)
    svg, tip = figure.find_element("tag name", "svg"), browser.find_element("class name", "tip")
    assert not tip.is_displayed()
    browser.execute_script("arguments[0].focus()", svg)
    svg.send_keys("\ue012")  # the left arrow
    assert tip.is_displayed()
    assert "epoch" in tip.text
    assert "none: " in tip.text or "auto: " in tip.text
    before = tip.text
    svg.send_keys("\ue012")
    assert tip.text != before
    svg.send_keys("\ue00c")  # escape
    assert not tip.is_displayed()


def test_the_page_is_readable_without_its_script_and_can_be_printed(browser, pages):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        visit(browser, pages["all"])
        text = browser.find_element("tag name", "body").text
        assert "Accuracy against seconds" in text
        assert "Values as a table" in text
        assert "Filter" not in text  # no controls that do nothing
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert len(browser.execute_cdp_cmd("Page.printToPDF", {})["data"]) > 10_000


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_serious_violation_of_accessibility(browser, pages, axe, kind, scheme):
    use_scheme(browser, scheme)
    visit(browser, pages[kind])
    assert serious_violations(browser, axe) == []
