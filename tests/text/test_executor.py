"""Plans applied to texts: they change only the tokens of the text, within its maximum length."""

import math

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outspan import Plain, Plan, apply, rng, uniform
from outspan.text import executor
from outspan.text.backtranslation import read_cache
from outspan.text.documents import Documents
from outspan.text.executor import PadTokens
from outspan.text.executor import apply as apply_to_text
from outspan.text.tokenizer import wrap_tokenizer
from outspan.text.tokens import Passages, encode
from outspan.transforms.normalize import DEFAULT_PREPROCESS, Normalize
from outspan.transforms.table import TEXT_TRANSFORMS, Transform
from reviews import SPECIAL, UNUSED, WORDS, make_reviews

CPU = torch.device("cpu")
WITHOUT_NEEDS = tuple(name for name, transform in TEXT_TRANSFORMS.items() if transform.needs in ("", "cache"))


def split_of(texts, tokenizer, **options):
    return encode(Documents(list(texts), torch.zeros(len(texts), dtype=torch.int64)), tokenizer, **({"length": 48} | options))


def whole(split) -> Passages:
    return next(split.batches([torch.arange(len(split))], CPU))[0]


def words_of(row: torch.Tensor) -> str:
    return " ".join(WORDS[i] for i in row.tolist())


def reviews(count: int = 20) -> list[str]:
    return [text for text, _ in make_reviews(count)]


def test_without_a_plan_tokens_equal_those_of_the_tokenizer(tokenizer):
    tokens = PadTokens()(whole(split_of(reviews(), tokenizer)))
    for row, text in zip(tokens.tolist(), reviews(), strict=True):
        ids = tokenizer.backend.encode(text).ids
        assert row == ids + [0] * (len(row) - len(ids))


@pytest.mark.parametrize(
    ("truncate", "kept"), [("head", "the a film plot"), ("tail", "is and with scene"), ("head+tail", "the and with scene")]
)
def test_long_documents_are_truncated_as_requested(truncate, kept, tokenizer):
    split = split_of(["the a film plot actor was is and with scene", "the a"], tokenizer, length=6, truncate=truncate)
    tokens = PadTokens()(whole(split))
    assert words_of(tokens[0]) == f"[CLS] {kept} [SEP]"
    assert words_of(tokens[1]) == "[CLS] the a [SEP] [PAD] [PAD]"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), depth=st.integers(1, 3), length=st.integers(3, 60))
def test_special_tokens_padding_and_length_are_unchanged(tokenizer, cache, seed, depth, length):
    split = split_of(reviews(6), tokenizer, length=length, cache=read_cache(cache))
    plan = uniform(depth, transforms=WITHOUT_NEEDS, probability=1.0)(6, rng=rng.generator(seed, "augment"), candidates=2)
    tokens = apply_to_text(whole(split), plan)
    assert tokens.shape[0] == 12
    assert tokens.shape[1] <= length
    assert (tokens[:, 0] == 2).all()
    ends = (tokens == 3).nonzero()
    assert len(ends) == 12  # one [SEP] per row
    for row, (_, end) in zip(tokens, ends.tolist(), strict=True):
        assert (row[end + 1 :] == 0).all()
        assert not {*row[1:end].tolist()} & {*range(len(SPECIAL) + len(UNUSED))} - {1}  # no special token is inserted
    again = apply_to_text(whole(split), plan[torch.arange(5, 12)])
    width = min(again.shape[1], tokens.shape[1])
    assert torch.equal(again[:, :width], tokens[5:, :width])
    assert not again[:, width:].any()


def test_a_level_of_zero_changes_nothing(tokenizer, cache):
    split = split_of(reviews(), tokenizer, cache=read_cache(cache))
    expected = PadTokens()(whole(split))
    for name in TEXT_TRANSFORMS:  # also those that need WordNet, or a tokenizer that sees the case
        plan = Plan.of([[name]] * 20, levels=[[0.0]] * 20, places=[[[0.1, 0.2, 0.3, 0.4]]] * 20)
        assert torch.equal(apply_to_text(whole(split), plan), expected)


def test_back_translation_replaces_whole_sentences(tokenizer, cache):
    texts = reviews(1)
    split = split_of(texts, tokenizer, cache=read_cache(cache), length=64)
    plan = Plan.of([["back_translation"]], levels=[[1.0]])
    backs = " ".join(" ".join(reversed(one.split())) + " ." for one in texts[0].rstrip(".").split(". "))
    assert apply_to_text(whole(split), plan)[0].tolist() == tokenizer.backend.encode(backs).ids + [0] * (
        apply_to_text(whole(split), plan).shape[1] - len(tokenizer.backend.encode(backs).ids)
    )
    halves = Plan.of([["back_translation"]] * 400, levels=[[0.5]] * 400, source=[0] * 400,
                     places=[[[i / 400, 0.0, 0.0, 0.0]] for i in range(400)])  # fmt: skip
    first = {tuple(row[:4]) for row in apply_to_text(whole(split), halves).tolist()}
    assert len(first) == 2  # the first sentence is unchanged or translated, never partly translated


def test_weights_match_the_formula_of_uda(tokenizer):
    texts = ["the film the plot", "the music wonderful unlikely", "the actor ."]
    split = split_of(texts, tokenizer)
    idf = {"the": 0.0, **dict.fromkeys(("film", "plot", "music", "wonderful", "actor"), math.log(3))}
    tfidf = [idf["film"] / 4 if word != "the" else 0.0 for word in ("the", "film", "the", "plot")]
    low = [max(tfidf) - value for value in tfidf]
    np.testing.assert_allclose(split.corpus.weights[:4], np.array(low) / np.mean(low), rtol=1e-6)
    assert split.corpus.weights[-1] == 0  # a full stop
    assert not split.corpus.weights[7:10].any()  # un ##like ##ly: a piece of a word is never replaced alone
    law = split.corpus.replacements
    chance = np.diff([0.0, *law.cumulative])
    by_word = dict(zip([WORDS[i] for i in law.words], chance, strict=True))
    assert by_word["the"] == pytest.approx(1.0)  # all other words have the highest score, so they are never inserted
    assert by_word["film"] == pytest.approx(0.0)
    assert set(by_word) == {"the", "film", "plot", "music", "wonderful", "actor"}


def test_only_whole_words_have_weights(tokenizer):
    split = split_of(["the film . . . .", "the plot"], tokenizer)  # the full stop has the highest TF-IDF, but is not a word
    np.testing.assert_allclose(split.corpus.weights[:6], [2, 0, 0, 0, 0, 0], atol=1e-6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.sampled_from(WORDS[7:26]), min_size=1, max_size=5).map(" ".join), min_size=1, max_size=5))
def test_the_probabilities_of_inserted_words_sum_to_one(tokenizer, texts):
    assert split_of(texts, tokenizer).corpus.replacements.cumulative[-1] == pytest.approx(1.0)


def test_batches_have_texts_of_similar_length_and_cover_all_rows(tokenizer):
    split = split_of(reviews(201), tokenizer)
    order = torch.from_numpy(rng.generator(0, "order", 0).permutation(201))
    batches = split.divide(order, 4)
    assert [len(rows) for rows in batches].count(4) == 50
    assert sorted(int(row) for rows in batches for row in rows) == list(range(201))
    lengths = torch.from_numpy(split.corpus.lengths)
    spread = sum(int(lengths[rows].max() - lengths[rows].min()) for rows in batches)
    plain = sum(int(lengths[rows].max() - lengths[rows].min()) for rows in order.split(4))
    assert spread < plain / 2
    firsts = [float(lengths[rows].float().mean()) for rows in batches]
    assert firsts != sorted(firsts)  # but batches are not sorted by length


def test_every_epoch_has_different_batches(tokenizer):
    split = split_of(reviews(130), tokenizer)
    lengths = torch.from_numpy(split.corpus.lengths)
    batch_sets, final_lengths = [], []
    for epoch in range(30):
        batches = split.divide(torch.from_numpy(rng.generator(0, "order", epoch).permutation(130)), 8)
        batch_sets += [frozenset(rows.tolist()) for rows in batches]
        final_lengths.append(float(lengths[batches[-1]].float().mean()))
    assert len(set(batch_sets)) > 0.95 * len(batch_sets)
    mean = float(lengths.float().mean())
    assert sum(final_lengths) / 30 == pytest.approx(mean, rel=0.15)  # the smaller final batch has texts of all lengths


def test_special_tokens_in_a_document_are_text(tokenizer):
    tokens = PadTokens()(whole(split_of(["the [SEP] film [PAD] [CLS]"], tokenizer)))[0].tolist()
    assert (tokens.count(2), tokens.count(3)) == (1, 1)
    assert 0 not in tokens[: tokens.index(3)]


def test_images_and_texts_refuse_transforms_of_the_other_type(tokenizer):
    with pytest.raises(ValueError, match=r"unknown transform 'rotate'.*switchout"):
        apply_to_text(whole(split_of(reviews(1), tokenizer)), Plan.of([["rotate"]]))
    with pytest.raises(ValueError, match="unknown transform 'switchout'"):
        apply(torch.zeros(1, 3, 4, 4, dtype=torch.uint8), Plan.of([["switchout"]], levels=[[0.5]]))


def test_missing_caches_and_wrong_options_are_refused(tokenizer):
    with pytest.raises(ValueError, match="back_translation needs a cache"):
        apply_to_text(whole(split_of(reviews(1), tokenizer)), Plan.of([["back_translation"]], levels=[[0.5]]))
    with pytest.raises(ValueError, match="documents for testing"):
        apply_to_text(whole(split_of(reviews(1), tokenizer, train=False)), Plan.of([["word_replacement"]], levels=[[0.5]]))
    with pytest.raises(ValueError, match="length must be above the 2 special tokens, got 2"):
        split_of(reviews(1), tokenizer, length=2)
    with pytest.raises(ValueError, match=r"truncate must be one of head, tail, head\+tail, got 'middle'"):
        split_of(reviews(1), tokenizer, truncate="middle")


@pytest.mark.parametrize(
    ("inputs", "got"),
    [
        (torch.zeros(1, 3, 2, 2, dtype=torch.uint8), "torch.uint8"),
        (torch.zeros(1, 8, dtype=torch.int64), "torch.int64"),
        (["a film"], "a list of str"),
    ],
)
def test_other_inputs_than_tokenized_texts_are_refused(unchecked, inputs, got):
    policy = Plain(uniform(1, transforms=("word_swap",)), classes=2, preprocess=PadTokens())
    message = (
        rf"PadTokens is for batches of tokenized texts, got {got}.*: pass train.inputs\(batch\).*; for images use Normalize"
    )
    with pytest.raises(ValueError, match=message):
        policy(inputs, torch.tensor([0]), step=0)


def test_texts_are_refused_by_the_preprocess_of_images(tokenizer, unchecked):
    message = r"got a value of type Passages: a policy for texts needs preprocess=outspan.text.PadTokens\(\)"
    for preprocess in (DEFAULT_PREPROCESS, Normalize((0.5,), (0.5,))):
        with pytest.raises(ValueError, match=message):
            preprocess.check(whole(split_of(reviews(2), tokenizer)))


def test_an_operation_is_added_by_a_function_and_a_line_of_the_table(tokenizer, monkeypatch):
    def shout(tokens, context, strength, seeds):
        return np.where(np.arange(tokens.shape[1]) < context.lengths[:, None], WORDS.index("film"), tokens)

    table = {**TEXT_TRANSFORMS, "shout": Transform(shout, 0.0, 1.0, "", signed=False)}
    monkeypatch.setattr(executor, "TEXT_TRANSFORMS", table)
    rows = PadTokens().execute(
        whole(split_of(["the a", "the plot"], tokenizer)), Plan.of([["shout"], ["shout"]], levels=[[1.0], [0.0]])
    )
    assert [words_of(row[:4]) for row in rows] == ["[CLS] film film [SEP]", "[CLS] the plot [SEP]"]


def test_a_document_without_tokens_has_special_tokens_only(tokenizer):
    tokens = PadTokens()(whole(split_of(["\u200b", "the"], tokenizer)))
    assert words_of(tokens[0]).startswith("[CLS] [SEP]")


def test_a_cache_of_other_documents_is_refused_and_an_incomplete_one_warns(tokenizer):
    texts = ["a good film. the plot is bad.", "a bad story."]
    with pytest.raises(ValueError, match="has no sentence of these documents: it is another corpus's"):
        split_of(texts, tokenizer, cache={"quite another.": "another."})
    with pytest.warns(UserWarning, match="has 1 of 3 sentences; the others stay as they are"):
        split_of(texts, tokenizer, cache={"a bad story.": "one bad tale."})


def test_punctuation_is_not_a_word_in_byte_level_tokenizers():
    """RoBERTa and GPT-2 write a space as Ġ, and each byte of an ellipsis as a letter."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    names = ["<s>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "Ġ(", "ĠâĢ¦", "Ġgood"]
    backend = Tokenizer(models.BPE({name: i for i, name in enumerate(names)}, []))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    wordlike = wrap_tokenizer(backend, 0).wordlike
    assert [bool(wordlike[names.index(name)]) for name in ("Ġgood", "a", "7", "Ġ(", "ĠâĢ¦", "Ġ")] == [True] * 3 + [False] * 3
