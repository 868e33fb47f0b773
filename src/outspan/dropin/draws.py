"""Where the transforms take their random numbers from."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import get_worker_info

from outspan import rng
from outspan.limits import check_whole
from outspan.messages import shown


@dataclass(frozen=True, kw_only=True)
class Transform:
    """What all transforms share: the source of their random numbers."""

    seed: int | None = None
    generator: torch.Generator | None = None

    def __post_init__(self) -> None:
        if self.seed is not None:
            object.__setattr__(self, "seed", check_whole("seed", self.seed, -(2**63), 2**63 - 1))
            if self.generator is not None:
                raise ValueError("pass either seed or generator, got both")
        if not isinstance(self.generator, torch.Generator | None):
            raise ValueError(f"generator must be a torch.Generator, got {shown(self.generator)}: use seed for a number")

    def __getstate__(self) -> dict[str, Any]:
        if self.generator is None:
            return self.__dict__
        # As bytes: a tensor would be shared with workers through a file descriptor, which not all of them can open.
        return self.__dict__ | {"generator": (self.generator.device.type, self.generator.get_state().numpy().tobytes())}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if state["generator"] is not None:
            device, data = state["generator"]
            generator = torch.Generator(device)
            generator.set_state(torch.frombuffer(bytearray(data), dtype=torch.uint8))
            self.__dict__["generator"] = generator


def draw_generator(transform: Transform, step: int | None) -> np.random.Generator:
    """Return the source of all draws of a call."""
    name, source = type(transform).__name__, transform.generator
    if transform.seed is not None:
        if step is None:
            how = f"transform(images, step=step), or leave seed out of {name} to draw from torch's generator"
            raise ValueError(f"step is missing: with a seed pass the number of the batch, {how}")
        return rng.generator(transform.seed, "dropin", name, check_whole("step", step, 0))
    if step is not None:
        raise ValueError(f"step needs a seed: write {name}(seed=0), or leave step out")
    drawn = torch.randint(2**63 - 1, (), generator=source, device="cpu" if source is None else source.device)
    # The workers of a DataLoader have copies of a generator, in the same state. The seed of a worker changes with the epoch.
    worker = None if source is None else get_worker_info()
    return rng.generator(int(drawn), "dropin", name, 0 if worker is None else worker.seed)
