"""Words of a masked language model: a tiny random BERT proposes them, the cache keeps them, and a plan applies them."""

import json
import re

import pytest
import torch

from made_tokenizers import KINDS, build
from outspan import Plan, rng, train, uniform
from outspan.text.backtranslation import read_cache
from outspan.text.cache import read_sentences
from outspan.text.documents import Documents
from outspan.text.executor import PadTokens, apply
from outspan.text.masked import MaskedModel, propose_words
from outspan.text.segments import sentences
from outspan.text.tokenized import adopt_tokenizer, tokenize
from outspan.text.tokens import encode
from reviews import WORDS, write_model

transformers = pytest.importorskip("transformers")
TEXTS = ["The film was wonderful, and lovely! A dull plot.", "music with a story. " + "the actor was very dull in the scene. "]


@pytest.fixture(scope="module")
def mask_model(tmp_path_factory):
    """A masked language model of random weights with the tokenizer of the tiny BERT."""
    folder = tmp_path_factory.mktemp("mask")
    write_model(folder)
    config = transformers.BertConfig.from_pretrained(folder)
    torch.manual_seed(3)
    transformers.BertForMaskedLM(config).save_pretrained(folder)
    names = {"mask_token": "[MASK]", "pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    (folder / "tokenizer_config.json").write_text(json.dumps({**names, "tokenizer_class": "PreTrainedTokenizerFast"}))
    return folder


@pytest.fixture
def proposed(mask_model, tmp_path):
    """A cache with the words that the model proposes for the texts."""
    path = tmp_path / "cache.jsonl"
    propose_words((one for text in TEXTS for one in sentences(text)), path, model=str(mask_model))
    return path


def batch_of(texts, tokenizer, path):
    documents = Documents(texts, torch.arange(len(texts)))
    split = encode(documents, tokenizer, length=64, proposals=read_sentences(path, masked=True))
    return next(split.batches([torch.arange(len(texts))], torch.device("cpu")))[0]


def test_proposals_are_the_likeliest_words_of_the_model(mask_model):
    """Each word is masked by hand, with the others of its turn, and the likeliest whole words are compared."""
    engine = MaskedModel(str(mask_model))
    tokenizer = transformers.AutoTokenizer.from_pretrained(mask_model)
    model = transformers.AutoModelForMaskedLM.from_pretrained(mask_model).eval()
    words = ["the", "actor", "was", "very", "dull", "in", "the", "scene", "with", "music"]
    (proposals,) = engine([" ".join(words)])
    assert len(proposals) == len(words)
    for number in (0, 2, 9):
        masked = ["[MASK]" if i % 7 == number % 7 else word for i, word in enumerate(words)]
        inputs = tokenizer(" ".join(masked), return_tensors="pt")
        place = (inputs["input_ids"][0] == WORDS.index("[MASK]")).nonzero()[number // 7]
        order = model(**inputs).logits[0, place].flatten().argsort(descending=True).tolist()
        whole = [WORDS[token] for token in order if re.fullmatch(r"[a-z]+", WORDS[token]) and WORDS[token] != words[number]]
        assert proposals[number] == whole[:8]


def test_words_are_those_of_the_text_and_keep_their_capitals(mask_model, proposed):
    stored = read_sentences(proposed, masked=True)
    assert [len(stored[one]) for text in TEXTS for one in sentences(text)] == [6, 3, 4, 8]
    assert all(len(words) == 8 for one in stored.values() for words in one)
    first = stored["The film was wonderful, and lovely!"]
    assert all(word[0].isupper() for word in first[0])
    assert all(word[0].islower() for word in first[1])
    assert next(MaskedModel(str(mask_model))(["a [MASK] is a text."])) is None


def test_level_zero_changes_nothing_and_replay_is_exact(tokenizer, proposed):
    passages, plain = batch_of(TEXTS, tokenizer, proposed), None
    plain = PadTokens()(passages)
    plan = uniform(1, transforms=("masked_replacement",), probability=1.0)(2, rng=rng.generator(1, "augment"), candidates=8)
    changed = apply(passages, plan)
    assert (changed[:, : plain.shape[1]] != plain.repeat_interleave(8, 0)).any()
    again = apply(batch_of(TEXTS, tokenizer, proposed), plan[[11, 3]])  # a new bank
    for row, source in zip(again, (11, 3), strict=True):
        assert [token for token in row.tolist() if token] == [token for token in changed[source].tolist() if token]
    zero = Plan.of([["masked_replacement"]] * 2, levels=[[0.0]] * 2)
    assert torch.equal(apply(passages, zero), plain)


def test_columns_of_texts_take_the_cache(tokenizer, mask_model, proposed, unchecked):
    own, columns = transformers.AutoTokenizer.from_pretrained(mask_model), {"text": TEXTS, "label": [0, 1]}
    data = tokenize(columns, own, length=64, cache=proposed)
    plan = Plan.of([["masked_replacement"]] * 2, levels=[[1.0]] * 2)
    result = apply(data.inputs(data.collate([data[0], data[1]])), plan)
    assert torch.equal(result, apply(batch_of(TEXTS, tokenizer, proposed), plan))
    assert not torch.equal(result, PadTokens()(data.inputs(data.collate([data[0], data[1]]))))
    with pytest.raises(ValueError, match="cache is for columns of texts, got tokens in the column 'input_ids'"):
        tokenize({**columns, **own(TEXTS)}, own, length=64, text="input_ids", cache=proposed)


def test_only_proposed_words_are_inserted_at_their_places(tokenizer, proposed):
    passages, stored = batch_of(TEXTS[1:], tokenizer, proposed), read_sentences(proposed, masked=True)
    allowed = [{word} for word in re.findall(r"\w+", TEXTS[1])]
    for one, extra in zip(allowed, [words for text in sentences(TEXTS[1]) for words in stored[text]], strict=True):
        one |= {word.lower() for word in extra}
    for seed in range(20):
        plan = Plan.of([["masked_replacement"]], levels=[[1.0]], places=[[[seed / 20, 0.1, 0.2, 0.3]]])
        text = tokenizer.backend.decode(apply(passages, plan)[0].tolist())
        words = re.findall(r"\w+", text)
        assert len(words) == len(allowed)
        assert all(word in some for word, some in zip(words, allowed, strict=True))


def test_one_cache_has_translations_and_proposals_and_survives_a_crash(mask_model, cache, tmp_path):
    known = read_cache(cache)
    before = cache.read_bytes()
    texts = ["the film was dull.", "a lovely story."]
    assert propose_words(texts[:1], cache, model=str(mask_model)) == (1, 0)
    with open(cache, "ab") as file:
        file.write(b'{"text": "a lov')  # a kill during a write
    assert propose_words(texts, cache, model=str(mask_model)) == (2, 0)
    assert cache.read_bytes().startswith(before)
    assert cache.read_text().count('"engine"') == 2
    assert read_cache(cache) == known
    assert [*read_sentences(cache, masked=True)] == texts
    with pytest.raises(ValueError, match=r"made by masked for .*mask0?, not by masked for other"):
        propose_words(texts, cache, model="other")


def test_wrong_models_and_caches_are_refused(mask_model, tiny_model, tokenizer, cache, proposed, tmp_path, unchecked):
    with pytest.raises(ValueError, match=r"is no masked language model \(its weights have no cls.pred"):
        propose_words(["a film."], tmp_path / "c", model=str(tiny_model))
    assert not (tmp_path / "c").exists()
    with pytest.raises(ValueError, match="the cache has no proposed words for these documents"):
        batch_of(["another film."], tokenizer, proposed)
    documents = Documents(["another film."], torch.tensor([0]))
    passages = next(encode(documents, tokenizer, length=8).batches([torch.arange(1)], torch.device("cpu")))[0]
    with pytest.raises(ValueError, match="masked_replacement needs a cache of proposed words: see `outspan text propose"):
        apply(passages, Plan.of([["masked_replacement"]], levels=[[1.0]]))


def test_another_vocabulary_than_the_classifiers_works_by_words(mask_model, proposed):
    for kind in KINDS:
        own = adopt_tokenizer(build(kind))
        passages = batch_of(TEXTS, own, proposed)
        plan = Plan.of([["masked_replacement"]] * 2, levels=[[1.0]] * 2)
        rows = apply(passages, plan).tolist()
        plain = PadTokens()(passages).tolist()
        texts, old = ([own.backend.decode([token for token in row if token > 3]) for row in some] for some in (rows, plain))
        assert texts != old
        added = {*re.findall(r"\w+", " ".join(texts))} - {*re.findall(r"\w+", " ".join(old))}
        known = {word for one in read_sentences(proposed, masked=True).values() for words in one for word in words}
        assert added <= known or kind != "byte-level BPE"  # the others do not have all letters


def test_a_run_reads_the_proposals(corpus, tiny_model, mask_model, tmp_path, run):
    cache = tmp_path / "words.jsonl"
    keys = {"data": str(corpus), "model": str(tiny_model), "length": 48, "batch": 8, "device": "cpu", "epochs": 1}
    with pytest.raises(ValueError, match="needs a cache of sentences: run `outspan text propose CORPUS"):
        train(**keys, policy="random", transforms="masked_replacement", out=tmp_path / "none")
    out = run("text", "propose", corpus, "-o", cache, "--model", mask_model)
    assert re.fullmatch(r"words for \d+ sentences in \S+\n", out)
    train(**keys, policy="random", transforms="masked_replacement", cache=str(cache), out=tmp_path / "run")
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert all(row["unchanged"] <= 0.1 for row in rows)
