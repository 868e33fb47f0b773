"""Texts for a user's own loop or trainer: a data set of rows, from columns of texts or of tokens."""

import copy
from collections.abc import Mapping, Sequence
from functools import lru_cache
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from outspan.files import expand_home
from outspan.limits import check_whole
from outspan.messages import first_line, shown
from outspan.text.documents import Documents, read_cached
from outspan.text.pairs import part_types
from outspan.text.segments import PAIR
from outspan.text.token_ids import encode_ids
from outspan.text.tokenizer import Tokenizer, wrap_tokenizer
from outspan.text.tokens import Encoded, Passages, encode

_SHOWN = 10  # number of wrong rows that an error names
_MOST_CLASSES = 1_000  # as in tables


class TokenizedTexts(Dataset):
    """Labeled texts as the data set of a `DataLoader` or an `AugmentedTrainer`: an item is the row of a text, and its label.

    `tokenize` makes them from columns. Batches contain rows only, because the policy needs the texts in sentences and words.

    Example::

        loader = DataLoader(train, batch_size=32, shuffle=True, collate_fn=train.collate)
        for step, batch in enumerate(loader):
            augmented = policy(train.inputs(batch), batch["labels"], step=step)
            logits = model(**train.arguments(augmented.inputs)).logits
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
        """Return the batch of some items: the collator of a data loader."""
        rows, labels = torch.tensor(samples).T
        return {"rows": rows, "labels": labels}

    def inputs(self, batch: Mapping[str, Tensor]) -> Passages:
        """Return the texts of a batch, for a policy. They are on the device of the batch."""
        rows = batch["rows"] if isinstance(batch, Mapping) and "rows" in batch else None
        if not isinstance(rows, Tensor):
            how = "pass collate_fn=train.collate to the data loader, where train is this data set"
            raise ValueError(f"the batch must have the rows of texts, got {type(batch).__name__}: {how}")
        return Passages(self.texts, self.texts.rows[rows.cpu().numpy()], rows.device)

    def arguments(self, tokens: Tensor) -> dict[str, Tensor]:
        """Return what the model takes: tokens, a mask that is 0 for padding, and for pairs the types of the tokens, if any."""
        corpus = self.texts.corpus
        separator, padding = corpus.tokenizer.separator, corpus.tokenizer.padding
        arguments = {"input_ids": tokens, "attention_mask": (tokens != padding).long()}
        if corpus.parts == 2 and separator is not None:
            arguments["token_type_ids"] = part_types(tokens, separator, padding)
        return arguments


def tokenize(
    data: Any,
    tokenizer: Any,
    *,
    length: int,
    text: str | tuple[str, str] = "text",
    label: str = "label",
    truncate: str = "head",
    wordnet: str | None = None,
    cache: Path | str | None = None,
) -> TokenizedTexts:
    """Tokenize the texts of a data set for training with augmentation.

    Args:
        data: A split of `datasets`, or another mapping from names of columns to their values.
        tokenizer: A fast tokenizer of transformers. It is not changed.
        length: Maximum number of tokens, with special tokens.
        text: Column of the texts, or of their tokens, such as "input_ids". A column "attention_mask" then tells the padding.
            For pairs both columns: ("premise", "hypothesis").
        label: Column of the class indices.
        truncate: The part of a longer text that is kept: "head", "tail" or "head+tail".
        wordnet: Folder of WordNet's database; None is where Debian installs it.
        cache: File of `back_translation` and `masked_replacement`, for columns of texts: what `outspan.text.backtranslate` and
            `propose_words` write.
    """
    check_whole("length", length, 1)
    if not isinstance(wordnet, str | None):
        raise ValueError(f"wordnet must be a folder, got {shown(wordnet)}")
    own, labels = adopt_tokenizer(tokenizer), _values(data, label)
    contents = _values(data, text) if isinstance(text, str) else _pairs(data, text)
    if len(contents) != len(labels):
        raise ValueError(f"the columns must be equally long, got {len(contents)} texts and {len(labels)} labels")
    if not contents:
        raise ValueError("the data set has no rows")
    options = {"length": length, "truncate": truncate, "wordnet": wordnet}
    if contents[0] is None or isinstance(contents[0], str):
        contents = contents if isinstance(text, tuple) else _whole_texts(contents, text)
        translations, proposals = (None, None) if cache is None else read_cached(expand_home(cache), has_proposals=True)
        documents = Documents(contents, _class_indices(label, labels))
        return TokenizedTexts(encode(documents, own, **options, cache=translations, proposals=proposals))
    if cache is not None:
        raise ValueError(f"cache is for columns of texts, got tokens in the column {text!r}: name the column of the texts")
    masks = _values(data, "attention_mask") if "attention_mask" in _names(data) else None
    documents = read_ids(contents, masks, own, column=str(text))
    _check_present(contents, [bool(tokens) for tokens in documents], f"column {text!r} must have tokens besides special ones")
    return TokenizedTexts(encode_ids(documents, _class_indices(label, labels), own, **options))


def _pairs(data: Any, columns: tuple[str, str]) -> list[str]:
    """Return the texts of two columns as pairs."""
    if not isinstance(columns, tuple) or len(columns) != 2:
        raise ValueError(f"text must be a column, or a tuple of two columns for pairs, got {shown(columns)}")
    first, second = (_values(data, name) for name in columns)
    if len(first) != len(second):
        raise ValueError(f"the columns must be equally long, got {len(first)} and {len(second)} texts")
    parts = (_whole_texts(values, name) for values, name in zip((first, second), columns, strict=True))
    return [PAIR.join(pair) for pair in zip(*parts, strict=True)]


def _whole_texts(values: Sequence[Any], column: str) -> list[str]:
    """Return the texts of a column. All that are empty or no text are named in one error."""
    _check_present(values, [is_whole_text(value) for value in values], f"column {column!r} must have texts")
    return [value.replace(PAIR, " ") for value in values]


def is_whole_text(value: Any) -> bool:
    """Return whether a value is a text, or a pair of texts, that is not empty and has no half characters."""
    if not isinstance(value, str) or not all(part.strip() for part in value.split(PAIR)):
        return False
    return not any("\ud800" <= character <= "\udfff" for character in value)


def _check_present(contents: Sequence[Any], present: Sequence[bool], problem: str) -> None:
    """Raise a ValueError that names the rows without content."""
    wrong = [row for row, is_there in enumerate(present) if not is_there]
    if wrong:
        rows = ", ".join(map(str, wrong[:_SHOWN])) + (", …" if len(wrong) > _SHOWN else "")
        got = f"got {shown(contents[wrong[0]])} in row {wrong[0]}; {len(wrong):,} of {len(contents):,} rows have none ({rows})"
        raise ValueError(f"{problem}, {got}: remove them, e.g. with the method filter of datasets")


def adopt_tokenizer(tokenizer: Any) -> Tokenizer:
    """Return a copy of a fast tokenizer of transformers, for outspan. It must have a token for padding."""
    backend, padding = getattr(tokenizer, "backend_tokenizer", None), getattr(tokenizer, "pad_token_id", None)
    if backend is None:
        how = "AutoTokenizer.from_pretrained(name) returns one"
        raise ValueError(f"tokenizer must be a fast tokenizer of transformers, got {type(tokenizer).__name__}: {how}")
    if padding is None:
        raise ValueError("tokenizer has no token for padding: set tokenizer.pad_token = tokenizer.eos_token")
    try:
        own = _adopt(tokenizer, int(padding), len(tokenizer))
    except (TypeError, RuntimeError) as error:
        raise ValueError(f"tokenizer cannot be used ({first_line(error)})") from None
    if padding in (*own.before, *own.after):
        how = 'tokenizer.add_special_tokens({"pad_token": "[PAD]"}), then model.resize_token_embeddings(len(tokenizer))'
        name = tokenizer.convert_ids_to_tokens(padding)
        raise ValueError(f"the padding token {name!r} is also at the ends of texts, where it must not be masked: {how}")
    return own


@lru_cache(maxsize=4)  # `datasets.map` comes once per batch
def _adopt(tokenizer: Any, padding: int, size: int) -> Tokenizer:
    return wrap_tokenizer(copy.deepcopy(tokenizer.backend_tokenizer), padding)


def read_ids(rows: Any, masks: Any, tokenizer: Tokenizer, *, column: str) -> list[list[int]]:
    """Return the tokens of each document, without special tokens at the ends and without padding. `masks` can be None."""
    if masks is not None and len(masks) != len(rows):
        raise ValueError(f"attention_mask must have one row per text, got {len(masks)} for {len(rows)}")
    size, documents = len(tokenizer.wordlike), []
    for number, row in enumerate(rows):
        tokens = _whole_numbers(row, f"column {column!r} must have texts, or lists of tokens", number)
        outside = [token for token in tokens if not 0 <= token < size]
        if outside:
            how = f"the vocabulary has {size:,} tokens: was another tokenizer used?"
            raise ValueError(f"column {column!r}, row {number}: no token {outside[0]}, {how}")
        mask = [1] * len(tokens) if masks is None else _whole_numbers(masks[number], "attention_mask must be 0 and 1", number)
        if len(mask) != len(tokens):
            raise ValueError(f"attention_mask, row {number}: {len(mask)} numbers for {len(tokens)} tokens")
        documents.append(_strip([token for token, kept in zip(tokens, mask, strict=True) if kept], tokenizer, number))
    return documents


def _strip(tokens: list[int], tokenizer: Tokenizer, row: int) -> list[int]:
    """Return tokens without padding and special tokens at the ends. Several texts in one row are refused."""
    first, last = 0, len(tokens)
    while last > first and tokens[last - 1] == tokenizer.padding:
        last -= 1
    while first < last and tokens[first] == tokenizer.padding:
        first += 1
    tokens = tokens[first:last]
    before, after = [*tokenizer.before], [*tokenizer.after]
    if before and tokens[: len(before)] == before:
        tokens = tokens[len(before) :]
    if after and tokens[-len(after) :] == after:
        tokens = tokens[: -len(after)]
    if {*before, *after, tokenizer.padding} & {*tokens}:
        raise ValueError(f"row {row} has special tokens inside, as pairs of texts have: pass the texts instead of tokens")
    return tokens


def _whole_numbers(values: Any, problem: str, row: int) -> list[int]:
    listed = values.tolist() if hasattr(values, "tolist") else values
    is_list = isinstance(listed, Sequence) and not isinstance(listed, str)
    if not is_list or not all(isinstance(value, Integral) for value in listed):
        wrong = next((value for value in listed if not isinstance(value, Integral)), None) if is_list else listed
        raise ValueError(f"{problem}, got {shown(wrong)} in row {row}")
    return [int(value) for value in listed]


def _class_indices(column: str, values: Sequence[Any]) -> Tensor:
    wrong = [row for row, value in enumerate(values) if not isinstance(value, Integral) or not 0 <= int(value) < _MOST_CLASSES]
    if not wrong:
        return torch.tensor([int(value) for value in values], dtype=torch.int64)
    value, how = values[wrong[0]], f"number the classes from 0 to at most {_MOST_CLASSES - 1}"
    if isinstance(value, Sequence | np.ndarray | Tensor) and not isinstance(value, str):
        how = "a label per token or several labels per text are not supported here"
    elif isinstance(value, float) and not value.is_integer():
        how = "regression is not supported"
    elif isinstance(value, str):
        how = "number the classes from 0, e.g. with class_encode_column of datasets"
    raise ValueError(f"column {column!r} must have class indices, got {shown(value)} in row {wrong[0]}: {how}")


def _names(data: Any) -> list[Any]:
    if isinstance(getattr(data, "column_names", None), Mapping):  # several splits
        return []
    return list(getattr(data, "column_names", None) or (data if isinstance(data, Mapping) else []))


def _values(data: Any, name: str) -> list[Any]:
    if hasattr(data, "with_format"):
        data = data.with_format(None)  # plain values, not tensors
    names = _names(data)
    values = data[name] if name in names else None
    if values is None or isinstance(values, str) or not hasattr(values, "__iter__") or getattr(values, "ndim", 1) == 0:
        if not names:
            how = 'pass one split, such as data["train"], or {"text": texts, "label": labels}'
            raise ValueError(
                f"data must be a split of datasets or another mapping of columns, got {type(data).__name__}: {how}"
            )
        how = 'name other columns with text= and label=, and pass one split, such as data["train"]'
        raise ValueError(f"the data set has no column {name!r} (columns: {', '.join(map(str, names))}): {how}")
    return values.tolist() if isinstance(values, Tensor | np.ndarray) else list(values)
