"""The tables and figures of the paper (arXiv:2005.00695) as data: the printed numbers, and how to reproduce them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from outspan.data.sets import IMAGENET
from outspan.messages import unknown
from outspan.recipe_keys import RecipeKeys
from outspan.transforms.table import TRANSFORMS


@dataclass(frozen=True)
class Item:
    """A table or figure of the paper: its title, the command that reproduces it, and the data that it needs."""

    title: str
    command: str
    data: tuple[str, ...] = ()
    results: tuple[str, ...] = ()  # glob patterns of files in results/
    page: str = ""  # the page that compares the results with the paper
    cells: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # the paper's numbers, by row and method
    changes: Mapping[str, RecipeKeys] = field(default_factory=dict)  # by method, changes to its recipe


# The rows of the paper's comparisons, and the file of each in recipes/paper, which is the recipe of the method "uncertain".
ROWS: Mapping[str, str] = MappingProxyType(
    {
        "cifar10/wrn-28-10": "cifar10-wrn-28-10",
        "cifar10/shake-shake": "cifar10-shake-shake-26-2x96d",
        "cifar10/pyramidnet": "cifar10-pyramidnet-272-200",
        "cifar100/wrn-28-10": "cifar100-wrn-28-10",
        "svhn/wrn-28-10": "svhn-wrn-28-10",
        "imagenet/resnet-50": "imagenet-resnet-50",
    }
)
_MNIST = "outspan measure recipes/paper/mnist-mlp.toml"
# The 20 transforms of the paper: all that do not mix labels, without the resized crop.
_TWENTY = ",".join(name for name, entry in TRANSFORMS.items() if not entry.mixes and name not in ("identity", "resized_crop"))
_COLUMNS = ("baseline", "aa", "fast-aa", "pba", "ra", "adv-aa", "uncertain")
_TABLE_3 = {
    "cifar10/wrn-28-10": ("96.13", "97.32", "97.30", "97.42", "97.30", "98.10", "97.89 ± 0.03"),
    "cifar10/shake-shake": ("97.14", "98.01", "98.00", "97.97", "98.00", "98.15", "98.27 ± 0.05"),
    "cifar10/pyramidnet": ("97.33", "98.52", "98.30", "98.54", "98.50", "98.64", "98.66 ± 0.02"),
    "cifar100/wrn-28-10": ("81.20", "82.91", "82.70", "83.27", "83.30", "84.51", "84.54 ± 0.09"),
    "svhn/wrn-28-10": ("96.9", "98.1", "-", "-", "98.3", "-", "98.3 ± 0.03"),
    "imagenet/resnet-50": ("76.31", "77.63", "77.60", "-", "77.60", "79.40", "79.14"),
}
# Tables and figures have the numbers of the PDF. Two tables of Section 5.3 are inside figures: they are Figures 4 and 5.
PAPER: Mapping[str, Item] = MappingProxyType(
    {
        "table-1": Item("the theory's results, by example", "outspan theory verify"),
        "table-2": Item(
            "error and instability of cutout, crop and rotation",
            f"{_MNIST} --transforms cutout,random_crop,rotate --seeds 9 -o runs/table-2",
            ("mnist",),
            ("mnist-transforms*.json",),
            "docs/measured.md",
        ),
        "table-3": Item(
            "test accuracy of seven methods on four data sets",
            "outspan reproduce table-3 --rows cifar10/wrn-28-10 --methods baseline,ra,uncertain --seeds 4",
            ("cifar10", "cifar100", "svhn", IMAGENET),
            ("table-3*.json",),
            cells={row: dict(zip(_COLUMNS, numbers, strict=True)) for row, numbers in _TABLE_3.items()},
        ),
        "table-4": Item(
            "error and instability of 20 transforms",
            f"{_MNIST} --transforms {_TWENTY} --seeds 9 -o runs/mnist",
            ("mnist",),
            ("mnist-transforms*.json",),
            "docs/measured.md",
        ),
        "table-5": Item(
            "three seeds compared with nine (in the file of Table 4, as first_3_seeds)",
            f"{_MNIST} --transforms {_TWENTY} --seeds 9 -o runs/mnist",
            ("mnist",),
            ("mnist-transforms*.json",),
            "docs/measured.md",
        ),
        "table-6": Item(
            "settings of every model: recipes/paper/*.toml",
            "outspan train recipes/paper/mnist-mlp.toml -o runs/mnist-mlp",
            ("mnist",),
        ),
        "table-7": Item(
            "mixup compared with weight decay and same-class mixup",
            "outspan mixup recipes/paper/mnist-mlp.toml --seeds 9 -o runs/mixup",
            ("mnist", "cifar10"),
            ("mnist-mixup.json", "cifar10-mixup*.json"),
            "docs/measured.md",
        ),
        "figure-1": Item(
            "which compositions are chosen over training",
            "outspan train recipes/paper/cifar10-pyramidnet-272-200.toml -o runs/figure-1"
            " && outspan compositions runs/figure-1 -o chosen.png",
            ("cifar10",),
            ("cifar10-pyramidnet*-compositions.json", "cifar10-wrn-28-10-compositions.json"),
            "docs/training.md",
        ),
        "figure-2": Item(
            "instability by the fraction of same-class mixup",
            "outspan mixup recipes/paper/mnist-mlp.toml --seeds 9 -o runs/mixup",
            ("mnist",),
            ("mnist-mixup.json",),
            "docs/measured.md",
        ),
        "figure-3": Item(
            "which of five transforms improve each other",
            "outspan compose recipes/paper/mnist-mlp.toml --seeds 9 -o runs/mnist",
            ("mnist",),
            ("mnist-compos*.json",),
            "docs/measured.md",
        ),
        "figure-4": Item(
            "four of eight candidates kept (a table in the text)",
            "outspan reproduce figure-4 --rows cifar10/wrn-28-10 --methods uncertain --seeds 4",
            ("cifar10", "cifar100"),
            ("figure-4*.json",),
            cells={
                "cifar10/wrn-28-10": {"adv-aa": "98.10 ± 0.15", "uncertain": "98.16 ± 0.05"},
                "cifar100/wrn-28-10": {"adv-aa": "84.51 ± 0.18", "uncertain": "85.02 ± 0.18"},
            },
            changes={"uncertain": {"candidates": 8, "keep": 4}},
        ),
        "figure-5": Item(
            "cost of training relative to RandAugment (a table in the text): Adv. AA 8, the paper's about 1.5",
            "python benchmarks/cost.py --out results/cost.json",
            (),
            ("cost.json",),
            "docs/reproduce.md",
        ),
        "figure-6": Item(
            "margins of the images that mixup corrects",
            "outspan mixup --data cifar10 --model wide_resnet-28-10 --l2 5e-4 --seeds 9 -o runs/margins",
            ("cifar10",),
            ("cifar10-mixup*.json",),
            "docs/measured.md",
        ),
        "imdb": Item(
            "text, in Section 5: BERT-large reaches 95.96 % with Algorithm 1, 95.22 % without",
            "outspan text backtranslate imdb -o imdb-backtranslated.jsonl"
            " && outspan train recipes/paper/imdb-bert-large.toml -o runs/imdb",
            ("imdb",),
            ("imdb-bert-large*.json", "imdb-minilm.json"),
            "docs/text.md",
        ),
    }
)


def find_item(name: str) -> Item:
    """Return a table or figure by name."""
    if name not in PAPER:
        raise unknown("table or figure", name, PAPER)
    return PAPER[name]
