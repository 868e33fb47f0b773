"""Pretrained text classifiers through transformers: safetensors alone, and no code but the library's own."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from outspan.messages import first_line, shown
from outspan.shapes import Int64, Num
from outspan.text.tokens import Tokenizer, wrap_tokenizer

_TOKENS = 1 << 16  # that are evaluated at once: candidates are several batches


class Classifier(nn.Module):
    """A model of transformers as a function of tokens alone: what is padding is masked, logits come out."""

    def __init__(self, model: nn.Module, padding: int) -> None:
        super().__init__()
        self.model, self.padding = model, padding

    def forward(self, tokens: Int64[Tensor, "B T"]) -> Num[Tensor, "B classes"]:
        """Return the logits; without gradients a few rows at a time."""
        at_once = len(tokens) if torch.is_grad_enabled() else max(1, _TOKENS // tokens.shape[1])
        if len(tokens) <= at_once:
            return self._logits(tokens)
        return torch.cat([self._logits(some) for some in tokens.split(at_once)])

    def _logits(self, tokens: Tensor) -> Tensor:
        return self.model(input_ids=tokens, attention_mask=(tokens != self.padding).long()).logits


def load_classifier(name: str, classes: int, length: int) -> Classifier:
    """Return a classifier by its name on the hub or its folder; its head, where it has none yet, is initialised at random."""
    transformers = _transformers(name)
    config = _ask(name, lambda: transformers.AutoConfig.from_pretrained(name, num_labels=classes, trust_remote_code=False))
    most = getattr(config, "max_position_embeddings", None)
    if most is not None and length > most:
        raise ValueError(f"length must be at most the {most} positions of {shown(name)}, got {length}")
    config.pad_token_id = _padding(name, config)
    model, loaded = _ask(
        name,
        lambda: transformers.AutoModelForSequenceClassification.from_pretrained(
            name, config=config, use_safetensors=True, trust_remote_code=False, dtype=torch.float32,
            ignore_mismatched_sizes=True, output_loading_info=True,  # a head for other classes is replaced
        ),
    )  # fmt: skip
    _check_weights(name, model, loaded)
    found = Classifier(model.eval(), config.pad_token_id)
    try:
        tried = torch.full((2, length), int(config.pad_token_id == 0))
        tried[:, -1] = getattr(config, "eos_token_id", None) or tried[0, 0]  # some look for the end
        with torch.no_grad():  # some keep positions for themselves, some take no batches
            found(tried)
    except (RuntimeError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"model {shown(name)} does not take texts of {length} tokens ({first_line(error)})") from None
    return found


def _check_weights(name: str, model: Any, loaded: Mapping[str, Any]) -> None:
    """Refuse weights that are another model's: a new head, and a pooler, are all that may be initialised at random."""
    body = [key for key in model.state_dict() if key.startswith(f"{model.base_model_prefix}.")]
    absent = {*loaded["missing_keys"], *(key for key, *_ in loaded["mismatched_keys"])} & {*body}
    if len(absent) > len(body) // 10:
        raise ValueError(
            f"model {shown(name)}: its weights fit {len(body) - len(absent)} of {len(body)} tensors: another model's?"
        )


def load_tokenizer(name: str) -> Tokenizer:
    """Return the fast tokenizer that belongs to a model, by its name on the hub or its folder."""
    transformers = _transformers(name)
    found = _ask(name, lambda: transformers.AutoTokenizer.from_pretrained(name, use_fast=True, trust_remote_code=False))
    config = _ask(name, lambda: transformers.AutoConfig.from_pretrained(name, trust_remote_code=False))
    if not getattr(found, "is_fast", False):
        raise ValueError(f"model {shown(name)} has no fast tokenizer (tokenizer.json)")
    return _ask(name, lambda: wrap_tokenizer(found.backend_tokenizer, _padding(name, config)))


def refuse_pickles(name: str) -> None:
    """Refuse a folder whose weights are a pickle alone: unpickling runs whatever code is in it."""
    folder = Path(name)
    if folder.is_dir() and not any(folder.glob("*.safetensors")):
        pickled = sorted(path.name for kind in ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5") for path in folder.glob(kind))
        if pickled:
            raise ValueError(
                f"{folder}: only {pickled[0]}, a pickle, which can run code when it is read; convert it to safetensors"
            )
        raise ValueError(f"{folder}: no weights (*.safetensors)")


def _transformers(name: str) -> Any:
    refuse_pickles(name)
    try:
        import transformers  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ValueError(f"model {shown(name)} needs transformers: pip install 'outspan[text]'") from None
    return transformers


def _padding(name: str, config: Any) -> int:
    """Return the token that is padded with: the one for it, or where there is none, that of a text's end."""
    found = [getattr(config, key, None) for key in ("pad_token_id", "eos_token_id")]
    known = [number for number in found if isinstance(number, int)]
    if not known:
        raise ValueError(f"model {shown(name)} names no token for padding (pad_token_id in config.json)")
    return known[0]


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep transformers from printing: that a head is new is what fine-tuning is. The hub says where it has to try again."""
    from transformers.utils import logging as said  # pyright: ignore[reportMissingImports]

    before, bars = said.get_verbosity(), said.is_progress_bar_enabled()
    said.set_verbosity_error()
    said.disable_progress_bar()
    try:
        yield
    finally:
        said.set_verbosity(before)
        if bars:
            said.enable_progress_bar()


def _ask(name: str, load: Callable[[], Any]) -> Any:
    """Load from the hub or a folder; whatever is wrong is a ValueError of one line."""
    try:
        with _quietly():
            return load()
    except (OSError, ValueError, RuntimeError, LookupError, TypeError, AttributeError, ImportError, SafetensorError) as error:
        how = "" if Path(name).is_dir() else "; without the hub, give a folder: --model FOLDER"
        raise ValueError(f"model {shown(name)} cannot be loaded ({first_line(error)}){how}") from None
