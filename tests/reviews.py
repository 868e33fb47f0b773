"""Reviews made of a few words, and a tiny BERT with random weights."""

import json

import numpy as np
import torch

from outspan import rng

GOOD = ("wonderful", "great", "superb", "lovely")
BAD = ("awful", "boring", "terrible", "dull")
PLAIN = (
    "the",
    "a",
    "film",
    "plot",
    "actor",
    "was",
    "is",
    "and",
    "with",
    "scene",
    "in",
    "of",
    "very",
    "quite",
    "story",
    "music",
)
PIECES = ("un", "##like", "##ly", "##s", ".", ",", "!")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
UNUSED = ("[unused0]", "[unused1]")
WORDS = (*SPECIAL, *UNUSED, *GOOD, *BAD, *PLAIN, *PIECES)


def make_reviews(count: int, seed: int = 0) -> list[tuple[str, int]]:
    """Return reviews of a few sentences. One or two words in each reveal the label."""
    draw = rng.generator(seed, "reviews")
    reviews = []
    for i in range(count):
        label = i % 2
        telling = list(draw.choice(GOOD if label else BAD, 2))
        plain = [list(draw.choice(PLAIN, int(draw.integers(3, 9)))) for _ in range(int(draw.integers(2, 5)))]
        for words in plain[:2]:
            words.insert(int(draw.integers(0, len(words))), telling.pop())
        plain[-1].append("unlikely")
        reviews.append((" ".join(" ".join(words) + "." for words in plain), label))
    return reviews


def write_wordnet(folder) -> None:
    """Write a dictionary in the format of WordNet, with synonyms among the words of the reviews."""
    folder.mkdir(parents=True, exist_ok=True)
    synsets = [("film", "scene"), ("plot", "story", "film"), GOOD, BAD]
    lines = [
        f"0000000{i} 0 n {len(words):02x} {' '.join(f'{word} 0' for word in words)} 000" for i, words in enumerate(synsets)
    ]
    for part in ("noun", "verb", "adj", "adv"):
        (folder / f"data.{part}").write_text("  1 licence\n" + "".join(f"{line}\n" for line in lines) * (part == "noun"))


def write_model(folder, *, layers: int = 1, positions: int = 64, hidden: int = 16, lowercase: bool = True) -> None:
    """Write a BERT of random weights and a WordPiece tokenizer."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel

    tokenizer = Tokenizer(models.WordPiece({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))  # noqa: S106
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.enable_truncation(8)  # as in some published files; outspan must ignore it
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    if not lowercase:  # transformers would set the normalizer to lower case
        (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False, "tokenizer_class": "BertTokenizer"}))
    config = BertConfig(
        vocab_size=len(WORDS), hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=2,
        intermediate_size=2 * hidden, max_position_embeddings=positions, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(7)
    BertModel(config).save_pretrained(folder)


def uniform_seeds(count: int) -> np.ndarray:
    """Return seeds as in plans."""
    return rng.generator(5, "seeds").integers(0, 2**63, count).astype(np.uint64)
