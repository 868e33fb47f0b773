"""Pretrained text classifiers of transformers. Weights must be safetensors, and remote code never runs."""

import socket
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from outspan.devices import default_device
from outspan.messages import first_line, shown
from outspan.shapes import Int64, Num
from outspan.text.pairs import part_types
from outspan.text.tokenizer import Tokenizer, wrap_tokenizer

_CONNECT_TIMEOUT = 5.0  # seconds
_TOKENS = 1 << 16  # number of tokens that are evaluated at once: candidates are several batches


class Classifier(nn.Module):
    """A transformers model as a function of tokens: padding is masked, logits are returned.

    With a `separator`, the tokens after it have type 1 (`token_type_ids`), as in pairs of texts for BERT.
    """

    def __init__(self, model: nn.Module, padding: int, separator: int | None = None) -> None:
        super().__init__()
        self.model, self.padding, self.separator = model, padding, separator

    def forward(self, tokens: Int64[Tensor, "B T"]) -> Num[Tensor, "B classes"]:
        """Return the logits. Without gradients, rows are evaluated in parts."""
        at_once = len(tokens) if torch.is_grad_enabled() else max(1, _TOKENS // tokens.shape[1])
        if len(tokens) <= at_once:
            return self._logits(tokens)
        return torch.cat([self._logits(part) for part in tokens.split(at_once)])

    def _logits(self, tokens: Tensor) -> Tensor:
        types = {} if self.separator is None else {"token_type_ids": part_types(tokens, self.separator, self.padding)}
        return self.model(input_ids=tokens, attention_mask=(tokens != self.padding).long(), **types).logits


def load_classifier(name: str, classes: int, length: int) -> Classifier:
    """Return a classifier by its Hub name or folder. A missing head is initialized at random."""
    transformers = _transformers(name)
    config = _load(name, lambda: transformers.AutoConfig.from_pretrained(name, num_labels=classes, trust_remote_code=False))
    positions = getattr(config, "max_position_embeddings", None)
    if positions is not None and length > positions:
        raise ValueError(f"length must be at most the {positions} positions of {shown(name)}, got {length}")
    config.pad_token_id = _padding(name, config)
    model, loaded = _load(
        name,
        lambda: transformers.AutoModelForSequenceClassification.from_pretrained(
            name, config=config, use_safetensors=True, trust_remote_code=False, dtype=torch.float32,
            ignore_mismatched_sizes=True, output_loading_info=True,  # a head for other classes is replaced
        ),
    )  # fmt: skip
    _check_weights(name, model, {*loaded["missing_keys"], *(key for key, *_ in loaded["mismatched_keys"])})
    classifier = Classifier(model.eval(), config.pad_token_id, _find_separator(name, config))
    try:
        tokens = torch.full((2, length), int(config.pad_token_id == 0))
        tokens[:, -1] = getattr(config, "eos_token_id", None) or tokens[0, 0]  # some models look for the end
        with torch.no_grad():  # some models reserve positions, some take no batches
            classifier(tokens)
    except (RuntimeError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"model {shown(name)} does not take texts of {length} tokens ({first_line(error)})") from None
    return classifier


def _find_separator(name: str, config: Any) -> int | None:
    """Return the token between the texts of a pair, for a model with token types."""
    if (getattr(config, "type_vocab_size", None) or 0) < 2:
        return None
    try:
        return load_tokenizer(name).separator
    except ValueError:  # weights without a tokenizer
        return None


def _check_weights(name: str, model: Any, not_loaded: Set[str]) -> None:
    """Refuse the weights of another model: only the head and a pooler may be initialized at random.

    `not_loaded` are the names of the tensors that the weights do not have, or have in another shape.
    """
    body = [key for key in model.state_dict() if key.startswith(f"{model.base_model_prefix}.")]
    absent = not_loaded & {*body}
    if len(absent) > len(body) // 10:
        raise ValueError(
            f"model {shown(name)}: its weights fit {len(body) - len(absent)} of {len(body)} tensors: another model's?"
        )


def load_published_tokenizer(name: str) -> Any:
    """Return the fast tokenizer of a model as transformers loads it, by its Hub name or folder."""
    transformers = _transformers(name)
    loaded = _load(name, lambda: transformers.AutoTokenizer.from_pretrained(name, use_fast=True, trust_remote_code=False))
    if not getattr(loaded, "is_fast", False):
        raise ValueError(f"model {shown(name)} has no fast tokenizer (tokenizer.json)")
    return loaded


def load_tokenizer(name: str) -> Tokenizer:
    """Return the fast tokenizer of a model, by its Hub name or folder."""
    loaded, transformers = load_published_tokenizer(name), _transformers(name)
    config = _load(name, lambda: transformers.AutoConfig.from_pretrained(name, trust_remote_code=False))
    return _load(name, lambda: wrap_tokenizer(loaded.backend_tokenizer, _padding(name, config)))


def load_mask_model(name: str) -> tuple[Any, Any]:
    """Return the tokenizer and the masked language model of a name or folder, on the default device."""
    tokenizer, transformers = load_published_tokenizer(name), _transformers(name)
    options = {"use_safetensors": True, "trust_remote_code": False, "dtype": torch.float32, "output_loading_info": True}
    model, loaded = _load(name, lambda: transformers.AutoModelForMaskedLM.from_pretrained(name, **options))
    if missing := loaded["missing_keys"]:
        how = "use one such as google-bert/bert-base-uncased"
        raise ValueError(f"model {shown(name)} is no masked language model (its weights have no {min(missing)}): {how}")
    return tokenizer, model.eval().to(default_device())


def refuse_pickles(name: str) -> None:
    """Refuse a folder whose weights are only a pickle: loading one can run code."""
    folder = Path(name)
    if folder.is_dir() and not any(folder.glob("*.safetensors")):
        pickled = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5") for path in folder.glob(pattern))
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
    _check_reachable(name)
    return transformers


def _check_reachable(name: str) -> None:
    """Refuse a model that is neither here nor can be fetched. Without this, the Hub's client tries again for a minute."""
    from huggingface_hub import constants, try_to_load_from_cache  # pyright: ignore[reportMissingImports]

    is_here = Path(name).is_dir() or constants.HF_HUB_OFFLINE or name.count("/") > 1
    if is_here or getproxies() or isinstance(try_to_load_from_cache(name, "config.json"), str):
        return
    url = urlsplit(constants.ENDPOINT)
    try:
        socket.create_connection((url.hostname or "", url.port or 443), timeout=_CONNECT_TIMEOUT).close()
    except OSError as error:
        how = "without the hub, give a folder: --model FOLDER"
        raise ValueError(f"model {shown(name)} cannot be loaded ({url.hostname} cannot be reached: {error}); {how}") from None


def _padding(name: str, config: Any) -> int:
    """Return the padding token, or if there is none, the end-of-text token."""
    numbers = [getattr(config, key, None) for key in ("pad_token_id", "eos_token_id")]
    known = [number for number in numbers if isinstance(number, int)]
    if not known:
        raise ValueError(f"model {shown(name)} names no token for padding (pad_token_id in config.json)")
    return known[0]


@contextmanager
def quietly() -> Iterator[None]:
    """Turn off the messages of transformers: a new head is normal in fine-tuning. Retries of the Hub are still shown."""
    from transformers.utils import logging  # pyright: ignore[reportMissingImports]

    before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()


def _load(name: str, load: Callable[[], Any]) -> Any:
    """Load from the Hub or a folder. Any failure raises a ValueError of one line."""
    try:
        with quietly():
            return load()
    except (OSError, ValueError, RuntimeError, LookupError, TypeError, AttributeError, ImportError, SafetensorError) as error:
        how = "" if Path(name).is_dir() else "; without the hub, give a folder: --model FOLDER"
        raise ValueError(f"model {shown(name)} cannot be loaded ({first_line(error)}){how}") from None
