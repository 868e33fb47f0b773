"""The documentation site: it builds strictly, has every page and the numbers of the results, and works in a browser offline."""

import functools
import http.server
import importlib
import json
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import outspan
from browsers import WIDTHS, broken_images, excess_width, fetch_axe, open_page, serious_violations, start_browser, use_scheme

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "docs" / "site" / "build.py"
CONFIG = ROOT / "docs" / "site" / "zensical.toml"
MAIN = (
    "index",
    "tutorial-images",
    "notebook",
    "training",
    "reference/policies",
    "reference/commands",
    "theory",
    "benchmarks",
    "which-policy",
)
GENERATED = {"notebook.md", "benchmarks.md", "contributing.md", "changelog.md"}


def in_navigation() -> list[str]:
    """Return the pages of the navigation."""
    return re.findall(r'= "([\w/-]+\.md)" }', CONFIG.read_text(encoding="utf-8"))


def test_every_page_is_in_the_navigation_once():
    pages = in_navigation()
    assert len(pages) == len(set(pages))
    own = {page for page in pages if "/" not in page}
    assert own == {page.name for page in (ROOT / "docs").glob("*.md")} | GENERATED


def test_the_tables_of_results_have_the_numbers_of_the_files(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(BUILD.parent)
    tables = importlib.import_module("tables")
    result = {"machine": {"cpu": "A CPU", "date": "2026-01-01"}, "what": "a | b", "ms": {"none": 1.23456, "random": 23456.7}}
    result |= {"speeds": [{"side": 32, "cores": 1, "per_second": {"timm": 12, "kornia": 3}}]}
    result |= {
        "policies": {"none": {"mean": 0.5, "is_fast": True, "runs": [1]}, "auto": {"mean": 0.75, "std": 0.1}},
        "recipe": {"lr": 1},
    }
    (tmp_path / "one.json").write_text(json.dumps(result))
    page = tables.benchmarks_page(tmp_path)
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in page.splitlines() if line.startswith("|")]
    assert rows == [
        ["", "value"], ["---", "---:"], ["none", "1.235"], ["random", "23,457"],  # not fractions
        ["", "value"], ["---", "---:"], ["timm", "12"], ["kornia", "3"],
        ["", "mean", "is fast", "std"], ["---", "---:", "---:", "---:"],
        ["none", "0.5000", "yes", ""], ["auto", "0.7500", "", "0.1000"],
    ]  # fmt: skip
    assert "**speeds, side 32, cores 1, per second**" in page
    assert "A CPU; 2026-01-01; `results/one.json`" in page
    assert r"a \| b" in page


def test_results_without_tables_and_with_many_say_so(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(BUILD.parent)
    tables = importlib.import_module("tables")
    many = {f"group {i}": {"a": i} for i in range(20)} | {"runs": {"seed 0": {"a": 1}, "seed 1": {"a": 2}}}
    (tmp_path / "lists.json").write_text(json.dumps({"what": "See docs/research.md.", "rows": [{"a": 1}] * 9}))
    (tmp_path / "many.json").write_text(json.dumps({f"part {i}": many for i in range(12)}))
    page = tables.benchmarks_page(tmp_path)
    assert "See [research](research.md)." in page
    assert "Its lists are only in the file: `rows` (9)." in page
    assert "seed 0" not in page
    assert "More tables are in the file (4)." in page
    assert page.count("| --- |") == 8


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The folder of the site, built with the notebook, in which a cell that fails fails the build."""
    if sys.version_info < (3, 11):
        pytest.skip("Zensical needs Python 3.11")
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run([sys.executable, BUILD, "--out", out], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.fixture(scope="module")
def address(site):
    """The address of the site on this machine."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            """Print nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=site / "html"))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser():
    yield from start_browser()


@pytest.fixture(scope="module")
def axe(tmp_path_factory) -> str:
    return fetch_axe(tmp_path_factory.mktemp("axe"))


@pytest.mark.slow
def test_the_site_has_all_pages_public_names_and_commands(site):
    html = site / "html"
    assert all((html / page).with_suffix(".html").exists() for page in in_navigation())
    reference = "".join(page.read_text(encoding="utf-8") for page in (html / "reference").glob("*.html"))
    anchors = set(re.findall(r'id="(outspan[\w.]*)"', reference))
    assert {f"outspan.{name}" for name in outspan.__all__} <= anchors
    assert {f"outspan.theory.{name}" for name in outspan.theory.__all__} <= anchors
    assert "::</p>" not in reference  # all blocks of code of docstrings are shown as such
    commands = re.findall(r'id="(outspan-[\w-]+)"', (html / "reference" / "commands.html").read_text(encoding="utf-8"))
    assert {"outspan-train", "outspan-compare", "outspan-theory-verify"} <= set(commands)
    page = (html / "theory.html").read_text(encoding="utf-8")
    assert page.count('class="chart"') == 5
    assert not re.search(r"theory-(n|z|spike|lambda|candidates)\.png", page)


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["[gone](gone.md)", "[gone](theory.md#gone)", "[gone][outspan.gone]", "::: outspan.gone"])
def test_a_broken_link_or_reference_fails_the_build(site, tmp_path, wrong):
    (tmp_path / "pages").mkdir()
    for page in ("index.md", "theory.md"):
        (tmp_path / "pages" / page).write_text("# Title\n")
    text = re.sub(r"(?s)nav = \[.*?\n\]", 'nav = [{ "Home" = "index.md" }]', (site / "zensical.toml").read_text())
    (tmp_path / "zensical.toml").write_text(text)
    shutil.copytree(site / "pages" / "site", tmp_path / "pages" / "site")
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=300).returncode == 0
    (tmp_path / "pages" / "index.md").write_text(f"# Title\n\n{wrong}\n")
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=300).returncode != 0


@pytest.mark.slow
def test_no_page_loads_anything_from_elsewhere_or_is_broken(browser, address):
    for page in in_navigation():
        requested = open_page(browser, f"{address}/{page.removesuffix('.md')}.html")
        assert requested
        assert all(url.startswith(address) for url in requested), page
        assert broken_images(browser) == 0, page


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_is_wider_than_the_screen(browser, address, width):
    for page in MAIN:
        open_page(browser, f"{address}/{page}.html", width)
        assert excess_width(browser) <= 0, page


@pytest.mark.slow
def test_the_plots_of_the_theory_show_their_values(browser, address):
    open_page(browser, f"{address}/theory.html")
    figure = browser.find_element("css selector", ".chart")
    button = figure.find_element("xpath", ".//button[.='mixup']")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
    button.click()
    assert all("off" in group.get_attribute("class") for group in figure.find_elements("css selector", "g[data-series=mixup]"))
    svg, tip = figure.find_element("tag name", "svg"), browser.find_element("class name", "tip")
    assert not tip.is_displayed()
    browser.execute_script("arguments[0].focus()", svg)
    svg.send_keys("\ue012")  # the left arrow
    curves = {curve.name: curve for curve in outspan.theory.theory_curves()["theory-n"]}
    assert tip.text.splitlines()[0] == "samples n 320"
    shown = dict(line.split(": ") for line in tip.text.splitlines()[1:])
    assert {name: float(value) for name, value in shown.items()} == pytest.approx(
        {n: c.y[-1] for n, c in curves.items()}, rel=5e-3
    )


@pytest.mark.slow
def test_the_search_finds_a_page(browser, address):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.support.wait import WebDriverWait

    open_page(browser, f"{address}/index.html")
    WebDriverWait(browser, 60).until(lambda page: page.find_element("css selector", ".md-search__button").text)
    browser.find_element("css selector", ".md-search__button").click()
    ActionChains(browser).pause(1).send_keys("switchout").perform()
    shown = "return [...document.querySelectorAll('*')].map(one => one.shadowRoot?.textContent ?? '').join()"
    WebDriverWait(browser, 60).until(lambda page: "Fine-tune on texts" in page.execute_script(shown))


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("page", MAIN)
def test_no_serious_violation_of_accessibility(browser, address, axe, page, scheme):
    use_scheme(browser, scheme)
    open_page(browser, f"{address}/{page}.html")
    assert serious_violations(browser, axe) == []
