"""Samples as a page shows them: images as pictures, texts as words with the changes highlighted."""

import difflib
import io
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from outspan.data.splits import Samples
from outspan.figures.markup import Markup, element, image
from outspan.plan import Plan
from outspan.shapes import UInt8
from outspan.text.executor import apply as apply_to_texts
from outspan.text.tokens import Passages
from outspan.transforms.apply import apply
from outspan.transforms.normalize import Preprocess

_LOSSLESS = 64  # pixels of the longer side up to which an image is stored as PNG
_SIDE = 112  # of larger images, which are stored as JPEG
_WORDS = 90  # of a text that are shown
TILES: Mapping[str, str] = MappingProxyType({"images": "tiles", "texts": "tiles wide"})  # the style of a list of samples


def picture(pixels: UInt8[Tensor, "C H W"], alt: str) -> Markup:
    """Return an image as part of the page: small ones without loss, others reduced."""
    array = pixels.cpu().permute(1, 2, 0).numpy()
    shown = Image.fromarray(array[..., 0] if array.shape[-1] == 1 else array)
    buffer, is_small = io.BytesIO(), max(shown.size) <= _LOSSLESS
    if is_small:
        shown.save(buffer, "PNG", optimize=True)
    else:
        shown.thumbnail((_SIDE, _SIDE))
        shown.save(buffer, "JPEG", quality=80)
    return image(buffer.getvalue(), "png" if is_small else "jpeg", alt, width=shown.width, height=shown.height)


def show_samples(samples: Samples, rows: Sequence[int], alts: Sequence[str]) -> list[Markup]:
    """Return some samples of data as a page shows them. `alts` are the texts for those who do not see the images."""
    return _SHOWN[samples.noun](samples, rows, alts)


def name_of(samples: Samples, row: int) -> str:
    """Return the name of a sample's file, or its number if it has no file."""
    paths = getattr(samples, "paths", None)
    return f"{samples.noun.removesuffix('s')} {row:,}" if paths is None else paths[row].name


def label_names(classes: Sequence[str], label: int | list[bool]) -> str:
    """Return the class of a sample, or its classes, separated by commas."""
    if isinstance(label, int):
        return classes[label]
    return ", ".join(name for name, has in zip(classes, label, strict=True) if has) or "no class"


def show_augmented(noun: str, inputs: Any, plan: Plan, preprocess: Preprocess, alts: Sequence[str]) -> list[Markup]:
    """Return the outputs of a plan on a batch of "images" or "texts" as a page shows them."""
    return _AUGMENTED[noun](inputs, plan, preprocess, alts)


def _show_images(samples: Any, rows: Sequence[int], alts: Sequence[str]) -> list[Markup]:
    if not rows:
        return []
    images, _ = next(iter(samples.batches([torch.tensor(rows)], torch.device("cpu"))))
    return [picture(pixels, alt) for pixels, alt in zip(images, alts, strict=True)]


def _show_texts(samples: Any, rows: Sequence[int], alts: Sequence[str]) -> list[Markup]:
    return [element("blockquote", shorten(samples.texts[row])) for row in rows]


def _augment_images(images: Tensor, plan: Plan, preprocess: Any, alts: Sequence[str]) -> list[Markup]:
    return [picture(pixels, alt) for pixels, alt in zip(apply(images, plan, fill=preprocess.fill), alts, strict=True)]


def _augment_texts(passages: Passages, plan: Plan, preprocess: Any, alts: Sequence[str]) -> list[Markup]:
    before = _decode(passages, apply_to_texts(passages, Plan.of([[]] * len(passages))))
    after = _decode(passages, apply_to_texts(passages, plan))
    sources = plan.source[plan.out].tolist()
    return [highlight_changes(before[source], text) for source, text in zip(sources, after, strict=True)]


def _decode(passages: Passages, tokens: Tensor) -> list[str]:
    return passages.split.corpus.tokenizer.backend.decode_batch(tokens.tolist(), skip_special_tokens=True)


_SHOWN: Mapping[str, Callable[[Any, Sequence[int], Sequence[str]], list[Markup]]] = MappingProxyType(
    {"images": _show_images, "texts": _show_texts}
)
_AUGMENTED: Mapping[str, Callable[[Any, Plan, Any, Sequence[str]], list[Markup]]] = MappingProxyType(
    {"images": _augment_images, "texts": _augment_texts}
)


def shorten(text: str) -> str:
    """Return the first words of a text."""
    words = text.split()
    return " ".join(words[:_WORDS]) + (" …" if len(words) > _WORDS else "")


def highlight_changes(before: str, after: str) -> Markup:
    """Return a text in which the words that differ from another text are marked: removed ones, then inserted ones.

    >>> str(highlight_changes("a good film", "a great film"))
    '<blockquote>a <del>good</del> <ins>great</ins> film</blockquote>'
    """
    old, new = before.split()[: 2 * _WORDS], after.split()[: 2 * _WORDS]
    parts: list[object] = []
    for kind, i, j, k, m in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            parts.append(" ".join(old[i:j]))
            continue
        parts += [element("del", " ".join(old[i:j]))] * (j > i) + [element("ins", " ".join(new[k:m]))] * (m > k)
    return element("blockquote", [piece for part in parts for piece in (part, " ")][:-1])
