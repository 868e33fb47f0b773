"""Words of a corpus, and operations on words in texts: checked on decoded text."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from outspan import Plan, rng, uniform
from outspan.text.documents import Documents
from outspan.text.executor import PadTokens, apply
from outspan.text.tokenizer import wrap_tokenizer
from outspan.text.tokens import encode
from outspan.text.wordnet import FOLDER
from outspan.transforms.spellings import NEIGHBOURS
from outspan.transforms.table import TEXT_TRANSFORMS

TEXTS = [
    "The film was wonderful, don't you think? I liked the music a lot! (A really great story.)",
    "Dull plot; it's boring.\nThe actors? Well-paid, I guess: 3.5 stars...",
    "Über-naïve café scenes, 100% déjà-vu.",
]
NAMES = tuple(name for name, transform in TEXT_TRANSFORMS.items() if transform.needs == "")


@pytest.fixture(scope="module")
def cased():
    """Return a byte-level BPE tokenizer, which sees cases and spaces, and special tokens around a text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<pad>", "<s>", "</s>"]
    backend.train_from_iterator(
        TEXTS * 3, trainers.BpeTrainer(vocab_size=420, special_tokens=special, initial_alphabet=alphabet)
    )
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 1), trim_offsets=False, add_prefix_space=False)
    return wrap_tokenizer(backend, 0)


def batch_of(texts, tokenizer, **options):
    split = encode(Documents(list(texts), torch.arange(len(texts)) % 2), tokenizer, **({"length": 256} | options))
    return next(split.batches([torch.arange(len(texts))], torch.device("cpu")))[0]


def texts_of(tokens: torch.Tensor, tokenizer) -> list[str]:
    return [tokenizer.backend.decode([token for token in row if token > 2]) for row in tokens.tolist()]


def run(name: str, level: float, texts, tokenizer, seed: float = 0.3, **options) -> list[str]:
    count = len(texts)
    plan = Plan.of([[name]] * count, levels=[[level]] * count, places=[[[seed, 0.2, 0.1, i / count]] for i in range(count)])
    return texts_of(apply(batch_of(texts, tokenizer, **options), plan), tokenizer)


def words_of(text: str) -> list[str]:
    """Return the words of a text: what white space separates, without punctuation at the ends."""
    stripped = (re.fullmatch(r"[\W_]*(.*?)[\W_]*", part, re.DOTALL)[1] for part in text.split())
    return [word for word in stripped if word]


@pytest.mark.parametrize("texts", [TEXTS, ["", "x", "?!", "a  b\t c", "\u00a0wide \u3000space", "e\u0301 x"]])
def test_words_are_separated_by_white_space_and_have_no_punctuation_at_their_ends(texts, cased):
    corpus = batch_of([text or "-" for text in texts], cased).split.corpus
    vocabulary, kinds = corpus.bank.vocabulary, corpus.bank.vocabulary.kinds
    found = [vocabulary.words[kind].lstrip() for kind in kinds[kinds >= 0].tolist()]
    assert found == [word for text in texts for word in words_of(text or "-")]


@settings(max_examples=25)
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30), min_size=1, max_size=4))
def test_all_texts_survive_every_operation(cased, texts):
    passages = batch_of([text if text.strip() else "-" for text in texts], cased)
    plain = PadTokens()(passages)
    for name in (*NAMES, "casing"):
        levels, places = [[1.0]] * len(texts), [[[0.5, 0.1, 0.2, 0.3]]] * len(texts)
        changed = apply(passages, Plan.of([[name]] * len(texts), levels=levels, places=places))
        assert len(changed) == len(texts)
        same = apply(passages, Plan.of([[name]] * len(texts), levels=[[0.0]] * len(texts), places=places))
        assert torch.equal(same, plain)


def test_deletion_swap_and_typos_on_decoded_text(cased):
    for i in range(20):
        shorter = run("word_deletion", 1.0, TEXTS, cased, i / 20)
        for before, after in zip(TEXTS, shorter, strict=True):
            kept = iter(words_of(before))
            assert all(word in kept for word in words_of(after) if word in words_of(before))  # in their order
            assert re.sub(r"[^.?!;:,()]", "", after).count("!") == before.count("!")
        swapped = run("word_swap", 0.5, TEXTS, cased, i / 20)
        assert [sorted(words_of(text)) for text in swapped] == [sorted(words_of(text)) for text in TEXTS]
        assert swapped[0] != TEXTS[0]
        for before, after in zip(TEXTS[:2], run("keyboard_typos", 1.0, TEXTS, cased, i / 20), strict=False):
            changed = [(a, b) for a, b in zip(before.split(), after.split(), strict=True) if a != b]
            assert len(changed) < 12
            for old, new in changed:
                ((a, b),) = [pair for pair in zip(old, new, strict=True) if pair[0] != pair[1]]
                assert b.lower() in NEIGHBOURS[a.lower()]


def test_spellings_are_made_of_drawn_words_only(cased):
    words = [first + second for first in "abcdefghij" for second in "klmnopqrst"]
    made = []
    for level in (0.1, 1.0):  # 2 and 20 % of the words
        batch = batch_of([" ".join(words)], cased)
        apply(batch, Plan.of([["keyboard_typos"]], levels=[[level]]))
        made.append(len(batch.split.corpus.bank.tokens))
    assert 0 < made[0] < made[1] / 3
    assert made[1] < len(words) * 9 / 2  # a word and its eight spellings have one token each, or more


def test_marks_are_inserted_and_words_stay(cased):
    done = run("punctuation_insertion", 1.0, TEXTS, cased)
    for before, after in zip(TEXTS, done, strict=True):
        assert words_of(after) == words_of(before)
        assert 1 <= len(re.findall("[.;?:!,]", after)) - len(re.findall("[.;?:!,]", before)) <= len(words_of(before)) // 3


def test_cases_change_letters_only(cased):
    done = run("casing", 1.0, TEXTS, cased)
    assert [text.lower().split() for text in done] == [text.lower().split() for text in TEXTS]
    assert done != TEXTS


def test_a_tokenizer_without_case_is_refused(tokenizer):
    with pytest.raises(ValueError, match="casing needs a tokenizer that tells upper from lower case"):
        apply(batch_of(["the film"], tokenizer), Plan.of([["casing"]], levels=[[1.0]]))


def test_sentences_move_with_the_space_before_them(cased):
    text = "One is here. Two is there. Three!"
    done = {run("sentence_shuffle", 1.0, [text], cased, i / 50)[0].strip() for i in range(50)}
    assert done == {"Two is there. Three! One is here.", "Three! One is here. Two is there."}
    cropped = {run("sentence_crop", 1.0, [text], cased, i / 50)[0].strip() for i in range(50)}
    assert cropped == {"One is here. Two is there.", "Two is there. Three!"}


def test_longer_texts_are_truncated_again(cased):
    passages = batch_of(TEXTS, cased, length=12, truncate="head")
    plan = Plan.of([["punctuation_insertion"]] * 3, levels=[[1.0]] * 3)
    tokens = apply(passages, plan)
    assert tokens.shape == (3, 12)
    assert (tokens[:, 0] == 1).all()
    assert (tokens[:, -1] == 2).all()


def test_a_row_has_the_same_words_in_any_batch(cased):
    plan = uniform(3, transforms=(*NAMES, "casing"), probability=1.0)(3, rng=rng.generator(5, "augment"), candidates=4)
    whole = apply(batch_of(TEXTS, cased), plan)
    for row in range(12):
        alone = apply(batch_of(TEXTS, cased), plan[[row]])  # with a new bank: spellings do not depend on the order of their use
        width = min(whole.shape[1], alone.shape[1])
        assert torch.equal(alone[0, :width], whole[row, :width])
        assert not alone[0, width:].any()


@pytest.mark.skipif(not (Path(FOLDER) / "data.noun").is_file(), reason="needs Debian's wordnet-base")
def test_synonyms_of_the_real_wordnet_in_texts(cased):
    text = "The movie was wonderful."
    done = {run("synonym_replacement", 0.1, [text], cased, i / 60)[0] for i in range(60)}
    assert "The film was wonderful." in done
    assert "The movie was fantastic." in done
    assert all(one.startswith("The ") and " was " in one for one in done)
    longer = run("word_insertion", 0.1, [text], cased)[0]
    assert len(words_of(longer)) > 4


def test_decisive_words_are_protected(tokenizer):
    texts = ["the film was wonderful ."] * 30 + ["the film was awful ."] * 30
    split = encode(Documents(texts, torch.arange(60) // 30), tokenizer, length=16)
    protected = split.corpus.protected.reshape(60, 5)
    assert (protected == np.array([False, False, False, True, False])).all()


def test_words_that_tell_one_of_several_labels_are_protected(tokenizer):
    texts = ["the film was wonderful ."] * 30 + ["the film was awful ."] * 30
    both = torch.tensor([[True, False]] * 30 + [[False, True]] * 30)
    split = encode(Documents(texts, both), tokenizer, length=16)
    assert split.corpus.protected.reshape(60, 5).all(axis=0).tolist() == [False, False, False, True, False]
    some = encode(Documents(texts, both & torch.tensor([True, False])), tokenizer, length=16)  # the others have no label
    assert some.corpus.protected.reshape(60, 5)[:30, 3].all()
    assert not some.corpus.protected.reshape(60, 5)[30:].any()


def test_operations_on_words_need_training_documents(cased):
    split = encode(Documents(["a film"], torch.tensor([0])), cased, length=16, train=False)
    passages = next(split.batches([torch.arange(1)], torch.device("cpu")))[0]
    with pytest.raises(ValueError, match="operations on words need training documents"):
        apply(passages, Plan.of([["word_swap"]], levels=[[1.0]]))
