"""Options that several commands share."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, cast

import typer

if TYPE_CHECKING:
    from outspan.recipe_keys import RecipeKeys

RECIPE_HELP = "Recipe file (TOML). Without it the defaults are used. Options override its values."
DATA_HELP = (
    "Data set name (digits, mnist, cifar10, …), image folder or .npz file. For text: imdb, a .csv, .tsv or .jsonl file, "
    "or a folder."
)
MODEL_HELP = "Model: mlp, convnet, wide_resnet-28-2, … or timm:NAME. For text: a Hugging Face Hub name or a local folder."
Set = Annotated[list[str] | None, typer.Option("--set", help="Override a recipe key, e.g. --set lr=0.2. Can be repeated.")]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="Number of parallel training processes, one thread each.")]
SkipBad = Annotated[int, typer.Option(min=0, help="Tolerate up to N unreadable files in an image folder.")]


def as_changes(**options: str | None) -> list[str]:
    """Return the options that were passed as `key=value` changes of a recipe."""
    return [f"{key}={value}" for key, value in options.items() if value is not None]


def recipe_keys(changes: Sequence[str] | None, **options: str | None) -> "RecipeKeys":
    """Return the recipe keys of a command line: the options that were passed, then those of --set. Unknown keys are refused."""
    from outspan.config import KEYS, RENAMED, read_changes
    from outspan.messages import unknown

    keys = read_changes([*as_changes(**options), *(changes or [])])
    for key in keys:
        if key not in KEYS and key not in RENAMED:  # it could be the name of another argument
            raise unknown("key", key, KEYS)
    return cast("RecipeKeys", keys)
