"""Options that several commands share, and what an option that does not exist may have meant."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from outspan.config import KEYS, RENAMED, read_changes
from outspan.messages import ALIASES, unknown
from outspan.recipe_keys import StudyKeys

if TYPE_CHECKING:
    from outspan.recipe_keys import RecipeKeys

DATA_HELP = (
    'Data set name (digits, mnist, cifar10, …), image folder, .npz file or tar shards ("shard-{000..099}.tar"). '
    "For text: imdb, a .csv, .tsv, .jsonl or .parquet file, or a folder, also of Hugging Face datasets."
)
MODEL_HELP = "Model: mlp, convnet, wide_resnet-28-2, … or timm:NAME. For text: a Hugging Face Hub name or a local folder."
_SET_HELP = "Set a recipe key, e.g. --set lr=0.2. Can be repeated. All keys (docs/training.md#recipes): "
_PLURALS = {"policy": "--policies", "seed": "--seeds"}  # options that a command may have instead of a recipe key


def _check_recipe_file(context: Any, path: Path | None) -> Path | None:
    """Refuse the name of a policy or a transform in place of a recipe file: the user has separated names by spaces."""
    if path is None or path.exists():
        return path
    from outspan.policies.table import POLICIES
    from outspan.transforms.table import ALL

    for noun, names, example in (("policies", POLICIES, "none,random"), ("transforms", ALL, "rotate,invert")):
        if str(path) in names and _has_option(context, f"--{noun}"):
            raise ValueError(f"recipe file {str(path)!r} not found; separate {noun} by commas, e.g. --{noun} {example}")
    return path


def _has_option(context: Any, option: str) -> bool:
    return any(option in parameter.opts for parameter in context.command.params)


RecipeFile = Annotated[
    Path | None,
    typer.Argument(
        callback=_check_recipe_file,
        help="Recipe file (TOML). Without it the defaults are used. Options override its values.",
    ),
]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help=f"{_SET_HELP}{', '.join(KEYS)}.")]
StudySet = Annotated[  # the other keys are set by the study
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help=f"{_SET_HELP}{', '.join(StudyKeys.__annotations__)}."),
]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="Number of parallel training processes, one thread each.")]
EngineName = Annotated[
    str, typer.Option("--engine", help="Where to train: `local` for processes of this machine, or `ray` (docs/distributed.md).")
]
Address = Annotated[
    str | None,
    typer.Option(help="With --engine ray: the cluster, `auto` or HOST:PORT. Without it, Ray starts here with --jobs workers."),
]
GpusPerRun = Annotated[
    float | None, typer.Option(help="With --engine ray: the part of a GPU that a run gets, e.g. 0.25. Default: 1 on GPUs.")
]
SkipBad = Annotated[
    int,
    typer.Option(
        min=0,
        help="Tolerate up to N unreadable files of images or tar shards, or rows of a table without a text or a label.",
    ),
]

Best = Annotated[
    bool,
    typer.Option("--best", help="Use the weights of the best epoch by validation, not those of the last epoch."),
]
Device = Annotated[
    str | None, typer.Option(help="Where to compute: cpu, cuda, cuda:1, mps. Default: a GPU of cuda if there is one, else cpu.")
]


def as_changes(**options: str | None) -> list[str]:
    """Return the options that were passed as `key=value` changes of a recipe."""
    return [f"{key}={value}" for key, value in options.items() if value is not None]


def recipe_keys(changes: Sequence[str] | None, **options: str | None) -> "RecipeKeys":
    """Return the recipe keys of a command line: the options that were passed, then those of --set. Unknown keys are refused."""
    keys = read_changes([*as_changes(**options), *(changes or [])])
    for key in keys:
        if key not in KEYS and key not in RENAMED:  # it could be the name of another argument
            raise unknown("key", key, KEYS)
    return cast("RecipeKeys", keys)


def describe_usage_error(error: Any, arguments: Sequence[str]) -> str:
    """Return the message of a click error. If an unknown option is a recipe key, the message has the --set to use instead."""
    option = error.option_name if hasattr(error, "possibilities") else ""  # only an unknown option has possibilities
    name = option.lstrip("-").replace("-", "_")
    key = name if name in KEYS else ALIASES.get(name)
    if key not in KEYS or not _has_option(error.ctx, "--set") or _has_option(error.ctx, _PLURALS.get(key, "")):
        return error.format_message().replace("Input should be", "the value must be")  # what pydantic says of a wrong number
    described = "a recipe key" if key == name else f"the recipe key {key}"
    change = shlex.quote(f"{key}={_value_of(option, arguments)}")
    return f"No such option: {option}. {name} is {described}: use `--set {change}`"


def _value_of(option: str, arguments: Sequence[str]) -> str:
    """Return the value of an option on a command line, or VALUE if it has none."""
    for argument, following in zip(arguments, [*arguments[1:], "-"], strict=True):
        name, equals, value = argument.partition("=")
        if name == option:
            return value if equals else "VALUE" if following.startswith("-") else following
    return "VALUE"
