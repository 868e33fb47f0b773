"""Columns of texts and of tokens, for all kinds of tokenizers of Hugging Face."""

import numpy as np
import pytest
import torch

from made_tokenizers import KINDS, TEXTS, build
from outspan import Plan
from outspan.text.executor import PadTokens, apply
from outspan.text.preview import transform_texts, transform_tokens
from outspan.text.tokenized import tokenize
from outspan.transforms.table import TEXT_TRANSFORMS

pytest.importorskip("transformers")
COLUMNS = {"text": TEXTS, "label": [0, 1, 0]}
WITHOUT_NEEDS = [name for name, transform in TEXT_TRANSFORMS.items() if transform.needs == ""]


@pytest.fixture(scope="module", params=KINDS)
def own(request):
    """A tokenizer of transformers of each kind."""
    return build(request.param)


def unpadded(tokens: torch.Tensor) -> list[list[int]]:
    return [[token for token in row if token] for row in tokens.tolist()]


def batch_of(data) -> torch.Tensor:
    return data.inputs(data.collate([data[row] for row in range(len(data))]))


def test_texts_and_tokens_without_augmentation_are_those_of_the_tokenizer(own):
    expected = own(TEXTS)["input_ids"]
    padded = {**own(TEXTS, padding=True, return_tensors="pt"), "label": torch.tensor([0, 1, 0])}
    for data in (tokenize(COLUMNS, own, length=200), tokenize(padded, own, length=200, text="input_ids")):
        assert unpadded(PadTokens()(batch_of(data))) == expected
    same = transform_tokens(padded, WITHOUT_NEEDS, [0.0] * len(WITHOUT_NEEDS), tokenizer=own, labels=padded["label"])
    assert same["input_ids"] == expected


def test_words_and_sentences_of_tokens_are_those_of_the_text(own):
    by_text = tokenize(COLUMNS, own, length=200).texts.corpus
    by_tokens = tokenize({**COLUMNS, **own(TEXTS)}, own, length=200, text="input_ids").texts.corpus
    separate = by_text.bank.sees_case  # WordPiece here writes "don ' t" and no accents
    assert np.diff(by_tokens.starts).tolist() == [3, 3 if separate else 4, 1]
    words, expected = ({word.strip() for word in corpus.bank.vocabulary.words} for corpus in (by_tokens, by_text))
    assert words == expected or not separate
    assert np.array_equal(by_text.spans, by_tokens.spans) or not separate


def test_operations_on_tokens_change_words_and_keep_special_tokens(own):
    ids = own(TEXTS)
    data = tokenize({**COLUMNS, **ids}, own, length=40, text="input_ids")
    before, after = data.texts.corpus.tokenizer.before, data.texts.corpus.tokenizer.after
    for name in WITHOUT_NEEDS:
        plan = Plan.of([[name]] * 3, levels=[[1.0]] * 3, places=[[[0.3, 0.1, 0.2, i / 3]] for i in range(3)])
        rows = unpadded(apply(batch_of(data), plan))
        assert all(
            len(row) <= 40 and row[: len(before)] == [*before] and row[len(row) - len(after) :] == [*after] for row in rows
        )
    swapped = transform_tokens(ids, ["word_swap"], [1.0], tokenizer=own, seed=3)["input_ids"]
    for row, old in zip(swapped, ids["input_ids"], strict=True):
        assert row != old
        letters = [sorted(own.decode(some, skip_special_tokens=True).replace(" ", "")) for some in (row, old)]
        assert letters[0] == letters[1]


def test_draws_depend_on_the_rows_and_not_on_the_batch(own):
    names, levels = ["word_swap", "punctuation_insertion", "keyboard_typos"], [0.5, 1.0, 1.0]
    ids, options = own(TEXTS), {"tokenizer": own, "seed": 5}
    whole = transform_tokens(ids, names, levels, **options)["input_ids"]
    texts = transform_texts(TEXTS, names, levels, **options)
    for row in range(3):
        part = {"input_ids": [ids["input_ids"][row]]}
        assert transform_tokens(part, names, levels, rows=[row], **options)["input_ids"] == [whole[row]]
        assert transform_texts([TEXTS[row]], names, levels, rows=[row], **options) == [texts[row]]
    assert transform_tokens(ids, names, levels, rows=[7, 8, 9], **options)["input_ids"] != whole


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (["a film"], {}, r"data must be a split of datasets or another mapping of columns, got list: .*\{\"text\": texts"),
        ("a film", {}, "data must be a split of datasets .* got str"),
        (None, {}, "data must be a split of datasets .* got NoneType"),
        ({"text": "a film", "label": [0]}, {}, "no column 'text'"),
        ({"text": ["a", "b"], "label": [0]}, {}, "the columns must be equally long, got 2 texts and 1 labels"),
        ({"text": [], "label": []}, {}, "the data set has no rows"),
        ({"text": ["a", "", None, " "], "label": [0] * 4}, {}, r"texts, got '' in row 1; 3 of 4 rows have none \(1, 2, 3\)"),
        ({"text": ["a"], "label": [0.5]}, {}, "must have class indices, got 0.5 in row 0: regression is not supported"),
        ({"text": ["a"], "label": [[0, 1]]}, {}, r"got \[0, 1\] in row 0: a label per token or several labels per text"),
        ({"text": ["a"], "label": np.array([[0, 1]])}, {}, "a label per token or several labels per text are not"),
        ({"text": ["a"], "label": ["good"]}, {}, "got 'good' in row 0: number the classes from 0, e.g. with class_encode"),
        ({"text": ["a", "b"], "label": [0, -1]}, {}, "got -1 in row 1: number the classes from 0"),
        ({"text": ["a"], "label": [2**40]}, {}, "got 1099511627776 in row 0: number the classes from 0 to at most 999"),
        ({"text": ["a"], "label": torch.tensor(0)}, {}, "no column 'label'"),
        ({"text": ["\ud800"], "label": [0]}, {}, "must have texts, got"),
        ({"text": ["a"], "label": [0]}, {"wordnet": 3}, "wordnet must be a folder, got 3"),
        ({"text": ["a"], "label": [None]}, {}, "must have class indices, got None"),
        ({"text": [[5, "x"]], "label": [0]}, {}, "must have texts, or lists of tokens, got 'x' in row 0"),
        ({"text": [[5.0]], "label": [0]}, {}, "must have texts, or lists of tokens, got 5.0 in row 0"),
        ({"text": [7], "label": [0]}, {}, "must have texts, or lists of tokens, got 7 in row 0"),
        ({"text": [[5, 99_999]], "label": [0]}, {}, r"row 0: no token 99999, the vocabulary has \d+ tokens: was"),
        ({"text": [[5, -1]], "label": [0]}, {}, "row 0: no token -1"),
        ({"text": [[]], "label": [0]}, {}, r"must have tokens besides special ones, got \[\] in row 0"),
        ({"text": [[2, 0, 3]], "label": [0]}, {}, "row 0 has special tokens inside"),
        ({"text": [[2, 9, 3, 8, 3]], "label": [0]}, {}, "row 0 has special tokens inside, as pairs of texts have"),
        ({"text": [[9]], "label": [0], "attention_mask": [[1, 1]]}, {}, "attention_mask, row 0: 2 numbers for 1 tokens"),
        ({"text": [[9]], "label": [0], "attention_mask": []}, {}, "attention_mask must have one row per text, got 0 for 1"),
        ({"text": ["a"], "label": [0]}, {"length": 2}, "length must be above the 2 special tokens, got 2"),
        ({"text": ["a"], "label": [0]}, {"length": 0}, "length must be at least 1"),
        ({"text": ["a"], "label": [0]}, {"length": None}, "length must be a whole number"),
        ({"text": ["a"], "label": [0]}, {"truncate": "left"}, "truncate must be one of head, tail"),
    ],
)  # fmt: skip
def test_wrong_columns_are_refused(unchecked, data, options, message):
    with pytest.raises(ValueError, match=message):
        tokenize(data, build("byte-level BPE"), **({"length": 16} | options))


def test_wrong_tokenizers_and_batches_are_refused(unchecked):
    own = build("byte-level BPE")
    for wrong, name in ((None, "NoneType"), ("bert", "str"), (own.backend_tokenizer, "Tokenizer")):
        with pytest.raises(ValueError, match=f"tokenizer must be a fast tokenizer of transformers, got {name}"):
            tokenize(COLUMNS, wrong, length=16)
    data = tokenize(COLUMNS, own, length=16)
    for wrong in ({"input_ids": 1}, None, [1], {"rows": [0]}):
        with pytest.raises(ValueError, match=r"the batch must have the rows of texts, got .*: pass collate_fn=train.collate"):
            data.inputs(wrong)
    own.pad_token = "</s>"  # noqa: S105
    with pytest.raises(ValueError, match=r"the padding token '</s>' is also at the ends of texts.*add_special_tokens"):
        tokenize(COLUMNS, own, length=16)
    own.pad_token = None
    with pytest.raises(ValueError, match=r"tokenizer has no token for padding: set tokenizer.pad_token = tokenizer.eos_token"):
        tokenize(COLUMNS, own, length=16)


@pytest.mark.parametrize(
    ("batch", "options", "message"),
    [
        (None, {}, "batch must have input_ids"),
        ({"text": ["a"]}, {}, "batch must have input_ids"),
        ({"input_ids": torch.tensor([5, 6])}, {}, r"input_ids must have shape \[texts, tokens\], got \[2\]"),
        ({"input_ids": torch.zeros(1, 2)}, {}, "must have texts, or lists of tokens, got 0.0 in row 0"),
        ({"input_ids": 5}, {}, "input_ids must be a list of lists of tokens"),
        ({"input_ids": [[5]]}, {"rows": [1, 2]}, "rows must have one number per text, got 2 for 1 texts"),
        ({"input_ids": [[5]]}, {"names": "word_swap"}, "names and levels must be lists, got 'word_swap'"),
        ({"input_ids": [[5]]}, {"names": ["word_swap", "casing"]}, "levels must have one number per transform, got 1 for 2"),
        ({"input_ids": [[5]]}, {"names": ["rotate"]}, "unknown transform 'rotate'"),
        ({"input_ids": [[5]]}, {"names": ["back_translation"]}, "back_translation needs a cache"),
        ({"input_ids": [[5]]}, {"names": ["protected_replacement"]}, "needs the labels of the texts: pass them with labels="),
        ({"input_ids": [[5]]}, {"levels": [2.0]}, r"level of 'word_swap' must lie in \[0, 1\], got 2"),
        ({"input_ids": [[5]]}, {"levels": ["1"]}, "levels must be numbers, got '1'"),
        ({"input_ids": [[5]]}, {"length": 0}, "length must be at least 1"),
    ],
)
def test_wrong_batches_of_tokens_are_refused(unchecked, batch, options, message):
    own = build("byte-level BPE")
    with pytest.raises(ValueError, match=message):
        transform_tokens(batch, **({"names": ["word_swap"], "levels": [1.0], "tokenizer": own} | options))
