"""The settings of safety.py: data, models and recipes that differ in kind.

MNIST, CIFAR-10 and IMDb are read from OUTSPAN_DATA. The definitions are those of WordNet 3.0: `apt-get install wordnet-base`
writes them to /usr/share/wordnet. Validation samples are train samples that no run trains on. The text model is a small BERT
that starts from random weights, with a tokenizer made from the train texts.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from image_changes import (
    Change,
    brightness_is_class,
    color_is_class,
    first_classes,
    imbalanced,
    last_classes,
    orientation_is_class,
    wrong_labels,
)
from torch import Tensor, nn
from unseen_data import make_emoji, make_icons, make_letters, make_packages, make_spectrograms

from outspan import load, load_data, train
from outspan.data.dataset import Data
from outspan.data.splits import InMemory
from outspan.text.documents import Documents

WORDNET = Path("/usr/share/wordnet/data.noun")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = 60  # the last ones of a review
LENGTH = 64  # tokens

# The policies, as changes of a recipe. `auto` is compared with the best of the plain ones.
POLICIES = {
    "none": {"policy": "none"},
    "baseline": {"policy": "baseline"},
    "random": {"policy": "random"},
    "randaugment": {"policy": "randaugment"},
    "trivialaugment": {"policy": "trivialaugment"},
    "natural": {"policy": "random"},  # the transforms of auto at strength 1, see make_run
    "auto": {"policy": "auto"},
    "auto-all-samples": {"policy": "auto", "skip": 0.0},
    "random-hard-samples": {"policy": "random", "skip": 0.5},
    "uncertain-max": {"policy": "uncertain"},
    "uncertain-proportional": {"policy": "uncertain", "select": "proportional"},
}
PLAIN = ("none", "baseline", "random", "randaugment", "trivialaugment", "natural")
UNSEEN_POLICIES = (*PLAIN, "auto")
FIRST_TIME_ONLY = ("auto-all-samples", "random-hard-samples", "uncertain-max", "uncertain-proportional")


@dataclass(frozen=True)
class Setting:
    """Data, a model and the rest of a recipe."""

    data: Callable[[], Data]
    model: str | Callable[[Data], str]  # its name, or a function that writes it to a folder
    recipe: Mapping[str, Any] = field(default_factory=dict)  # changes of the default recipe for the data
    policies: tuple[str, ...] = tuple(POLICIES)
    initialize: Callable[[nn.Module, int], None] | None = None  # sets the initial weights, for a seed


def make_images(name: str, count: int | None = None, change: Change | None = None, change_train: Change | None = None) -> Data:
    """Return the first train images of a data set, or all but the last 5,000, which are for validation.

    `change` changes all splits, `change_train` the train split alone.
    """
    data = load_data(name)
    train, test = data.train, data.test
    assert isinstance(train, InMemory)
    assert isinstance(test, InMemory)
    splits = {
        "train": (train.images[: count or -5_000], train.labels[: count or -5_000]),
        "validation": (train.images[-5_000:], train.labels[-5_000:]),
        "test": (test.images, test.labels),
    }
    for seed, (split, (images, labels)) in enumerate(splits.items()):
        generator = torch.Generator().manual_seed(seed)
        for function in (change, change_train if split == "train" else None):
            if function is not None:
                images, labels = function(images, labels, generator)
        splits[split] = images.contiguous(), labels
    made = {split: InMemory(*samples) for split, samples in splits.items()}
    classes = 1 + int(made["test"].labels.max())
    return Data(name, made["train"], made["test"], tuple(map(str, range(classes))), made["validation"])


@lru_cache(maxsize=1)
def pretrain() -> dict[str, Tensor]:
    """Return the weights of a convnet after 2,000 steps without augmentation on classes 0 to 4 of CIFAR-10."""
    with TemporaryDirectory() as folder:
        data = make_images("cifar10", change=first_classes)
        train(out=folder, splits=data, model="convnet", policy="none", steps=2_000)
        return load(folder).model.state_dict()


def load_pretrained(model: nn.Module, seed: int) -> None:
    """Load the weights of `pretrain` into all layers but the last."""
    own = model.state_dict()
    head = {name: own[name] for name in [*own][-2:]}  # weight and bias
    model.load_state_dict({**pretrain(), **head})


def make_reviews(count: int) -> Data:
    """Return the last words of reviews of IMDb; the class is positive or negative."""
    data = load_data("imdb")
    train, validation = draw_texts(data.train, count, 2_000)
    [test] = draw_texts(data.test, 2_000)
    return Data("imdb", train, test, data.classes, validation)


def make_definitions(count: int) -> Data:
    """Return definitions of nouns in WordNet; the class is one of 25 groups of nouns, such as animals, food or feelings."""
    groups = dict(read_definitions())  # a definition that several nouns share is kept once
    documents = Documents([*groups], torch.tensor([*groups.values()]) - 4)
    train, validation, test = draw_texts(documents, count, 2_000, 2_000)
    return Data("wordnet", train, test, tuple(map(str, range(25))), validation)


def read_definitions() -> Iterator[tuple[str, int]]:
    """Yield each definition without its examples, and the number of its group (`man lexnames`); group 3 is of all kinds."""
    if not WORDNET.exists():
        raise SystemExit(f"{WORDNET}: no such file; run `apt-get install wordnet-base`")
    for line in WORDNET.read_text().splitlines():
        entry, bar, gloss = line.partition(" | ")
        if bar and (group := int(entry.split()[1])) != 3:
            yield gloss.partition('; "')[0].strip(), group


def draw_texts(documents: Any, *counts: int) -> list[Documents]:
    """Return random documents without overlap, of each only the last words."""
    order = torch.randperm(len(documents), generator=torch.Generator().manual_seed(0))
    parts = [documents.take(rows) for rows in order[: sum(counts)].split(counts)]
    return [Documents([" ".join(text.split()[-WORDS:]) for text in part.texts], part.labels) for part in parts]


def write_bert(data: Data) -> str:
    """Write a BERT of 2 layers, and a WordPiece tokenizer of the train texts, to a folder. Return its path."""
    return _write_bert(data).name


@lru_cache(maxsize=1)
def _write_bert(data: Data) -> TemporaryDirectory:
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertConfig, BertModel

    assert isinstance(data.train, Documents)
    folder = TemporaryDirectory()  # it is removed when the next model is written, and at the end
    tokenizer = BertWordPieceTokenizer()
    tokenizer.train_from_iterator(data.train.texts, 4_000, min_frequency=2, special_tokens=[*SPECIAL], show_progress=False)
    tokenizer.save(f"{folder.name}/tokenizer.json")
    config = BertConfig(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=64, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=256, max_position_embeddings=LENGTH, pad_token_id=0,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder.name)
    return folder


def draw_weights(model: nn.Module, seed: int) -> None:
    """Draw the weights of a BERT as BERT does, from N(0, 0.02²). Biases and normalization stay as they are."""
    generator = torch.Generator().manual_seed(seed)
    for weights in model.parameters():
        if weights.ndim > 1:
            weights.data.copy_(0.02 * torch.randn(weights.shape, generator=generator))


_FLIP = {"defaults": "flip"}
_TEXT_POLICIES = ("none", "random", "uncertain-max", "auto")
_PHOTOS = partial(make_images, "cifar10")
_DIGITS = partial(make_images, "mnist")
SETTINGS = {
    "digits, 500 images": Setting(partial(_DIGITS, 500), "convnet"),
    "digits, 5,000 images": Setting(partial(_DIGITS, 5_000), "convnet"),
    "digits, 5,000 images, MLP": Setting(partial(_DIGITS, 5_000), "mlp"),
    "digits, orientation is the class": Setting(partial(_DIGITS, 5_000, orientation_is_class), "convnet"),
    "photos, 500 images": Setting(partial(_PHOTOS, 500), "convnet", _FLIP),
    "photos, 5,000 images": Setting(partial(_PHOTOS, 5_000), "convnet", _FLIP),
    "photos, all images": Setting(_PHOTOS, "convnet", _FLIP),
    "photos, 5,000 images, MLP": Setting(partial(_PHOTOS, 5_000), "mlp", {**_FLIP, "lr": 0.01}),
    "photos, 20 % wrong labels": Setting(partial(_PHOTOS, 5_000, change_train=wrong_labels), "convnet", _FLIP),
    "photos, imbalanced": Setting(partial(_PHOTOS, 10_000, change_train=imbalanced), "convnet", _FLIP),
    "photos, color is the class": Setting(partial(_PHOTOS, 5_000, color_is_class), "convnet", _FLIP),
    "photos, brightness is the class": Setting(partial(_PHOTOS, 5_000, brightness_is_class), "convnet", _FLIP),
    "photos, 500 images, ResNet-18": Setting(partial(_PHOTOS, 500), "resnet-18", _FLIP),
    "photos, fine-tuning on 500 images of other classes": Setting(
        partial(_PHOTOS, 1_000, last_classes), "convnet", {**_FLIP, "lr": 0.02}, initialize=load_pretrained
    ),
    "reviews, 1,000 texts": Setting(
        partial(make_reviews, 1_000), write_bert, {"length": LENGTH, "lr": 1e-3}, _TEXT_POLICIES, draw_weights
    ),
    "definitions, 2,000 texts": Setting(
        partial(make_definitions, 2_000), write_bert, {"length": LENGTH, "lr": 3e-3}, _TEXT_POLICIES, draw_weights
    ),
}
# Settings whose data were not used to design auto. Nothing is tuned on them.
UNSEEN = {
    "emoji": Setting(make_emoji, "convnet", policies=UNSEEN_POLICIES),
    "emoji, MLP": Setting(make_emoji, "mlp", {"lr": 0.01}, UNSEEN_POLICIES),
    "letters": Setting(make_letters, "convnet", policies=UNSEEN_POLICIES),
    "letters, MLP": Setting(make_letters, "mlp", policies=UNSEEN_POLICIES),
    "icons": Setting(make_icons, "convnet", policies=UNSEEN_POLICIES),
    "spectrograms": Setting(make_spectrograms, "convnet", policies=UNSEEN_POLICIES),
    "packages, 2,000 texts": Setting(
        partial(make_packages, 2_000), write_bert, {"length": LENGTH, "lr": 3e-3}, ("none", "random", "auto"), draw_weights
    ),
}
