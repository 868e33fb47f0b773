"""Show what transforms do to texts: the changed texts, and where they differ."""

import difflib
import re
from collections.abc import Sequence
from typing import Any

import torch

from outspan import rng
from outspan.plan import Plan
from outspan.text.documents import Documents
from outspan.text.executor import apply
from outspan.text.models import load_tokenizer
from outspan.text.tokens import Tokenizer, encode, wrap_tokenizer
from outspan.transforms.table import TEXT_TRANSFORMS, find

_LENGTH = 1_000_000  # texts are shown whole
Change = tuple[str, str, str]  # "equal", "replace", "delete" or "insert"; the old and the new piece of text


def transform_texts(
    texts: Sequence[str],
    names: Sequence[str],
    levels: Sequence[float],
    *,
    model: str = "",
    wordnet: str | None = None,
    seed: int = 0,
) -> list[str]:
    """Return texts after some transforms, in order. Each text has its own draws.

    `model` is a Hub name or a folder whose tokenizer is used; "" makes one from the texts. A tokenizer that ignores case or
    spaces returns texts without them.

    >>> transform_texts(["I liked the film a lot."], ["keyboard_typos"], [1.0], seed=3) != ["I liked the film a lot."]
    True
    """
    for name in names:
        if find(name, TEXT_TRANSFORMS).needs == "cache":
            raise ValueError(f"{name} needs a cache of translated sentences: it cannot be shown here")
    if not texts or isinstance(texts, str) or not all(isinstance(text, str) and text.strip() for text in texts):
        raise ValueError("texts must be a list of strings that are not empty")
    tokenizer = load_tokenizer(model) if model else _make_tokenizer(texts)
    count = len(texts)
    split = encode(Documents(list(texts), torch.arange(count) % 2), tokenizer, length=_LENGTH, wordnet=wordnet)
    places = [rng.generator(seed, "apply", row).random((len(names), 4)).tolist() for row in range(count)]
    plan = Plan.of([list(names)] * count, levels=[list(levels)] * count, places=places)
    passages, _ = next(split.batches([torch.arange(count)], torch.device("cpu")))
    return decode(apply(passages, plan), tokenizer)


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
