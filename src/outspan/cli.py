"""The command line: each command reads its arguments, calls one function, and writes what comes back."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

# Everything heavy is imported by the command that needs it, so that --help does not wait for torch.
if TYPE_CHECKING:
    from outspan.config import Recipe
    from outspan.shapes import Images

app = typer.Typer(
    name="outspan",
    add_completion=False,
    rich_markup_mode=None,
)

_UsageError: type[Exception] = typer.BadParameter.__mro__[2]  # the base of click's errors, wherever typer keeps click


@app.callback()
def outspan() -> None:
    """Data augmentation that chooses itself: exact, per sample, fast."""


@app.command()
def transforms(as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False) -> None:
    """List every transform with its unit, its range and its limit.

    Example: outspan transforms --json
    """
    from outspan.transforms.table import PAPER_16, TRANSFORMS

    entries = [
        {
            "name": name,
            "unit": t.unit,
            "at_level_0": t.rest if t.graded else None,
            "at_level_1": t.rest + t.span if t.graded else None,
            "at_level_minus_1": t.rest - t.span if t.graded and t.signed else None,
            "levels": list(t.levels) if t.graded else None,
            "needs": [need for need, is_needed in (("place", t.placed), ("partner", t.mixes), ("fill", t.fills)) if is_needed],
            "in_paper": name in PAPER_16,
            "description": (t.function.__doc__ or "").splitlines()[0],
        }
        for name, t in TRANSFORMS.items()
    ]
    if as_json:
        typer.echo(json.dumps(entries, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    console = Console()
    columns = ["transform", "level 0 → ±1", "unit", "levels", "what it does"]
    columns = columns if console.width >= 150 else columns[:-1]  # a sentence does not fit beside the rest
    table = Table(*columns, box=None, header_style="bold", pad_edge=False)
    for entry in entries:
        ends = [entry["at_level_1"], entry["at_level_minus_1"]]
        reach = ", ".join(f"{end:g}" for end in ends if end is not None)
        cells = [
            entry["name"],
            f"{entry['at_level_0']:g} → {reach}" if reach else "",
            entry["unit"],
            "{:g} … {:g}".format(*entry["levels"]) if entry["levels"] else "",
            entry["description"],
        ]
        table.add_row(*cells[: len(columns)])
    console.print(table)


@app.command("apply")
def apply_command(
    image: Annotated[Path, typer.Argument(help="The image to read.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The image to write.")],
    ops: Annotated[str, typer.Option(help='Transforms with their levels, in order, e.g. "rotate:0.5,invert".')],
    partner: Annotated[Path | None, typer.Option(help="The second image of mixup and cutmix.")] = None,
    seed: Annotated[int, typer.Option(help="Where cutout, cutmix and the crops are placed.")] = 0,
) -> None:
    """Apply transforms to one image, exactly as Pillow would.

    Example: outspan apply cat.png -o out.png --ops "rotate:0.5,cutout:0.8"
    """
    import torch

    from outspan import rng
    from outspan.plan import Plan
    from outspan.transforms.apply import apply
    from outspan.transforms.table import find

    names, levels = parse_ops(ops)
    pixels = read_image(image)
    images = [pixels]
    if partner is not None:
        images.append(_fit(read_image(partner), pixels, partner))
    for name in names:
        if find(name).mixes and partner is None:
            raise ValueError(f"{name!r} mixes two images: name the second with --partner")
    places = rng.generator(seed, "apply").random((len(names), 4)).tolist()
    plan = Plan.of(
        [names, []][: len(images)],
        levels=[levels, []][: len(images)],
        places=[places, []][: len(images)],
        partners=[[len(images) - 1 if find(name).mixes else -1 for name in names], []][: len(images)],
        out=[0],
    )
    write_image(apply(torch.cat(images), plan), out)


@app.command()
def gallery(
    out: Annotated[Path, typer.Option("-o", "--out", help="The PNG to write.")],
    image: Annotated[Path | None, typer.Argument(help="The image to show; an embedded photograph if none.")] = None,
) -> None:
    """Draw every transform at several levels.

    Example: outspan gallery my.jpg -o gallery.png
    """
    from outspan.data import example_image
    from outspan.report.gallery import gallery as draw

    if out.suffix.lower() != ".png":
        raise ValueError(f"{out}: the gallery is a .png file, got {out.suffix!r}")
    figure = draw(example_image() if image is None else read_image(image))
    write_whole(out, lambda partial: figure.savefig(partial, format="png"))
    typer.echo(f"wrote {out}")


_RECIPE_HELP = "A recipe, key = value in TOML; without one the defaults, changed by the options."
_Set = Annotated[list[str] | None, typer.Option("--set", help="Change a key of the recipe, e.g. --set lr=0.2; repeatable.")]


@app.command("train")
def train_command(
    out: Annotated[Path, typer.Option("-o", "--out", help="The run's folder; if it holds a run of this recipe, go on.")],
    recipe: Annotated[Path | None, typer.Argument(help=_RECIPE_HELP)] = None,
    data: Annotated[str | None, typer.Option(help="digits, mnist, cifar10, …, an image folder or an .npz file.")] = None,
    model: Annotated[str | None, typer.Option(help="mlp, convnet, wide_resnet-28-2, …, timm:NAME.")] = None,
    policy: Annotated[str | None, typer.Option(help="none, baseline, random, uncertain, randaugment, …")] = None,
    changes: _Set = None,
) -> None:
    """Train a classifier, or go on where the folder stands. Ctrl-C saves and stops; the same command resumes.

    Example: outspan train --data digits --model convnet --policy uncertain --set epochs=10 -o runs/first
    """
    from outspan.train.loop import train

    asked = {"data": data, "model": model, "policy": policy}
    given = make_recipe(recipe, [*(f"{key}={value}" for key, value in asked.items() if value is not None), *(changes or [])])
    with training_progress() as on_step:
        summary = train(given, out=out, device=_device(), on_step=on_step)
    typer.echo(f"test accuracy {100 * summary.accuracy:.2f} % after the last epoch, {summary.seconds:.0f} s, in {out}")


@app.command()
def evaluate(run: Annotated[Path, typer.Argument(help="The folder of a run.")]) -> None:
    """Print a run's test accuracy, overall and by class, and what is most often confused.

    Example: outspan evaluate runs/first
    """
    import torch

    from outspan.train.loop import load_run, predict

    _, model, data, last = load_run(run)
    found = predict(model, data.test, last, "cpu").argmax(1)
    classes = len(data.classes)
    confusion = torch.bincount(data.test.labels * classes + found, minlength=classes**2).view(classes, classes)
    typer.echo(f"accuracy {100 * confusion.diag().sum() / confusion.sum():.2f} % of {len(data.test)} test images")
    for i, name in enumerate(data.classes):
        row = confusion[i]
        wrong = row.clone()
        wrong[i] = 0
        taken = f", most often taken for {data.classes[int(wrong.argmax())]} ({int(wrong.max())})" if wrong.any() else ""
        typer.echo(f"  {name:>12} {100 * row[i] / max(int(row.sum()), 1):6.2f} %{taken}")


@app.command("predict")
def predict_command(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    images: Annotated[list[Path], typer.Argument(help="Image files.")],
) -> None:
    """Print the likeliest class of each image, with its probability.

    Example: outspan predict runs/first cat.png dog.jpg
    """
    import torch

    from outspan.data.readers import read_fitted
    from outspan.data.sets import Split
    from outspan.train.loop import load_run, predict
    from outspan.transforms.color import grey

    _, model, data, last = load_run(run)
    channels, height, width = data.train.images.shape[1:]
    pixels = torch.stack([read_fitted(path, height, width) for path in images])
    pixels = pixels if channels == 3 else grey(pixels)
    found = predict(model, Split(pixels, torch.zeros(len(pixels), dtype=torch.int64)), last, "cpu").softmax(1).max(1)
    for path, share, label in zip(images, found.values.tolist(), found.indices.tolist(), strict=True):
        typer.echo(f"{path}  {data.classes[label]}  {100 * share:.1f} %")


@app.command("data")
def data_command() -> None:
    """List the data sets that are known by name, and which of them are here.

    Example: outspan data
    """
    from outspan.data.sets import SETS, load, root

    typer.echo(f"looked for in {root()}")
    for name in SETS:
        try:
            found = load(name)
            said = f"{len(found.train):,} train and {len(found.test):,} test images, {len(found.classes)} classes"
        except ValueError as error:
            said = f"not here: {error}"
        typer.echo(f"{name:>10}  {said}")


@app.command()
def compare(
    out: Annotated[Path, typer.Option("-o", "--out", help="The folder for the runs, the plot and the numbers.")],
    recipe: Annotated[Path | None, typer.Argument(help=_RECIPE_HELP)] = None,
    policies: Annotated[str, typer.Option(help="Policies, with commas.")] = "none,random,uncertain",
    seeds: Annotated[int, typer.Option(min=1, help="Runs a policy, seeds 0, 1, …")] = 3,
    changes: _Set = None,
) -> None:
    """Train several policies over several seeds and print the table; what is there already is not run again.

    Example: outspan compare --policies none,random,uncertain --seeds 3 --set transforms=geometric -o runs/compared
    """
    from dataclasses import replace

    from rich.console import Console
    from rich.table import Table

    from outspan.policies.named import check_policy
    from outspan.report.compare import compare_figure, numbers, read_honestly
    from outspan.train.loop import train

    given = make_recipe(recipe, changes or [])
    for key in ("policy", "seed"):
        if any(change.partition("=")[0].strip() == key for change in changes or []):
            raise ValueError(f"compare sets {key} itself: use --policies and --seeds")
    names = list(dict.fromkeys(name.strip() for name in policies.split(",")))
    for name in names:
        check_policy(name)
    runs = {}
    for policy in names:
        for seed in range(seeds):
            with training_progress(f"{policy}, seed {seed}") as on_step:
                folder = out / f"{policy}-{seed}"
                runs.setdefault(policy, []).append(
                    train(replace(given, policy=policy, seed=seed), out=folder, device=_device(), on_step=on_step)
                )
    table = Table("policy", "test accuracy, %", "seconds a run", box=None, header_style="bold", pad_edge=False)
    found = numbers(given, runs)
    for policy, entry in found["policies"].items():
        table.add_row(policy, f"{100 * entry['mean']:.2f} ± {100 * entry['std']:.2f}", f"{entry['seconds']:.1f}")
    Console().print(table)
    typer.echo(read_honestly(runs))
    write_whole(out / "comparison.json", lambda partial: partial.write_text(json.dumps(found, indent=2) + "\n"))
    write_whole(out / "accuracy.png", lambda partial: compare_figure(runs).savefig(partial, format="png"))
    typer.echo(f"wrote {out / 'accuracy.png'}")


def make_recipe(path: Path | None, changes: list[str]) -> "Recipe":
    """Return a recipe from a file, or the default one, with `key=value` changes."""
    from outspan.config import Recipe, read_recipe, with_values

    values = {}
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals:
            raise ValueError(f"a change is key=value, got {change!r}")
        values[key.strip()] = value.strip()
    return with_values(Recipe() if path is None else read_recipe(path), values)


@contextmanager
def training_progress(title: str = "") -> Iterator[Callable[[dict[str, Any]], bool]]:
    """Show a bar on a terminal; SIGTERM and Ctrl-C ask the run to save and stop."""
    import signal

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from outspan.train import Stopped

    asked: list[int] = []
    before = {number: signal.signal(number, lambda got, _: asked.append(got)) for number in (signal.SIGINT, signal.SIGTERM)}
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}"), TimeRemainingColumn())
    try:
        console = Console(stderr=True)
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
            task = bar.add_task(title, said="")

            def on_step(state: dict[str, Any]) -> bool:
                said = f"epoch {state['epoch'] + 1}/{state['epochs']}  loss {state['loss']:.3f}"
                if state["metrics"]:
                    said += f"  test {100 * state['metrics'][-1]['test_accuracy']:.2f} %"
                bar.update(task, completed=state["step"], total=state["steps"], said=said)
                return bool(asked)

            yield on_step
        if asked:  # between two steps of nothing: the run is over, what was to follow is not begun
            raise Stopped("stopped; the same command goes on")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def parse_ops(text: str) -> tuple[list[str], list[float]]:
    """Read "rotate:0.5,invert" as names and levels; a graded transform needs its level."""
    from outspan.transforms.table import find

    names, levels = [], []
    for part in text.split(","):
        name, _, level = part.strip().partition(":")
        if not name:
            raise ValueError(f"an empty transform in {text!r}")
        transform = find(name)
        if transform.graded and not level:
            raise ValueError(f"{name!r} needs a level, e.g. {name}:0.5")
        if not transform.graded and level:
            raise ValueError(f"{name!r} takes no level, got {level!r}")
        try:
            levels.append(float(level or 0))
        except ValueError:
            raise ValueError(f"level of {name!r} must be a number, got {level!r}") from None
        names.append(name)
    return names, levels


def read_image(path: Path) -> "Images":
    """Return an image file as [1, C, H, W] bytes: grey files stay grey, all others become RGB."""
    import numpy as np
    import torch

    from outspan.data.readers import opened

    with opened(path) as file:
        array = np.array(file.convert("L" if file.mode in ("1", "L", "LA") else "RGB"))
    return torch.from_numpy(array[None] if array.ndim == 2 else array.transpose(2, 0, 1).copy()).unsqueeze(0)


def write_image(images: "Images", path: Path) -> None:
    """Write the first of a batch in the format that the file's name asks for."""
    from PIL import Image

    Image.init()
    form = Image.EXTENSION.get(path.suffix.lower())
    if form not in Image.SAVE:
        raise ValueError(f"{path}: unknown image format {path.suffix!r}, use .png, .jpg, .webp, …")
    array = images[0].permute(1, 2, 0).numpy()
    picture = Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)
    write_whole(path, lambda partial: picture.save(partial, format=form))


def write_whole(path: Path, write: Any) -> None:
    """Call `write` on a file beside the path, then move it there: whole, or not there."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        write(partial)
        os.replace(partial, path)
    except OSError as error:
        raise ValueError(f"{path}: cannot be written ({error.strerror or error})") from None
    finally:
        partial.unlink(missing_ok=True)


def _fit(other: "Images", like: "Images", path: Path) -> "Images":
    if other.shape[-2:] != like.shape[-2:]:
        wanted, got = list(like.shape[-2:]), list(other.shape[-2:])
        raise ValueError(f"{path}: the partner must have the image's height and width {wanted}, got {got}")
    if other.shape[1] == like.shape[1]:
        return other
    if like.shape[1] == 3:
        return other.expand(-1, 3, -1, -1)
    from outspan.transforms.color import grey

    return grey(other)


def main() -> None:
    """Run the command line; what the user got wrong is one red line and exit code 2, an interruption is 130."""
    from outspan.train import Stopped

    try:
        sys.exit(app(sys.argv[1:] or ["--help"], standalone_mode=False) or 0)
    except (_UsageError, ValueError) as error:
        message, code = getattr(error, "format_message", error.__str__)(), 2
    except OSError as error:  # a folder that is a file, a full disk
        message, code = f"{error.filename or ''}: {error.strerror or error}".removeprefix(": "), 2
    except Stopped as error:
        message, code = str(error), 130
    except (KeyboardInterrupt, typer.Abort):
        message, code = "interrupted", 130
    typer.secho(f"outspan: {' '.join(message.split())}", fg="red", err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
