"""Text data: documents, tokens, augmentation of batches of tokens by a plan, and back-translation.

>>> import outspan
>>> outspan.text.sentences("It is good. I like it!")
['It is good.', 'I like it!']

Names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from outspan.lazy import attach

if TYPE_CHECKING:
    from outspan.text.backtranslation import backtranslate as backtranslate
    from outspan.text.backtranslation import read_cache as read_cache
    from outspan.text.documents import Documents as Documents
    from outspan.text.executor import PadTokens as PadTokens
    from outspan.text.executor import apply as apply
    from outspan.text.masked import propose_words as propose_words
    from outspan.text.models import Classifier as Classifier
    from outspan.text.models import load_classifier as load_classifier
    from outspan.text.models import load_tokenizer as load_tokenizer
    from outspan.text.preview import transform_texts as transform_texts
    from outspan.text.preview import transform_tokens as transform_tokens
    from outspan.text.segments import sentences as sentences
    from outspan.text.tokenized import TokenizedTexts as TokenizedTexts
    from outspan.text.tokenized import tokenize as tokenize
    from outspan.text.tokens import Encoded as Encoded
    from outspan.text.tokens import encode as encode

_MODULES = {
    "Classifier": "models",
    "Documents": "documents",
    "Encoded": "tokens",
    "PadTokens": "executor",
    "TokenizedTexts": "tokenized",
    "apply": "executor",
    "backtranslate": "backtranslation",
    "encode": "tokens",
    "load_classifier": "models",
    "load_tokenizer": "models",
    "propose_words": "masked",
    "read_cache": "backtranslation",
    "sentences": "segments",
    "tokenize": "tokenized",
    "transform_texts": "preview",
    "transform_tokens": "preview",
}
__all__ = [
    "Classifier",
    "Documents",
    "Encoded",
    "PadTokens",
    "TokenizedTexts",
    "apply",
    "backtranslate",
    "encode",
    "load_classifier",
    "load_tokenizer",
    "propose_words",
    "read_cache",
    "sentences",
    "tokenize",
    "transform_texts",
    "transform_tokens",
]

__getattr__, __dir__ = attach(__name__, {name: f"outspan.text.{module}" for name, module in _MODULES.items()})
