"""Initial weights: those that torchvision publishes for ResNets, or those of a safetensors file.

The published files are pickles, which can run code when they are read. A file is read only if its SHA-256 is the one
below, so it is the file that torchvision has published, and by `torch.load(weights_only=True)`, which builds tensors only.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from outspan.downloads import Source, download, root
from outspan.files import digest_of
from outspan.messages import first_line, shown

PUBLISHED_WEIGHTS = "published"  # the value of `weights` for those that the authors of a model publish
_TORCHVISION = "https://download.pytorch.org/models"
RESNETS: Mapping[int, Source] = MappingProxyType(  # by depth: IMAGENET1K_V1
    {
        18: Source(f"{_TORCHVISION}/resnet18-f37072fd.pth", "f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec"),
        34: Source(f"{_TORCHVISION}/resnet34-b627a593.pth", "b627a593bcbe140c234610266fe4f8ae95ea42fc881d091c9b6052e6b1d0590f"),
        50: Source(f"{_TORCHVISION}/resnet50-0676ba61.pth", "0676ba61b6795bbe1773cffd859882e5e297624d384b6993f7c9e683e722fb8a"),
        101: Source(
            f"{_TORCHVISION}/resnet101-63fe2227.pth", "63fe2227b86e8f1f2063f43a75c84d195911b6a0eace650907dd3dc62dd49a0a"
        ),
    }
)


def read_published(source: Source) -> dict[str, Tensor]:
    """Return the tensors of a published file. It is downloaded if it is not there, into $OUTSPAN_DATA/weights."""
    path = root() / "weights" / source.name
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        download(source, path)
    except ValueError as error:
        raise ValueError(f"{error}; without network access use --set weights=FILE.safetensors") from None
    if digest_of(path) != source.sha256:
        raise ValueError(f"{path}: its SHA-256 is not {source.sha256}: remove it, and run the command again")
    return torch.load(path, map_location="cpu", weights_only=True)


def read_weights(weights: str) -> dict[str, Tensor]:
    """Return the tensors of a file, or the tensors of the model if the file is a checkpoint of this library."""
    if Path(weights).is_dir():
        files = sorted(path.name for path in Path(weights).glob("*.safetensors"))
        how = f"pass a file in it, {' or '.join(files)}" if files else "it has no .safetensors file"
        raise ValueError(f"weights {weights!r}: a folder, not a file: {how}")
    if not Path(weights).is_file():
        raise ValueError(f"weights {weights!r}: no such file (allowed: empty, {PUBLISHED_WEIGHTS!r}, or a file)")
    try:
        tensors = safetensors.torch.load_file(weights)
    except (OSError, SafetensorError) as error:
        how = "a pickle can run code when it is read: convert it with safetensors.torch.save_file"
        raise ValueError(f"weights {weights!r}: not safetensors ({first_line(error)}); {how}") from None
    of_model = {key.removeprefix("model."): tensor for key, tensor in tensors.items() if key.startswith("model.")}
    return of_model or tensors


def load_weights(model: nn.Module, tensors: Mapping[str, Tensor], head: str) -> None:
    """Load weights into a model. The layer `head` keeps its own if the number of classes differs.

    Tensors of another model raise a ValueError. The counters of batch normalization may be missing: nothing reads them.
    """
    own = model.state_dict()
    if any(name in tensors and tensors[name].shape != own[name].shape for name in (f"{head}.weight", f"{head}.bias")):
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(f"{head}.")}
    optional = {name for name in own if name.endswith("num_batches_tracked") or name.startswith(f"{head}.")}
    if missing := own.keys() - tensors.keys() - optional:
        raise ValueError(f"the weights have no tensor for {min(missing)!r}: another model's?")
    if unknown := tensors.keys() - own.keys():
        raise ValueError(f"the weights have a tensor {shown(min(unknown))}, which the model does not have: another model's?")
    for name, tensor in tensors.items():
        if tensor.shape != own[name].shape:
            how = "; for grey images set channels=3" if name == next(iter(own)) else ""
            raise ValueError(
                f"tensor {name!r} of the weights is {list(tensor.shape)}, the model's {list(own[name].shape)}{how}"
            )
    model.load_state_dict(dict(tensors), strict=False)
