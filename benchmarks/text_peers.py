"""The augmenters of nlpaug and TextAttack that correspond to operations on texts, for text.py.

They change the same fraction of the words as outspan changes on average over its levels. What makes them slower, and is not
needed for the operation, is left out:

- nlpaug splits texts at white space and joins words by spaces, instead of with its regular expressions. Its SynonymAug does
  not tag parts of speech. Its RandomSentAug gets the sentences from outspan's function.
- TextAttack's Augmenter makes the changes of all words before it takes one of them, for each change. For a review of 512
  tokens this took 49 seconds (WordDeletion). Here its transformations change one random word after the other, which took 0.14.

The installation, with outspan's own `.[text]` (pip cannot install what TextAttack requires; flair is not used):

    pip install nlpaug nltk
    pip install --no-deps textattack
    pip install bert-score datasets editdistance jieba langdetect language-tool-python lemminflect levenshtein lru-dict \
      more-itertools num2words OpenHowNet pinyin terminaltables word2number
    apt-get install wordnet-base
"""

import os
import random
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from outspan.text.segments import sentences

WORDNET = Path("/usr/share/wordnet")  # of Debian's wordnet-base
Augment = Callable[[str], object]
FRACTION, REPLACED = 0.1, 0.15  # of the words that change at a mean level; the second one for word_replacement


def make_peers(texts: Sequence[str], vocabulary: list[str], folder: Path) -> Iterator[tuple[str, str, Augment | str]]:
    """Yield the operation, the library and the augmenter, or why it cannot be built here."""
    read_wordnet(folder / "nltk_data")
    for library, build in (("nlpaug", nlpaugs), ("textattack", textattacks)):
        try:
            makers = build(texts, vocabulary, folder)
        except (ImportError, LookupError) as error:  # LookupError: data of nltk
            yield "", library, describe(error)
            continue
        for name, make in makers.items():
            try:
                augment = make()
                augment("This is a film that I liked a lot. It was short.")
            except Exception as error:  # peers raise anything if their data cannot be downloaded
                yield name, library, describe(error)
            else:
                yield name, library, augment


def describe(error: Exception) -> str:
    """Return the type and the first line of an error, without the folders of this machine."""
    return re.sub(r"[^\s']*/", "", f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}")


def read_wordnet(folder: Path) -> None:
    """Let nltk read Debian's WordNet: with the names of its 45 files, and without the index that only other languages need."""
    import nltk

    wordnet, stop_words = folder / "corpora/wordnet", folder / "corpora/stopwords"
    if WORDNET.exists():
        shutil.copytree(WORDNET, wordnet, dirs_exist_ok=True)  # nltk refuses links
        (wordnet / "lexnames").write_text("".join(f"{number:02} name{number} 1\n" for number in range(45)))
        (wordnet / "index.sense").touch()
    stop_words.mkdir(parents=True, exist_ok=True)
    (stop_words / "english").write_text("the\na\n")  # which TextAttack's import needs, and its operations here do not
    nltk.data.path.insert(0, str(folder))


def nlpaugs(texts: Sequence[str], vocabulary: list[str], folder: Path) -> dict[str, Callable[[], Augment]]:
    """Return functions that build the augmenters of nlpaug."""
    import nlpaug.augmenter.char as nac
    import nlpaug.augmenter.sentence as nas
    import nlpaug.augmenter.word as naw
    import nlpaug.model.word_stats as nmw

    split: dict[str, Any] = {"tokenizer": str.split, "reverse_tokenizer": " ".join}
    options = {"aug_min": 0, "aug_max": None, **split}
    chars = {"aug_word_p": FRACTION, "aug_word_min": 0, "aug_word_max": None, "aug_char_max": 1, **split}

    def tf_idf() -> Augment:
        stats = nmw.TfIdf()
        stats.train([text.split() for text in texts])
        stats.save(str(folder))
        return naw.TfIdfAug(model_path=str(folder), action="substitute", aug_p=REPLACED, **options).augment

    def synonyms() -> Augment:
        augmenter = naw.SynonymAug(aug_p=FRACTION, **options)
        augmenter.model.pos_tag = lambda words: [(word, "") for word in words]
        return augmenter.augment

    def words(action: str, **others: object) -> Callable[[], Augment]:
        return lambda: naw.RandomWordAug(action=action, aug_p=FRACTION, **options, **others).augment

    return {
        "switchout": words("substitute", target_words=vocabulary),
        "word_replacement": tf_idf,
        "word_deletion": words("delete"),
        "word_swap": words("swap"),
        "synonym_replacement": synonyms,
        "keyboard_typos": lambda: nac.KeyboardAug(**chars).augment,
        "ocr_errors": lambda: nac.OcrAug(**chars).augment,
        "sentence_shuffle": lambda: nas.RandomSentAug(mode="random", aug_p=0.5, aug_max=None, tokenizer=sentences).augment,
    }


class _Unused(ModuleType):
    """A module that only classes are derived from."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        if (part := f"{self.__name__}.{name}") in sys.modules:
            return sys.modules[part]
        return type(name, (), {})


def textattacks(texts: Sequence[str], vocabulary: list[str], folder: Path) -> dict[str, Callable[[], Augment]]:
    """Return functions that build the augmenters of TextAttack."""
    for name in ("flair", "flair.data", "flair.models"):  # its import needs them
        sys.modules.setdefault(name, _Unused(name))
    os.environ.setdefault("TA_CACHE_DIR", str(folder))
    from textattack import transformations
    from textattack.shared import AttackedText

    def make(name: str, **options: object) -> Callable[[], Augment]:
        def build() -> Augment:
            transformation = getattr(transformations, name)(**options)

            def augment(text: str) -> str:
                changed = AttackedText(text)
                count = len(changed.words)
                # From the end, so that insertions and deletions do not move the words that follow.
                for word in sorted(random.sample(range(count), max(1, int(FRACTION * count))), reverse=True):
                    if candidates := transformation(changed, indices_to_modify=[word]):
                        changed = random.choice(candidates)  # noqa: S311
                return changed.printable_text()

            return augment

        return build

    return {
        "word_deletion": make("WordDeletion"),
        "word_swap": make("WordInnerSwapRandom"),
        "synonym_replacement": make("WordSwapWordNet"),
        "word_insertion": make("WordInsertionRandomSynonym"),
        "keyboard_typos": make("WordSwapQWERTY"),
        "ocr_errors": make("WordSwapHomoglyphSwap", random_one=True),
    }
