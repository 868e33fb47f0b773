"""Tiny tokenizers of all kinds that models of Hugging Face have, trained on a few texts."""

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXTS = [
    "The film was wonderful, don't you think? I liked the music a lot! (A really great story.)",
    "Dull plot; it's boring. The actors? Well-paid, I guess: 3.5 stars...",
    "Über-naïve café scenes, 100% déjà-vu.",
]
SPECIAL = ["<pad>", "<unk>", "<s>", "</s>"]


def wordpiece():
    backend, options = Tokenizer(models.WordPiece(unk_token="<unk>")), {"vocab_size": 200}  # noqa: S106
    backend.normalizer, backend.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    return backend, trainers.WordPieceTrainer(**options, special_tokens=SPECIAL, show_progress=False), "<s> $A </s>"


def byte_level():
    backend, alphabet = Tokenizer(models.BPE()), pre_tokenizers.ByteLevel.alphabet()
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    options = {"vocab_size": 400, "special_tokens": SPECIAL, "initial_alphabet": alphabet, "show_progress": False}
    return backend, trainers.BpeTrainer(**options), "<s> $A </s>"


def unigram(template: str):
    backend = Tokenizer(models.Unigram())
    backend.normalizer, backend.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    options = {"vocab_size": 150, "special_tokens": SPECIAL, "unk_token": "<unk>", "show_progress": False}
    return backend, trainers.UnigramTrainer(**options), template


def llama():
    """A tokenizer that writes a space before every text."""
    backend = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))  # noqa: S106
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    strip = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Split("▁", "merged_with_next"), decoders.Sequence(strip)
    return backend, trainers.BpeTrainer(vocab_size=300, special_tokens=SPECIAL, show_progress=False), "<s> $A"


KINDS = {
    "WordPiece": wordpiece,
    "byte-level BPE": byte_level,
    "Unigram of T5": lambda: unigram("$A </s>"),
    "Unigram of XLM-R": lambda: unigram("<s> $A </s>"),
    "BPE of Llama": llama,
}


# The templates of pairs, of the tokenizers that have them.
PAIRS = {
    "WordPiece": "<s> $A </s> $B:1 </s>:1",
    "byte-level BPE": "<s> $A </s> </s> $B </s>",
    "Unigram of T5": "$A </s> $B </s>",
    "Unigram of XLM-R": "<s> $A </s> </s> $B </s>",
}


def build(kind: str):
    """Return a tokenizer of transformers."""
    backend, trainer, template = KINDS[kind]()
    backend.train_from_iterator(TEXTS * 5, trainer)
    if kind == "BPE of Llama":
        backend.pre_tokenizer = None
    special = [(token, SPECIAL.index(token)) for token in ("<s>", "</s>")]
    backend.post_processor = processors.TemplateProcessing(single=template, pair=PAIRS.get(kind), special_tokens=special)
    names = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_object=backend, **names)
