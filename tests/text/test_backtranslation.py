"""Back-translation: the cache after interruptions, engines that fail, and Apertium if it is installed."""

import json
import os
import shutil
import signal

import pytest
import torch

from outspan.text import backtranslation as module
from outspan.text.backtranslation import Apertium, backtranslate, open_engine, read_cache
from outspan.text.segments import sentences
from reviews import make_reviews

installed = pytest.mark.skipif(
    shutil.which("lt-proc") is None or not os.path.exists("/usr/share/apertium/modes/eng-spa.mode"), reason="no Apertium here"
)
TEXTS = [f"sentence {i}." for i in range(1000)]


class Upper:
    """An engine that returns upper case, and fails after a number of sentences."""

    def __init__(self, breaks_after: int = 10**9) -> None:
        self.left = breaks_after
        self.requests: list[str] = []

    def __call__(self, sentences):
        for sentence in sentences:
            if not self.left:
                raise RuntimeError("the engine broke")
            self.left -= 1
            self.requests.append(sentence)
            yield None if sentence == "sentence 3." else sentence.upper()

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def engine(monkeypatch):
    """Return a function that replaces Apertium by another engine."""

    def use(made):
        monkeypatch.setattr(module, "ENGINES", {"apertium": lambda pair: made})
        return made

    return use


def test_a_crash_loses_no_finished_sentence(engine, tmp_path):
    path = tmp_path / "cache.jsonl"
    engine(Upper(breaks_after=450))
    with pytest.raises(RuntimeError, match="the engine broke"):
        backtranslate(TEXTS, path)
    assert len(read_cache(path)) == 400  # the sentences before the failure
    with open(path, "ab") as file:
        file.write(b'{"text": "torn')  # a kill during a write leaves a part of a line
    again = engine(Upper())
    assert backtranslate([*TEXTS, *TEXTS], path) == (1000, 1)
    assert again.requests == [TEXTS[3], *TEXTS[400:]]  # finished sentences are not repeated, failed ones are
    stored = read_cache(path)
    assert stored == {text: None if text == "sentence 3." else text.upper() for text in TEXTS}
    unused = engine(Upper())
    assert backtranslate(TEXTS[4:], path) == (1000, 1)
    assert not unused.requests


def test_an_interrupted_translation_resumes(engine, tmp_path):
    engine(Upper())
    seen = []
    backtranslate(TEXTS, tmp_path / "c", on_batch=lambda done, total: seen.append((done, total)) or done >= 600)
    assert seen == [(200, 1000), (400, 1000), (600, 1000)]
    assert backtranslate(TEXTS, tmp_path / "c")[0] == 1000


def test_failed_sentences_are_tried_again(engine, tmp_path):
    path = tmp_path / "cache.jsonl"
    path.write_text('{"engine": "apertium", "pair": "eng-spa"}\n{"text": "sentence 1.", "back": null}\n')
    engine(Upper())
    assert backtranslate(TEXTS[:2], path) == (2, 0)
    assert read_cache(path) == {"sentence 0.": "SENTENCE 0.", "sentence 1.": "SENTENCE 1."}


def test_an_invalid_engine_leaves_no_files(tmp_path):
    path = tmp_path / "cache.jsonl"
    with pytest.raises(ValueError, match="is not installed"):
        backtranslate(TEXTS, path, pair="xxx-yyy")
    assert not path.exists()


@pytest.mark.parametrize("size", [0, 7, 41])
def test_an_incomplete_first_line_is_written_again(size, engine, tmp_path):
    path = tmp_path / "cache.jsonl"
    path.write_text('{"engine": "apertium", "pair": "eng-spa"}'[:size])
    engine(Upper())
    assert backtranslate(TEXTS[:2], path) == (2, 0)
    assert path.read_text().splitlines()[0] == '{"engine": "apertium", "pair": "eng-spa"}'
    assert len(read_cache(path, {"engine": "apertium", "pair": "eng-spa"})) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a note of mine", "not a cache of back-translations"),
        ('{"engine": "marian", "pair": "en-es"}\n', "made by marian for en-es, not by apertium for eng-spa"),
        ("hello\n", r"line 1: not a cache of back-translations"),
        ('{"engine": "apertium", "pair": "eng-spa"}\n{"text": 3}\n', "line 2: not a cache"),
    ],
)
def test_a_file_that_is_not_a_cache_is_refused_and_unchanged(content, message, engine, tmp_path):
    engine(Upper())
    path = tmp_path / "cache.jsonl"
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        backtranslate(TEXTS, path)
    assert path.read_text() == content


def test_missing_programs_and_models_are_named_with_how_to_get_them(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"Apertium for xxx-yyy is not installed .*apt-get install .* apertium-xxx-yyy"):
        open_engine("apertium", "xxx-yyy")
    with pytest.raises(ValueError, match="unknown engine 'apertum', did you mean 'apertium'"):
        open_engine("apertum", "eng-spa")
    with pytest.raises(ValueError, match=r"a pair must be two languages, e\.g\. eng-spa, got '\.\./x'"):
        open_engine("apertium", "../x")
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(ValueError, match=r"pip install 'outspan\[text\]'"):
        open_engine("marian", "en-es")
    with pytest.raises(ValueError, match=r"none\.jsonl: No such file"):
        read_cache(tmp_path / "none.jsonl")


@pytest.mark.filterwarnings("ignore")  # warnings of transformers
def test_marian_translates_with_models_in_local_folders(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import MarianConfig, MarianMTModel, PreTrainedTokenizerFast

    words = {word: i for i, word in enumerate(("<pad>", "</s>", "<unk>", "good", "bad", "film"))}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))  # noqa: S106
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", 1)])
    torch.manual_seed(0)
    size = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 1, "decoder_attention_heads": 1}
    config = MarianConfig(
        vocab_size=6, **size, encoder_ffn_dim=8, decoder_ffn_dim=8, max_length=6, pad_token_id=0, eos_token_id=1,
        decoder_start_token_id=0, forced_eos_token_id=None,
    )  # fmt: skip
    for name in ("there", "back"):
        MarianMTModel(config).save_pretrained(tmp_path / name)
        fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")  # noqa: S106
        fast.save_pretrained(tmp_path / name)
    engine = open_engine("marian", f"{tmp_path / 'there'},{tmp_path / 'back'}")
    translations = list(engine(["good film", "bad"] * 40))
    assert len(translations) == 80
    assert translations[:2] == translations[2:4]  # equal sentences have equal translations
    for path in (tmp_path / "back").glob("*.safetensors"):
        path.rename(path.with_name("pytorch_model.bin"))
    with pytest.raises(ValueError, match="a pickle"):
        open_engine("marian", f"{tmp_path / 'there'},{tmp_path / 'back'}")


@installed
def test_apertium_translates_sentences_with_special_characters():
    odd = [
        "A good film.",
        "[1] {x} ^a$ \\ / @ <b>&amp;</b>",
        "!!!",
        "9/10",
        "\u00e9\u4e2d\U0001f600",
        "a\tb  c",
        "Great cast [0]",
    ]
    engine = Apertium("eng-spa")
    try:
        translations = list(engine(odd))
        assert translations[0] == "A good film."
        assert all(translations)
        assert list(engine(odd[:1])) == translations[:1]  # the engine is still running
    finally:
        engine.close()
    assert not engine.processes


@installed
def test_a_killed_pipeline_is_restarted():
    texts = list(dict.fromkeys(one for text, _ in make_reviews(60) for one in sentences(text)))
    engine = Apertium("eng-spa")
    try:
        whole = list(engine(texts))
        translations = []
        for answer in engine(texts):
            translations.append(answer)
            if len(translations) == 20:
                os.killpg(engine.processes[1].pid, signal.SIGKILL)
        assert translations == whole
    finally:
        engine.close()


def test_a_sentence_that_kills_the_engine_is_skipped(monkeypatch):
    engine = Apertium.__new__(Apertium)
    engine.processes = []

    def through(sentences):
        for sentence in sentences:
            if sentence == "deadly":
                return
            yield sentence.upper()

    monkeypatch.setattr(engine, "_translate", through)
    texts = [f"s{i}" for i in range(100)] + ["deadly"] + [f"t{i}" for i in range(100)]
    assert list(engine(texts)) == [None if text == "deadly" else text.upper() for text in texts]


def test_an_engine_without_answers_raises_an_error(monkeypatch):
    engine = Apertium.__new__(Apertium)
    engine.processes = []
    monkeypatch.setattr(engine, "_translate", lambda sentences: iter(()))
    with pytest.raises(ValueError, match=r"the engine does not answer.*at sentence 'sentence 2\.'"):
        list(engine(TEXTS))
    bad = {"sentence 4.", "sentence 5.", "sentence 6.", "sentence 7."}  # as if a cache contained failures only

    def through(sentences):
        for sentence in sentences:
            if sentence in bad:
                return
            yield sentence.upper()

    monkeypatch.setattr(engine, "_translate", through)
    assert list(engine(TEXTS[:9])) == [None if text in bad else text.upper() for text in TEXTS[:9]]


def test_the_command_writes_a_cache(engine, tmp_path, run):
    engine(Upper())
    corpus = tmp_path / "mine.jsonl"
    corpus.write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in make_reviews(20)))
    assert "sentences in" in run("text", "backtranslate", corpus, "-o", tmp_path / "c.jsonl")
    message = run("text", "backtranslate", "digits", "-o", tmp_path / "d.jsonl", code=2)
    assert "back-translation needs texts, got images: data 'digits'" in message
    assert not (tmp_path / "d.jsonl").exists()
    assert all(back == text.upper() for text, back in read_cache(tmp_path / "c.jsonl").items())
