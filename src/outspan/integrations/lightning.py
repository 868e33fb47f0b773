"""The callback for Lightning: it applies a policy to the training batches."""

import contextlib
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor

from outspan.integrations.policies import check_policy, policy_state, restore_policy
from outspan.messages import shown
from outspan.policies.protocols import LearningPolicy, Policy

try:
    if TYPE_CHECKING or "pytorch_lightning" not in sys.modules or "lightning.pytorch" in sys.modules:
        from lightning.pytorch import Callback
        from lightning.pytorch.utilities.model_helpers import is_overridden
    else:  # the older name of the same package; its trainer takes its own callbacks only
        from pytorch_lightning import Callback
        from pytorch_lightning.utilities.model_helpers import is_overridden
except ImportError:
    raise ImportError("outspan.lightning needs Lightning: pip install 'outspan[lightning]'") from None

_HOOK = "on_after_batch_transfer"


class Augment(Callback):
    """Augment the training batches with a policy. Batches for validation, testing and prediction are not changed.

    Example::

        policy = outspan.Plain(outspan.natural(), classes=10, preprocess=normalize)
        trainer = lightning.Trainer(max_epochs=10, callbacks=[outspan.lightning.Augment(policy)])

    The inputs and the labels of a batch are replaced, after it is on the device of the module: by inputs that are ready for the
    model, and by soft targets [B, classes]. All other elements are unchanged. The draws depend on the policy's seed and on
    the number of batches so far, which Lightning stores in its checkpoints.

    A policy that learns, such as `Auto`, reads the losses that `training_step` returns:
    `return {"loss": losses.mean(), "losses": losses}`, one per sample. Its state is part of Lightning's checkpoints.

    Args:
        policy: The policy. `Uncertain` takes the module, or its network, as model.
        inputs: Index or key of the inputs in a batch.
        labels: Index or key of the labels in a batch.
    """

    def __init__(self, policy: Policy, *, inputs: int | str = 0, labels: int | str = 1) -> None:
        self.policy = check_policy(policy)
        self.inputs, self.labels = inputs, labels
        self._step = -1  # the number of the last batch that was augmented
        self._undo: Callable[[], None] | None = None  # puts the hook back that `setup` has replaced

    @property
    def state_key(self) -> str:
        """The key of the state in Lightning's checkpoints."""
        return "outspan.lightning.Augment"

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Wrap the hook that is called with each batch on the device. A callback cannot replace a batch in any other way."""
        if stage != "fit":
            return
        self._restore()
        owner = _owner(trainer.datamodule, pl_module)
        original, own = getattr(owner, _HOOK), vars(owner).get(_HOOK)

        def augment(batch: Any, dataloader_idx: int) -> Any:
            batch = original(batch, dataloader_idx)
            return self._augment(trainer, batch) if trainer.training else batch

        setattr(owner, _HOOK, augment)
        self._undo = partial(delattr, owner, _HOOK) if own is None else partial(setattr, owner, _HOOK, own)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Put the module's own hook back."""
        self._restore()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Put the module's own hook back: Lightning does not call `teardown` then."""
        self._restore()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Let a policy that learns read the losses of the batch."""
        if self._step != trainer.fit_loop.epoch_loop.total_batch_idx:
            problem = f"Augment did not get the batch: {_HOOK} was not called"
            raise ValueError(f"{problem}; training_step must take a batch, not dataloader_iter")
        if isinstance(self.policy, LearningPolicy):
            self.policy.learn(_losses(outputs, type(self.policy).__name__), step=self._step)

    def _restore(self) -> None:
        if self._undo is not None:
            self._undo()
            self._undo = None

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state of a policy that learns, for Lightning's checkpoint."""
        return policy_state(self.policy)

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:
        """Refuse to resume a policy that learns without its state. Lightning does not call `load_state_dict` then."""
        if trainer.state.fn == "fit" and self.state_key not in checkpoint["callbacks"]:
            restore_policy(self.policy, {})

    def load_state_dict(self, state_dict: dict[str, Tensor]) -> None:
        """Restore the state of a policy that learns."""
        restore_policy(self.policy, state_dict)

    def _augment(self, trainer: Any, batch: Any) -> Any:
        self._step = trainer.fit_loop.epoch_loop.total_batch_idx + 1
        inputs, labels = (_element(batch, name, key) for name, key in (("inputs", self.inputs), ("labels", self.labels)))
        plugin = trainer.precision_plugin
        mixed = str(plugin.precision).endswith("-mixed")
        with plugin.forward_context() if mixed else contextlib.nullcontext():  # candidates are scored as the model trains
            result = self.policy(inputs, labels, step=self._step)
        inputs, targets = plugin.convert_input([result.inputs, result.targets])
        return _replaced(batch, {self.inputs: inputs, self.labels: targets})


def _owner(data: Any, module: Any) -> Any:
    """Return the object whose hook Lightning calls: the data module, if it or neither has its own, else the module."""
    if data is not None and (is_overridden(_HOOK, data) or not is_overridden(_HOOK, module)):
        return data
    return module


def _element(batch: Any, name: str, key: int | str) -> Any:
    """Return an element of a batch. A batch without it raises a ValueError."""
    if isinstance(batch, Mapping):
        known, kind = list(batch), f"a dictionary with the keys {', '.join(map(repr, batch))}"
    elif isinstance(batch, tuple | list):
        known, kind = range(len(batch)), f"a {type(batch).__name__} of {len(batch)} elements"
    else:
        known, kind = (), f"a {type(batch).__name__}"
    if key in known:
        elements: Any = batch
        return elements[key]
    how = "pass Augment(policy, inputs=..., labels=...) with their positions in a tuple or keys of a dictionary"
    raise ValueError(f"the batch has no element {shown(key)} for {name}, it is {kind}: {how}")


def _replaced(batch: Any, elements: dict[Any, Tensor]) -> Any:
    """Return a batch of the same type with other elements."""
    if isinstance(batch, Mapping):
        return {**batch, **elements}
    values = [elements.get(i, value) for i, value in enumerate(batch)]
    return type(batch)(*values) if hasattr(batch, "_fields") else type(batch)(values)


def _losses(outputs: Any, policy: str) -> Tensor:
    """Return the losses that `training_step` returned."""
    losses = outputs.get("losses") if isinstance(outputs, Mapping) else None
    if isinstance(losses, Tensor):
        return losses.detach()
    how = 'return {"loss": losses.mean(), "losses": losses} from training_step, with one loss per sample (reduction="none")'
    raise ValueError(f"{policy} learns from the losses of each batch, and training_step returned none: {how}")
