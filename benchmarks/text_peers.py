"""The augmenters of nlpaug and TextAttack that correspond to operations on texts, for text.py."""

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType

WORDNET = Path("/usr/share/wordnet")  # of Debian's wordnet-base
Augment = Callable[[str], object]
FRACTIONS = {"switchout": 0.1, "word_replacement": 0.15}  # of the words that change at a mean level; 0.1 for all others


def make_peers(texts: Sequence[str], vocabulary: list[str], folder: Path) -> Iterator[tuple[str, str, Augment]]:
    """Yield the operation, the library and the augmenter of those that can be built here. What is missing is printed."""
    for library, build in (("nlpaug", nlpaugs), ("textattack", textattacks)):
        try:
            makers = build(texts, vocabulary, folder)
        except (ImportError, LookupError) as error:  # LookupError: data of nltk
            print(f"{library} is left out: {type(error).__name__}", flush=True)
            continue
        for name, make in makers.items():
            try:
                augment = make()
                augment("This is a film that I liked a lot.")
            except Exception as error:  # peers raise anything if their data cannot be downloaded
                print(f"{library} {name} is left out: {type(error).__name__} {str(error).strip()[:80]!r}", flush=True)
                continue
            yield name, library, augment


def nlpaugs(texts: Sequence[str], vocabulary: list[str], folder: Path) -> dict[str, Callable[[], Augment]]:
    """Return functions that build the augmenters of nlpaug."""
    import nlpaug.augmenter.char as nac
    import nlpaug.augmenter.sentence as nas
    import nlpaug.augmenter.word as naw
    import nlpaug.model.word_stats as nmw

    options = {"aug_min": 0, "aug_max": None, "tokenizer": str.split}
    chars = {"aug_word_p": 0.1, "aug_word_min": 0, "aug_word_max": None, "aug_char_max": 1}

    def tf_idf() -> Augment:
        stats = nmw.TfIdf()
        stats.train([text.split() for text in texts])
        stats.save(str(folder))
        return naw.TfIdfAug(model_path=str(folder), action="substitute", aug_p=FRACTIONS["word_replacement"], **options).augment

    def words(action: str, **others: object) -> Callable[[], Augment]:
        return lambda: naw.RandomWordAug(action=action, aug_p=0.1, **options, **others).augment

    return {
        "switchout": words("substitute", target_words=vocabulary),
        "word_replacement": tf_idf,
        "word_deletion": words("delete"),
        "word_swap": words("swap"),
        "synonym_replacement": lambda: naw.SynonymAug(aug_p=0.1, **options).augment,
        "keyboard_typos": lambda: nac.KeyboardAug(**chars).augment,
        "ocr_errors": lambda: nac.OcrAug(**chars).augment,
        "sentence_shuffle": lambda: nas.RandomSentAug(aug_p=0.5).augment,
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
    """Return functions that build the augmenters of TextAttack. Its import needs flair and stop words, which are not used."""
    import nltk

    stop_words, wordnet = folder / "nltk_data/corpora/stopwords", folder / "nltk_data/corpora/wordnet"
    stop_words.mkdir(parents=True, exist_ok=True)
    (stop_words / "english").write_text("the\na\n")
    if not wordnet.exists() and WORDNET.exists():
        shutil.copytree(WORDNET, wordnet)  # the same files as those of nltk, which refuses links
    nltk.data.path.insert(0, str(folder / "nltk_data"))
    for name in ("flair", "flair.data", "flair.models"):
        sys.modules.setdefault(name, _Unused(name))
    from textattack import transformations
    from textattack.augmentation import Augmenter

    def make(name: str) -> Callable[[], Augment]:
        return lambda: Augmenter(getattr(transformations, name)(), pct_words_to_swap=0.1).augment

    return {
        "word_deletion": make("WordDeletion"),
        "word_swap": make("WordInnerSwapRandom"),
        "synonym_replacement": make("WordSwapWordNet"),
        "word_insertion": make("WordInsertionRandomSynonym"),
        "keyboard_typos": make("WordSwapQWERTY"),
        "ocr_errors": make("WordSwapHomoglyphSwap"),
    }
