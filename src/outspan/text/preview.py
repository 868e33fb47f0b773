"""Apply transforms to texts or tokens outside of training, and show where texts differ."""

import difflib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import Any

import torch

from outspan import rng
from outspan.files import expand_home
from outspan.limits import check_whole
from outspan.messages import shown
from outspan.plan import Plan
from outspan.text.documents import Documents, read_cached
from outspan.text.executor import Augmented, apply
from outspan.text.models import load_tokenizer
from outspan.text.segments import PAIR
from outspan.text.token_ids import encode_ids
from outspan.text.tokenized import adopt_tokenizer, is_whole_text, read_ids
from outspan.text.tokenizer import Tokenizer, wrap_tokenizer
from outspan.text.tokens import Encoded, Passages, encode
from outspan.transforms.table import TEXT_TRANSFORMS, find

_LENGTH = 1_000_000  # texts are shown whole
Change = tuple[str, str, str]  # "equal", "replace", "delete" or "insert"; the old and the new piece of text


def transform_texts(
    texts: Collection[str],
    names: Sequence[str],
    levels: Sequence[float],
    *,
    model: str = "",
    tokenizer: Any = None,
    wordnet: str | None = None,
    labels: Collection[Any] | None = None,
    cache: Path | str | None = None,
    rows: Sequence[int] | None = None,
    seed: int = 0,
) -> list[str]:
    """Return texts after some transforms, in order. Each text has its own draws.

    Args:
        texts: What is changed: a list, an array or a pandas Series. Words are drawn from these texts, so pass many at once to
            `word_replacement`.
        names: The transforms.
        levels: The level of each transform, in [0, 1].
        model: A Hub name or a folder whose tokenizer is used; "" makes one from the texts.
        tokenizer: A fast tokenizer of transformers, instead of `model`. One that ignores case or spaces returns texts without.
        wordnet: Folder of WordNet's database; None is where Debian installs it.
        labels: The label of each text, for `protected_replacement`, which does not replace words that tell the label. To find
            such words it needs many texts.
        cache: File of `back_translation` and `masked_replacement`, as the recipe key.
        rows: The numbers of the texts, which determine their draws; None: 0, 1, … With `datasets.map(…, with_indices=True)`
            pass its indices, so that every batch has other draws.
        seed: The seed of all draws.

    >>> transform_texts(["I liked the film a lot."], ["keyboard_typos"], [1.0], seed=3) != ["I liked the film a lot."]
    True
    """
    options: dict[str, Any] = {"model": model, "tokenizer": tokenizer, "wordnet": wordnet, "labels": labels, "cache": cache}
    check_steps(names, levels)
    return prepare_texts(texts, names, **options).transform(names, levels, rows=rows, seed=seed)


@dataclass(frozen=True, eq=False)
class Prepared:
    """Tokenized texts, to which transforms can be applied several times."""

    split: Encoded = field(repr=False)
    tokenizer: Tokenizer = field(repr=False)
    has_labels: bool
    has_cache: bool

    def transform(
        self,
        names: Sequence[str],
        levels: Sequence[float],
        *,
        rows: Sequence[int] | None = None,
        seed: int = 0,
        count: int | None = None,
    ) -> list[str]:
        """Return the first `count` texts after some transforms, None: all. The other arguments are as in `transform_texts`."""
        count = len(self.split) if count is None else count
        check_steps(names, levels)
        _check_needs(names, has_labels=self.has_labels, has_cache=self.has_cache)
        return decode(apply(_first(self.split, count), _plan(names, levels, count, rows, seed)), self.tokenizer)


def prepare_texts(
    texts: Collection[str],
    names: Sequence[str],
    *,
    model: str = "",
    tokenizer: Any = None,
    wordnet: str | None = None,
    labels: Collection[Any] | None = None,
    cache: Path | str | None = None,
) -> Prepared:
    """Return tokenized texts for these transforms. The arguments are as in `transform_texts`."""
    texts = check_texts(texts)
    own = adopt_tokenizer(tokenizer) if tokenizer is not None else load_tokenizer(model) if model else _make_tokenizer(texts)
    documents = Documents(texts, _class_numbers(labels, len(texts)))
    has_proposals = "masked_replacement" in names
    cached = (None, None) if cache is None else read_cached(expand_home(cache), has_proposals=has_proposals)
    split = encode(documents, own, length=_LENGTH, wordnet=wordnet, cache=cached[0], proposals=cached[1])
    return Prepared(split, own, labels is not None, cache is not None)


def check_texts(texts: Any) -> list[str]:
    """Return texts as a list. Refuse pairs, and name the first text that is none."""
    if isinstance(texts, str) or not hasattr(texts, "__len__") or not hasattr(texts, "__iter__"):
        raise ValueError(f"texts must be a list of strings, got {shown(texts)}: pass a single text as [text]")
    texts = list(texts)
    if not texts:
        raise ValueError("texts must be a list of strings, got an empty list")
    for number, text in enumerate(texts):
        if isinstance(text, str) and PAIR in text:
            raise ValueError("pairs of texts cannot be shown: name one of the two columns")
        if not is_whole_text(text):
            raise ValueError(f"texts must be strings that are not empty, got {shown(text)} at position {number}: leave it out")
    return texts


def _class_numbers(labels: Any, count: int) -> torch.Tensor:
    """Return the number of the class of each text; 0 without labels. Equal labels are a class."""
    if labels is None:
        return torch.zeros(count, dtype=torch.int64)
    if isinstance(labels, str) or not hasattr(labels, "__len__") or len(labels) != count:
        got = f"{len(labels)} of them" if hasattr(labels, "__len__") and not isinstance(labels, str) else shown(labels)
        raise ValueError(f"labels must be one per text, got {got} for {count} texts")
    names = [repr(label) for label in (labels.tolist() if hasattr(labels, "tolist") else labels)]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return torch.tensor([numbers[name] for name in names])


def transform_tokens(
    batch: Any,
    names: Sequence[str],
    levels: Sequence[float],
    *,
    tokenizer: Any,
    length: int | None = None,
    wordnet: str | None = None,
    labels: Collection[Any] | None = None,
    rows: Sequence[int] | None = None,
    seed: int = 0,
) -> dict[str, list[list[int]]]:
    """Return texts that are tokens already after some transforms: `input_ids` and `attention_mask`, without padding.

    Level 0 returns what the tokenizer made, exactly.

    Args:
        batch: `input_ids`, and `attention_mask` if they are padded: lists, arrays or tensors, as a tokenizer of transformers,
            `datasets.map(…, batched=True)` or a data loader returns them. Other keys have no effect.
        names: The transforms.
        levels: The level of each transform, in [0, 1].
        tokenizer: The fast tokenizer of transformers that made the tokens.
        length: Maximum number of tokens, with special tokens; None: that of the tokenizer.
        wordnet: As for `transform_texts`.
        labels: As for `transform_texts`.
        rows: As for `transform_texts`.
        seed: The seed of all draws.
    """
    ids = batch["input_ids"] if hasattr(batch, "keys") and "input_ids" in batch else None
    if ids is None:
        raise ValueError("batch must have input_ids, such as tokenizer(texts) returns")
    if hasattr(ids, "ndim") and ids.ndim != 2:
        raise ValueError(f"input_ids must have shape [texts, tokens], got {list(ids.shape)}")
    if isinstance(ids, str) or not hasattr(ids, "__len__"):
        raise ValueError(f"input_ids must be a list of lists of tokens, got {shown(ids)}")
    check_steps(names, levels)
    _check_needs(names, has_labels=labels is not None, has_cache=False)
    count = len(ids)
    plan, own = _plan(names, levels, count, rows, seed), adopt_tokenizer(tokenizer)
    documents = read_ids(ids, batch.get("attention_mask"), own, column="input_ids")
    most = min(_LENGTH, tokenizer.model_max_length) if length is None else check_whole("length", length, 1)
    split = encode_ids(documents, _class_numbers(labels, count), own, length=most, truncate="head", wordnet=wordnet)
    done = Augmented(_first(split, count), plan)
    pairs = zip(done.tokens.tolist(), done.lengths.tolist(), strict=True)
    changed = [[*own.before, *tokens[:size], *own.after] for tokens, size in pairs]
    out = {"input_ids": changed, "attention_mask": [[1] * len(tokens) for tokens in changed]}
    if "token_type_ids" in batch:
        out["token_type_ids"] = [[0] * len(tokens) for tokens in changed]
    return out


def check_steps(names: Sequence[str], levels: Sequence[float]) -> None:
    """Refuse transforms that are not those of texts, and levels that are not one number per transform."""
    if isinstance(names, str) or not isinstance(names, Sequence) or not isinstance(levels, Sequence):
        raise ValueError(f"names and levels must be lists, got {shown(names)} and {shown(levels)}")
    if len(names) != len(levels):
        raise ValueError(f"levels must have one number per transform, got {len(levels)} for {len(names)}")
    if wrong := [level for level in levels if not isinstance(level, Real)]:
        raise ValueError(f"levels must be numbers, got {shown(wrong[0])}")
    for name in names:
        find(name, TEXT_TRANSFORMS)


def _check_needs(names: Sequence[str], *, has_labels: bool, has_cache: bool) -> None:
    """Refuse transforms that need labels or a cache, without them."""
    for name in names:
        if TEXT_TRANSFORMS[name].needs in ("cache", "proposals") and not has_cache:
            raise ValueError(f"{name} needs a cache of sentences: pass it to transform_texts with cache=, or with --cache")
        if name == "protected_replacement" and not has_labels:
            raise ValueError(f"{name} needs the labels of the texts: pass them with labels=, or with --label-column")


def _plan(names: Sequence[str], levels: Sequence[float], count: int, rows: Sequence[int] | None, seed: int) -> Plan:
    """Return the plan that applies these transforms to each text, with draws of its own."""
    if not isinstance(rows, Sequence | None):
        raise ValueError(f"rows must be a list of whole numbers, got {shown(rows)}")
    if rows is not None and len(rows) != count:
        raise ValueError(f"rows must have one number per text, got {len(rows)} for {count} texts")
    generators = (rng.generator(seed, "apply", row) for row in (range(count) if rows is None else rows))
    places = [generator.random((len(names), 4)).tolist() for generator in generators]
    return Plan.of([list(names)] * count, levels=[list(levels)] * count, places=places)


def _first(split: Encoded, count: int) -> Passages:
    """Return the first documents as one batch."""
    return next(split.batches([torch.arange(count)], torch.device("cpu")))[0]


def decode(tokens: torch.Tensor, tokenizer: Tokenizer) -> list[str]:
    """Return the texts of rows of tokens, without special tokens and padding."""
    first, last = len(tokenizer.before), len(tokenizer.after)
    texts = []
    for row in tokens.tolist():
        while row and row[-1] == tokenizer.padding != (tokenizer.after or (-1,))[-1]:
            row.pop()
        texts.append(tokenizer.backend.decode(row[first : len(row) - last], skip_special_tokens=False).strip())
    return texts


def differences(old: str, new: str) -> list[Change]:
    """Return the pieces in which two texts are equal or differ, word by word.

    >>> differences("a dull film", "a film indeed")
    [('equal', 'a', 'a'), ('delete', ' dull', ''), ('equal', ' film', ' film'), ('insert', '', ' indeed')]
    """
    left, right = (re.findall(r"\s*(?:\w+|[^\w\s])|\s+$", text) for text in (old, new))
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
    return [(tag, "".join(left[a:b]), "".join(right[c:d])) for tag, a, b, c, d in matcher.get_opcodes()]


def _make_tokenizer(texts: Sequence[str]) -> Tokenizer:
    """Return a tokenizer that has the words of the texts as tokens, and bytes for other words. It loses nothing."""
    try:
        from tokenizers import Tokenizer as Backend  # pyright: ignore[reportMissingImports]
        from tokenizers import decoders, models, pre_tokenizers, trainers  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ValueError("transforms of texts need tokenizers: pip install 'outspan[text]'") from None
    backend: Any = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    options: dict[str, Any] = {"special_tokens": ["<pad>"], "initial_alphabet": pre_tokenizers.ByteLevel.alphabet()}
    # Twice: the trainer leaves out pairs that occur once.
    backend.train_from_iterator([*texts, *texts], trainers.BpeTrainer(vocab_size=100_000, show_progress=False, **options))
    return wrap_tokenizer(backend, 0)
