"""Apply transforms to texts or tokens outside of training, and show where texts differ."""

import difflib
import re
from collections.abc import Sequence
from numbers import Real
from typing import Any

import torch

from outspan import rng
from outspan.limits import check_whole
from outspan.messages import shown
from outspan.plan import Plan
from outspan.text.documents import Documents
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
    texts: Sequence[str],
    names: Sequence[str],
    levels: Sequence[float],
    *,
    model: str = "",
    tokenizer: Any = None,
    wordnet: str | None = None,
    rows: Sequence[int] | None = None,
    seed: int = 0,
) -> list[str]:
    """Return texts after some transforms, in order. Each text has its own draws.

    Args:
        texts: What is changed. Words are drawn from these texts, so pass many at once to `word_replacement`.
        names: The transforms.
        levels: The level of each transform, in [0, 1].
        model: A Hub name or a folder whose tokenizer is used; "" makes one from the texts.
        tokenizer: A fast tokenizer of transformers, instead of `model`. One that ignores case or spaces returns texts without.
        wordnet: Folder of WordNet's database; None is where Debian installs it.
        rows: The numbers of the texts, which determine their draws; None: 0, 1, … With `datasets.map(…, with_indices=True)`
            pass its indices, so that every batch has other draws.
        seed: The seed of all draws.

    >>> transform_texts(["I liked the film a lot."], ["keyboard_typos"], [1.0], seed=3) != ["I liked the film a lot."]
    True
    """
    plan = _plan(names, levels, _count(texts, "texts"), rows, seed)
    if isinstance(texts, str) or not texts or not all(map(is_whole_text, texts)):
        raise ValueError("texts must be a list of strings that are not empty")
    if any(PAIR in text for text in texts):
        raise ValueError("pairs of texts cannot be shown: name one of the two columns")
    own = adopt_tokenizer(tokenizer) if tokenizer is not None else load_tokenizer(model) if model else _make_tokenizer(texts)
    documents = Documents(list(texts), torch.arange(len(texts)) % 2)
    split = encode(documents, own, length=_LENGTH, wordnet=wordnet)
    return decode(apply(_whole(split), plan), own)


def transform_tokens(
    batch: Any,
    names: Sequence[str],
    levels: Sequence[float],
    *,
    tokenizer: Any,
    length: int | None = None,
    wordnet: str | None = None,
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
        rows: As for `transform_texts`.
        seed: The seed of all draws.
    """
    ids = batch["input_ids"] if hasattr(batch, "keys") and "input_ids" in batch else None
    if ids is None:
        raise ValueError("batch must have input_ids, such as tokenizer(texts) returns")
    if hasattr(ids, "ndim") and ids.ndim != 2:
        raise ValueError(f"input_ids must have shape [texts, tokens], got {list(ids.shape)}")
    count = _count(ids, "input_ids")
    plan, own = _plan(names, levels, count, rows, seed), adopt_tokenizer(tokenizer)
    documents = read_ids(ids, batch.get("attention_mask"), own, column="input_ids")
    most = min(_LENGTH, tokenizer.model_max_length) if length is None else check_whole("length", length, 1)
    split = encode_ids(documents, torch.arange(count) % 2, own, length=most, truncate="head", wordnet=wordnet)
    done = Augmented(_whole(split), plan)
    pairs = zip(done.tokens.tolist(), done.lengths.tolist(), strict=True)
    changed = [[*own.before, *tokens[:size], *own.after] for tokens, size in pairs]
    out = {"input_ids": changed, "attention_mask": [[1] * len(tokens) for tokens in changed]}
    if "token_type_ids" in batch:
        out["token_type_ids"] = [[0] * len(tokens) for tokens in changed]
    return out


def _plan(names: Sequence[str], levels: Sequence[float], count: int, rows: Sequence[int] | None, seed: int) -> Plan:
    """Return the plan that applies these transforms to each text, with draws of its own."""
    if isinstance(names, str) or not isinstance(names, Sequence) or not isinstance(levels, Sequence):
        raise ValueError(f"names and levels must be lists, got {shown(names)} and {shown(levels)}")
    if len(names) != len(levels):
        raise ValueError(f"levels must have one number per transform, got {len(levels)} for {len(names)}")
    if wrong := [level for level in levels if not isinstance(level, Real)]:
        raise ValueError(f"levels must be numbers, got {shown(wrong[0])}")
    for name in names:
        if find(name, TEXT_TRANSFORMS).needs in ("cache", "proposals"):
            raise ValueError(f"{name} needs a cache of sentences, which is for training: it cannot be applied here")
    if not isinstance(rows, Sequence | None):
        raise ValueError(f"rows must be a list of whole numbers, got {shown(rows)}")
    if rows is not None and len(rows) != count:
        raise ValueError(f"rows must have one number per text, got {len(rows)} for {count} texts")
    generators = (rng.generator(seed, "apply", row) for row in (range(count) if rows is None else rows))
    places = [generator.random((len(names), 4)).tolist() for generator in generators]
    return Plan.of([list(names)] * count, levels=[list(levels)] * count, places=places)


def _count(texts: Any, name: str) -> int:
    if isinstance(texts, str) or not hasattr(texts, "__len__"):
        raise ValueError(f"{name} must be a list of {'strings that are not empty' if name == 'texts' else 'lists of tokens'}")
    return len(texts)


def _whole(split: Encoded) -> Passages:
    """Return all documents as one batch."""
    return next(split.batches([torch.arange(len(split))], torch.device("cpu")))[0]


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
