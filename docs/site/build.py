"""Build the documentation site from docs/, the docstrings, the results and the notebook: `make docs`.

    python docs/site/build.py

The pages of docs/ are used as they are. Added are the reference, from docstrings; the options of the command line, from its
help; the tables of results/*.json; plots of the theory that show their values; and the notebook with its output. Everything is
put into build/docs/pages, and Zensical writes build/docs/html. A broken link or a missing reference is an error.
"""

import argparse
import importlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jupytext
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from nbconvert import MarkdownExporter
from plots import add_plots, write_style
from tables import benchmarks_page

import outspan

ROOT = Path(__file__).parents[2]
SITE = Path(__file__).parent
# The pages of the reference, and the packages whose public names each of them has. Every name of `outspan` is on one of them.
REFERENCE = {
    "training": ("Train, compare, measure", ("training", "comparison", "measurement", "reporting", "integrations", "config")),
    "policies": ("Policies", ("policies",)),
    "transforms": ("Transforms and data", ("plan", "transforms", "data")),
}
MODULES = {
    "transforms": ("rng",),
    "dropin": ("dropin",),
    "text": ("text",),
    "theory": ("theory",),
    "integrations": ("lightning", "transformers"),
}
MODULE = "::: outspan.{}\n    options:\n      members: {}\n"


def main() -> None:
    """Build the site."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "docs", help="folder of the pages and of the site")
    parser.add_argument("--no-notebook", action="store_true", help="do not run the notebook, which takes a minute")
    options = parser.parse_args()
    out = options.out.resolve()
    pages = out / "pages"
    shutil.rmtree(out, ignore_errors=True)
    copy_pages(pages)
    write_reference(pages / "reference")
    (pages / "benchmarks.md").write_text(benchmarks_page(ROOT / "results"), encoding="utf-8")
    add_plots(pages / "theory.md")
    write_style(pages / "site")
    write_notebook(pages, run=not options.no_notebook)
    config = (SITE / "zensical.toml").read_text(encoding="utf-8")
    (out / "zensical.toml").write_text(config.replace("../..", str(ROOT)), encoding="utf-8")
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(out / "zensical.toml")]
    if subprocess.run(command, cwd=out, check=False).returncode:
        sys.exit("the site has errors")
    print(f"wrote {out / 'html'}; open it with: python -m http.server --directory {out / 'html'}")


def copy_pages(pages: Path) -> None:
    """Copy the pages and pictures of docs/, and those of the root of the repository."""
    pages.mkdir(parents=True)
    for file in [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("*.png")]:
        shutil.copy(file, pages)
    for name in ("CONTRIBUTING", "CHANGELOG"):
        text = (ROOT / f"{name}.md").read_text(encoding="utf-8")
        (pages / f"{name.lower()}.md").write_text(text.replace("](docs/", "]("), encoding="utf-8")
    for page in pages.glob("*.md"):
        text = page.read_text(encoding="utf-8").replace("](../CONTRIBUTING.md", "](contributing.md")
        page.write_text(text, encoding="utf-8")


def write_reference(folder: Path) -> None:
    """Write the reference: names, which mkdocstrings replaces by their docstrings, and the help of all commands."""
    folder.mkdir()
    pages: dict[str, list[str]] = {}
    homes = {name: home.split(".")[1].partition(":")[0] for name, home in outspan._HOMES.items()}
    for page, (title, packages) in REFERENCE.items():
        names = sorted((name for name in outspan.__all__ if homes[name] in packages), key=lambda name: not name[0].islower())
        pages[page] = [f"# {title}", *(f"::: outspan.{name}" for name in names)]
    for page, modules in MODULES.items():
        for module in modules:
            members = getattr(importlib.import_module(f"outspan.{module}"), "__all__", ["generator", "derive"])
            pages.setdefault(page, []).append(MODULE.format(module, json.dumps(list(members))))
    for page, parts in pages.items():
        (folder / f"{page}.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    listing = [sys.executable, "-m", "typer", "outspan.cli", "utils", "docs", "--title", "Command line"]
    text = subprocess.run(listing, capture_output=True, text=True, check=True).stdout
    text = re.sub(r"\*\*Commands\*\*:\n\n(\* .*\n)+\n", "", text)  # one line each, cut; the table of contents lists them, too
    text = re.sub(r"(?m)^Example: (.*)$", r"```sh\n\1\n```", text)
    text = re.sub(r"\(docs/([\w-]+\.md(#[\w-]+)?)\)", r"([\1](../\1))", text)
    (folder / "commands.md").write_text(text, encoding="utf-8")


def write_notebook(pages: Path, *, run: bool) -> None:
    """Run the notebook and write it with its output as a page."""
    notebook = jupytext.read(ROOT / "docs" / "notebook.py")
    if run:
        kernel = KernelManager(kernel_name="python3", transport="ipc")
        kernel.kernel_spec.argv[0] = sys.executable  # this Python, whatever kernels are installed
        NotebookClient(notebook, km=kernel, timeout=600).execute()
    body, resources = MarkdownExporter().from_notebook_node(notebook)
    for name, data in resources["outputs"].items():
        (pages / f"notebook-{name}").write_bytes(data)
        body = body.replace(f"![png]({name})", f"![output of the code above](notebook-{name})")
    (pages / "notebook.md").write_text(body, encoding="utf-8")


if __name__ == "__main__":
    main()
