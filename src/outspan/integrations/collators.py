"""Columns of a data set as batches for a trainer of Hugging Face: images as bytes, and texts as rows of a corpus."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from outspan.data.decode import Pixels, fit, to_tensor
from outspan.limits import check_whole
from outspan.messages import shown
from outspan.text.documents import Documents
from outspan.text.tokens import Encoded, Passages, encode, wrap_tokenizer


@dataclass(frozen=True)
class ImageCollator:
    """A collator for data sets with a column of images and one of class indices: `pixel_values`, uint8, and `labels`.

    Args:
        size: Height and width. The largest centered box of an image with this aspect ratio is resized to them.
        image: Column of the images: Pillow images, as `datasets` returns them, or uint8 tensors [C, height, width].
        label: Column of the class indices.
        channels: 3 for RGB, or 1 for grey.
    """

    size: tuple[int, int]
    image: str = "image"
    label: str = "label"
    channels: int = 3

    def __post_init__(self) -> None:
        if not isinstance(self.size, tuple) or len(self.size) != 2:
            raise ValueError(f"size must be a height and a width, such as (224, 224), got {shown(self.size)}")
        for name, side in zip(("height", "width"), self.size, strict=True):
            check_whole(name, side, 1)
        if self.channels not in (1, 3):
            raise ValueError(f"channels must be 1 or 3, got {shown(self.channels)}")

    def __call__(self, samples: Sequence[Any]) -> dict[str, Tensor]:
        """Return the batch of some samples, each a dictionary of its columns."""
        images = torch.stack([self._read(_column(sample, self.image)) for sample in samples])
        return {"pixel_values": images, "labels": torch.tensor([int(_column(sample, self.label)) for sample in samples])}

    def _read(self, image: Any) -> Tensor:
        if isinstance(image, Image.Image):
            return to_tensor(fit(image, *self.size, Pixels(self.channels)))
        shape = (self.channels, *self.size)
        if not isinstance(image, Tensor) or image.dtype != torch.uint8 or tuple(image.shape) != shape:
            kind = f"{image.dtype} {list(image.shape)}" if isinstance(image, Tensor) else type(image).__name__
            expected = f"Pillow images or uint8 tensors {list(shape)}"
            raise ValueError(f"column {self.image!r} must have {expected}, got {kind}: remove transforms to floats")
        return image


def _column(sample: Any, name: str) -> Any:
    if name in sample:
        return sample[name]
    how = "name another column, or set remove_unused_columns=False in TrainingArguments"
    raise ValueError(f"the data set has no column {name!r} (columns: {', '.join(map(str, sample))}): {how}")


class TokenizedTexts(Dataset):
    """Labeled texts as the `train_dataset` of an `AugmentedTrainer`: an item is the row of a text, and its label.

    `tokenize` makes them from columns. Batches contain rows only, because the policy needs the texts in sentences and words.
    """

    def __init__(self, texts: Encoded) -> None:
        self.texts = texts

    def __len__(self) -> int:
        """Return the number of texts."""
        return len(self.texts)

    def __getitem__(self, row: int) -> tuple[int, int]:
        """Return the row of a text and its label."""
        return row, int(self.texts.labels[row])

    @staticmethod
    def collate(samples: Sequence[tuple[int, int]]) -> dict[str, Tensor]:
        """Return the batch of some items."""
        rows, labels = torch.tensor(samples).T
        return {"rows": rows, "labels": labels}

    def inputs(self, batch: Mapping[str, Tensor]) -> Passages:
        """Return the texts of a batch, for a policy."""
        rows = batch["rows"]
        return Passages(self.texts, self.texts.rows[rows.cpu().numpy()], rows.device)

    def arguments(self, tokens: Tensor) -> dict[str, Tensor]:
        """Return what the model takes: tokens, and a mask that is 0 for padding."""
        return {"input_ids": tokens, "attention_mask": (tokens != self.texts.corpus.tokenizer.padding).long()}


def tokenize(
    data: Any, tokenizer: Any, *, length: int, text: str = "text", label: str = "label", truncate: str = "head"
) -> TokenizedTexts:
    """Tokenize the texts of a data set for training with augmentation.

    Args:
        data: A split of `datasets`, or another mapping from names of columns to their values.
        tokenizer: A fast tokenizer of transformers. It is not changed.
        length: Maximum number of tokens, with special tokens.
        text: Column of the texts.
        label: Column of the class indices.
        truncate: The part of a longer text that is kept: "head", "tail" or "head+tail".
    """
    backend, padding = getattr(tokenizer, "backend_tokenizer", None), getattr(tokenizer, "pad_token_id", None)
    if backend is None:
        raise ValueError(f"tokenizer must be a fast tokenizer of transformers, got {type(tokenizer).__name__}")
    if padding is None:
        raise ValueError("tokenizer has no token for padding: set tokenizer.pad_token = tokenizer.eos_token")
    texts, labels = (_values(data, name) for name in (text, label))
    for column, values, kind, noun in ((text, texts, str, "texts"), (label, labels, Integral, "class indices")):
        wrong = [value for value in values if not isinstance(value, kind)]  # None is possible
        if wrong:
            raise ValueError(f"column {column!r} must have {noun}, got {shown(wrong[0])}")
    documents = Documents(texts, torch.tensor(labels, dtype=torch.int64))
    return TokenizedTexts(encode(documents, wrap_tokenizer(copy.deepcopy(backend), padding), length=length, truncate=truncate))


def _values(data: Any, name: str) -> list[Any]:
    if hasattr(data, "with_format"):
        data = data.with_format(None)  # plain values, not tensors
    columns = getattr(data, "column_names", None) or (list(data) if isinstance(data, Mapping) else [])
    if name not in columns or not isinstance(data[name], Iterable):
        how = 'name other columns with text= and label=, and pass one split, such as data["train"]'
        raise ValueError(f"the data set has no column {name!r} (columns: {', '.join(map(str, columns)) or 'none'}): {how}")
    return list(data[name])
