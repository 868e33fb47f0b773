"""Words that a masked language model proposes in the place of others: made once per sentence, stored in the cache."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from outspan.messages import shown
from outspan.text.cache import MASKED, OnBatch, fill_cache
from outspan.text.models import load_mask_model
from outspan.text.token_ids import surfaces
from outspan.text.tokenized import adopt_tokenizer

_STRIDE = 7  # one word in 7 is masked at the same time: 15 %, as in the training of BERT
_MOST = 8  # proposals per word
_LIKELY = 64  # number of most probable tokens of which the proposals are taken
_AT_ONCE = 16  # number of sentences; each is evaluated up to 7 times
_WORD = re.compile(r"[^\W_](?:\S*[^\W_])?")  # what white space separates, without the punctuation at its ends


def propose_words(
    sentences: Iterable[str], out: Path, *, model: str, on_batch: OnBatch = lambda done, total: None
) -> tuple[int, int]:
    """Store the words that a masked language model proposes for each word of the sentences that the cache does not have.

    Return how many sentences of this model the cache has, and how many of them failed. Like `backtranslate` it appends to the
    file, resumes, and stops if `on_batch` returns True. `model` is a Hub name or a folder.
    """
    return fill_cache(sentences, out, {"engine": MASKED, "pair": model}, lambda: MaskedModel(model), on_batch)


class MaskedModel:
    """A fill-mask model of transformers. Its result for a sentence is a list of proposals for each word."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tokenizer, self.model = load_mask_model(name)
        self.mask = self.tokenizer.mask_token
        if self.mask is None:
            raise ValueError(f"model {shown(name)} has no token for masks: it is not a masked language model")
        own = adopt_tokenizer(self.tokenizer)
        texts = surfaces(own.vocabulary.tolist(), own)
        words = {token: text.strip() for token, text in texts.items() if text.startswith(" ") and text.strip().isalpha()}
        if not words:
            raise ValueError(f"model {shown(name)} has no tokens that are words: it cannot propose any")
        self.tokens, self.words = np.array([*words]), [*words.values()]

    def __call__(self, sentences: Sequence[str]) -> Iterator[list[list[str]] | None]:
        """Return the proposals for each word, the most probable first; None for a sentence that has the mask itself."""
        for i in range(0, len(sentences), _AT_ONCE):
            part = sentences[i : i + _AT_ONCE]
            spans = [[] if self.mask in text else [match.span() for match in _WORD.finditer(text)] for text in part]
            inputs = [(row, first) for row, words in enumerate(spans) for first in range(min(_STRIDE, len(words)))]
            masked = [self._hide(part[row], spans[row][first::_STRIDE]) for row, first in inputs]
            results: list[Any] = [
                None if self.mask in text else [[] for _ in words] for text, words in zip(part, spans, strict=True)
            ]
            for (row, first), likely in zip(inputs, self._predict(masked), strict=True):
                for number, words in zip(range(first, len(spans[row]), _STRIDE), likely, strict=False):
                    begin, end = spans[row][number]
                    results[row][number] = _fitting(part[row][begin:end], words)
            yield from results

    def close(self) -> None:
        """Do nothing: there are no processes to end."""

    def _hide(self, text: str, spans: Sequence[tuple[int, int]]) -> str:
        """Return a text in which some words are the mask."""
        ends = [0, *(end for _, end in spans)]
        kept = [text[start:begin] for start, (begin, _) in zip(ends, spans, strict=False)]
        return self.mask.join([*kept, text[ends[-1] :]])

    def _predict(self, texts: Sequence[str]) -> Iterator[list[list[str]]]:
        """Return the likely words for each mask of each text. Masks after the model's maximum length have none."""
        most = min(self.tokenizer.model_max_length, getattr(self.model.config, "max_position_embeddings", None) or 512)
        options = {"padding": True, "truncation": True, "max_length": most, "return_tensors": "pt"}
        remaining = iter(texts)
        while part := list(islice(remaining, 64)):
            inputs = self.tokenizer(part, **options).to(self.model.device)
            with torch.inference_mode():
                logits = self.model(**inputs).logits
            is_mask = inputs["input_ids"] == self.tokenizer.mask_token_id
            chances = logits[is_mask][:, torch.from_numpy(self.tokens).to(logits.device)]
            best = chances.topk(min(_LIKELY, len(self.tokens))).indices.tolist()
            words = iter([self.words[token] for token in row] for row in best)
            for count in is_mask.sum(1).tolist():
                yield list(islice(words, count))


def _fitting(word: str, proposals: Sequence[str]) -> list[str]:
    """Return the first proposals other than the word, capitalized as it is."""
    others = [other for other in proposals if other.lower() != word.lower()]
    capitalized = (other[:1].upper() + other[1:] if word[0].isupper() else other for other in others)
    return list(islice(dict.fromkeys(capitalized), _MOST))
