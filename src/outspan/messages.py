"""Parts of messages."""

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from types import MappingProxyType

_LONG_LIST = 50  # names
# Names that other libraries use, and the names that they have here.
ALIASES: Mapping[str, str] = MappingProxyType(
    {
        # keys of a recipe
        "accumulation_steps": "accumulate",
        "arch": "model",
        "augmentation": "policy",
        "batch_size": "batch",
        "clip_grad": "clip",
        "dataset": "data",
        "ema_decay": "ema",
        "grad_clip": "clip",
        "gradient_accumulation_steps": "accumulate",
        "image_size": "size",
        "img_size": "size",
        "l2": "weight_decay",
        "learning_rate": "lr",
        "lr_scheduler": "schedule",
        "max_epochs": "epochs",
        "max_grad_norm": "clip",
        "max_length": "length",
        "num_epochs": "epochs",
        "num_ops": "depth",
        "pretrained": "weights",
        "random_seed": "seed",
        "scheduler": "schedule",
        "smoothing": "label_smoothing",
        "wd": "weight_decay",
        # models and policies
        "aa": "autoaugment",
        "cnn": "convnet",
        "ra": "randaugment",
        "ta": "trivialaugment",
        # transforms
        "crop": "random_crop",
        "erase": "cutout",
        "flip": "horizontal_flip",
        "gaussian_blur": "blur",
        "hflip": "horizontal_flip",
        "random_erasing": "cutout",
        "saturation": "color",
        "shear": "shear_x",
        "translate": "translate_x",
        "vflip": "vertical_flip",
    }
)


def unknown(category: str, name: str, known: Collection[str], *others: str) -> ValueError:
    """Return the error for an unknown name. It suggests a similar name, if there is one, and lists all, then `others`.

    A long list is left out if there is a suggestion.
    """
    near, problem = suggestion(name, known), f"unknown {category} {shown(name)}"
    if near and len(known) > _LONG_LIST:
        return ValueError(f"{problem}, did you mean {near!r}?")
    hint = f", did you mean {near!r}?" if near else ""
    return ValueError(f"{problem}{hint} (known: {', '.join([*known, *others]) or 'none'})")


def suggestion(name: str, known: Collection[str]) -> str:
    """Return the known name that is meant: that of an alias, or a similar one. Return "" if there is none.

    >>> suggestion("learning_rate", ("length", "lr")), suggestion("epoch", ("epochs", "batch")), suggestion("ops", ("crop",))
    ('lr', 'epochs', '')
    """
    if (alias := ALIASES.get(str(name).lower(), "")) in known:
        return alias
    near = get_close_matches(str(name)[:100], known, n=1, cutoff=0.65)  # a long text would take minutes
    return near[0] if near else ""


def first_line(error: BaseException) -> str:
    """Return the first line of another library's error message, cut to 300 characters, or the error's type if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]


def shown(value: object) -> str:
    """Return a value as an error message shows it: its repr, cut to 80 characters."""
    if type(value) is int and value.bit_length() > 256:
        return f"a whole number of {value.bit_length()} bits"  # printing it is slow, or refused
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def show_seconds(seconds: float) -> str:
    """Return a time as tables show it: with one decimal, but a time below 1 s with three digits.

    >>> show_seconds(0.08341), show_seconds(3.14159), show_seconds(1234.5)
    ('0.0834', '3.1', '1,234.5')
    """
    return f"{seconds:.3g}" if seconds < 1 else f"{seconds:,.1f}"


def printable(text: object, keep: str = "") -> str:
    r"""Return a text with all non-printable characters escaped as in Python, except those in `keep`.

    >>> print(printable("cat\x1b[31m\n"))
    cat\x1b[31m\n
    """
    return "".join(
        character if character.isprintable() or character in keep else repr(character)[1:-1] for character in str(text)
    )
