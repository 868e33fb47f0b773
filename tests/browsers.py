"""A headless Chromium for tests of pages, the checker of accessibility, and what both must find nothing wrong with."""

import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM, DRIVER = (
    next(filter(None, map(shutil.which, names)), None) for names in (("chromium", "google-chrome"), ("chromedriver",))
)
WIDTHS = (360, 820, 1400)


def start_browser() -> Iterator[Any]:
    """A headless Chromium with its logs. Without one, the tests are skipped."""
    selenium = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install -e '.[dev]'")
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("no browser: apt-get install chromium chromium-driver")
    options = selenium.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = selenium.Chrome(options=options, service=selenium.ChromeService(DRIVER))
    driver.set_script_timeout(300)
    yield driver
    driver.quit()


def fetch_axe(folder: Path) -> str:
    """The source of axe-core, the checker of accessibility, from npm. Without it, the tests are skipped."""
    npm = shutil.which("npm")
    done = npm and subprocess.run([npm, "pack", "axe-core@4"], cwd=folder, capture_output=True, timeout=300, check=False)
    archives = list(folder.glob("*.tgz"))
    if not done or done.returncode or not archives:
        pytest.skip("axe-core cannot be fetched: npm pack axe-core@4")
    with tarfile.open(archives[0]) as archive:
        source = archive.extractfile("package/axe.min.js")
        assert source is not None
        return source.read().decode()


def open_page(browser, url: str, width: int = 1400) -> list[str]:
    """Open a page and return the addresses that it requested. Errors of the console fail the test."""
    browser.set_window_size(width, 900)
    browser.get_log("browser"), browser.get_log("performance")
    browser.get(url)
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [one["params"]["request"]["url"] for one in events if one["method"] == "Network.requestWillBeSent"]
    return [url for url in urls if not url.startswith("data:")]


def excess_width(browser) -> int:
    """Return by how many pixels the open page is wider than the window."""
    return browser.execute_script("return document.documentElement.scrollWidth - document.documentElement.clientWidth")


def broken_images(browser) -> int:
    """Return how many images of the open page cannot be shown."""
    browser.execute_script("document.querySelectorAll('img').forEach(i => i.loading = 'eager')")
    return browser.execute_script("return [...document.images].filter(i => i.complete && !i.naturalWidth).length")


def use_scheme(browser, scheme: str) -> None:
    """Use the light or the dark theme in all pages."""
    emulated = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", emulated)


def serious_violations(browser, axe: str) -> list[tuple[str, str]]:
    """Return the serious problems of accessibility of the open page, with the first element of each."""
    browser.execute_script(axe)
    found = browser.execute_async_script("const done = arguments[0]; axe.run().then(r => done(r.violations))")
    return [(one["id"], one["nodes"][0]["html"][:200]) for one in found if one["impact"] in ("serious", "critical")]
