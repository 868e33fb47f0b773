"""A trainer of Hugging Face transformers that augments its training batches with a policy."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from outspan.integrations.collators import ImageCollator
from outspan.integrations.policies import check_policy, policy_state, restore_policy
from outspan.models.outputs import read_logits
from outspan.policies.protocols import LearningPolicy, Policy
from outspan.text.executor import PadTokens
from outspan.text.tokenized import TokenizedTexts
from outspan.transforms.normalize import DEFAULT_PREPROCESS

try:
    from transformers import Trainer
except ImportError:
    raise ImportError("outspan.transformers needs transformers and accelerate: pip install 'outspan[huggingface]'") from None

_STATE = "outspan"  # the key of the policy's state in trainer_state.json


_ADVICE: Mapping[str, str] = MappingProxyType(  # for a missing column, by its name
    {
        "pixel_values": "pass data_collator=ImageCollator((224, 224)), which reads a column of images",
        "input_ids": 'tokenize the texts, data.map(lambda row: tokenizer(row["text"], truncation=True))',
    }
)
_TRAINER: Any = object  # the class that the mixin is combined with


class Augmenting(_TRAINER):
    """A mixin that makes a trainer of transformers augment its training batches: `class Mine(Augmenting, MyTrainer)`.

    A training batch has uint8 images [B, C, H, W], or the rows of `TokenizedTexts`, and `labels`. The policy replaces both, so
    the model gets the inputs that it takes, and the loss gets soft targets [B, classes]. Bytes are normalized for
    evaluation, too, without augmentation. All other batches are unchanged.

    The draws depend on the policy's seed and on the step: the trainer's `global_step` times `gradient_accumulation_steps`, plus
    the number of the batch since the last update. The state of a policy that learns is in `trainer_state.json`.
    """

    def __init__(self, *args: Any, policy: Policy, **kwargs: Any) -> None:
        self.policy = check_policy(policy)
        if getattr(getattr(policy, "model", None), "main_input_name", None) == "input_ids":
            how = "outspan.text.Classifier(model, tokenizer.pad_token_id), which masks the padding"
            raise ValueError(f"{type(policy).__name__} would score texts without a mask: pass {how}, as its model")
        self._update, self._batch = -1, 0  # the update that this batch is part of, and the number of the batch in it
        self._learned = False  # whether the policy has read the losses of this batch
        self._samples: int | None = None  # of this training batch, before augmentation; None: no training batch
        super().__init__(*args, **kwargs)
        if self.compute_loss_func is None:
            self.compute_loss_func = self._compute_loss
        if isinstance(self.data_collator, ImageCollator):
            self.args.remove_unused_columns = False  # the trainer would remove the images, which no model takes
        name = _main_input(self.model)
        _check_data(self.train_dataset, self.data_collator, policy, name)
        _check_columns("train_dataset", self.train_dataset, self.data_collator, name)
        evaluated = self.eval_dataset if isinstance(self.eval_dataset, dict) else {"": self.eval_dataset}
        for split, data in evaluated.items():
            _check_columns(f"eval_dataset[{split!r}]" if split else "eval_dataset", data, self.data_collator, name)
            if isinstance(data, TokenizedTexts):
                raise ValueError(f"eval_dataset must have the tokens of your own data set, got TokenizedTexts: {_ADVICE[name]}")
        if type(self.model).__module__.startswith("transformers."):  # others may have a head of any size
            _check_classes(getattr(policy, "classes", None), self.model.config.num_labels)
        smoothing = getattr(policy, "label_smoothing", None)
        if smoothing not in (None, self.args.label_smoothing_factor):
            problem = f"the policy's label_smoothing must be that of the losses, {self.args.label_smoothing_factor:g}"
            raise ValueError(f"{problem} (label_smoothing_factor of TrainingArguments), got {smoothing:g}")

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Train, or resume, as the trainer does."""
        self._update = -1
        return super().train(*args, **kwargs)

    def get_train_dataloader(self) -> Any:
        """Return the loader of the training batches; `TokenizedTexts` have their own collator."""
        own = self.data_collator
        if isinstance(self.train_dataset, TokenizedTexts):
            self.data_collator = self.train_dataset.collate
        try:
            return super().get_train_dataloader()
        finally:
            self.data_collator = own

    def training_step(self, model: Any, inputs: Mapping[str, Tensor], *args: Any, **kwargs: Any) -> Tensor:
        """Augment a batch and train on it."""
        if self._update == -1 and (self.state.global_step or _STATE in self.state.stateful_callbacks):
            state, expected = self.state.stateful_callbacks.get(_STATE, {}), policy_state(self.policy)
            restore_policy(self.policy, {name: _as_tensor(value, expected.get(name)) for name, value in state.items()})
        self._batch = self._batch + 1 if self.state.global_step == self._update else 0
        _check_element(
            inputs, "labels", "which the loss takes", ": name the column of class indices 'label', with rename_column"
        )
        self._update, self._learned, self._samples = self.state.global_step, False, len(inputs["labels"])
        inputs = self._augment(self._prepare_inputs(inputs))
        try:
            loss = super().training_step(model, inputs, *args, **kwargs)
        finally:
            self._samples = None
        if isinstance(self.policy, LearningPolicy) and not self._learned:
            how = "call trainer.learn(losses), with one loss per sample, in compute_loss or compute_loss_func"
            raise ValueError(f"{type(self.policy).__name__} learns from the losses of each batch, and got none: {how}")
        return loss

    def prediction_step(self, model: Any, inputs: Mapping[str, Tensor], *args: Any, **kwargs: Any) -> Any:
        """Evaluate a batch. Bytes are normalized as in training."""
        name = _main_input(self.model)
        if _are_bytes(inputs.get(name)):
            inputs = self._prepare_inputs(inputs)
            preprocess = getattr(self.policy, "preprocess", None) or DEFAULT_PREPROCESS
            inputs = {**inputs, name: preprocess(inputs[name])}
        return super().prediction_step(model, inputs, *args, **kwargs)

    def learn(self, losses: Tensor) -> None:
        """Let a policy that learns read the losses of the training batch, one per sample. The default loss does this itself."""
        if isinstance(self.policy, LearningPolicy):
            self.policy.learn(losses.detach(), step=self._step)
            self._learned = True

    @property
    def _step(self) -> int:
        return self._update * self.args.gradient_accumulation_steps + self._batch

    def _augment(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return a training batch with augmented inputs and soft targets."""
        labels, data, name = inputs["labels"], self.train_dataset, _main_input(self.model)
        is_text = isinstance(data, TokenizedTexts)
        if not is_text:
            _check_element(inputs, name, "which the model takes")
        own = data.inputs(inputs) if is_text else inputs[name]
        with self.compute_loss_context_manager():  # candidates are scored as the model trains
            result = self.policy(own, labels, step=self._step)
        if is_text:
            return {**data.arguments(result.inputs), "labels": result.targets}
        return {**inputs, name: result.inputs, "labels": result.targets}

    def _compute_loss(self, outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
        """Return the cross entropy, scaled as the trainer expects it: the mean over all batches of an update."""
        smoothing = self.args.label_smoothing_factor
        logits = read_logits(outputs)
        if self._samples is not None:
            _check_classes(labels.shape[1], logits.shape[1])
        losses = cross_entropy(logits, labels, reduction="none", label_smoothing=smoothing)
        if self._samples is None:
            return losses.mean()
        self.learn(losses)
        if num_items_in_batch is None:
            return losses.mean() / self.current_gradient_accumulation_steps
        return losses.mean() * self._samples / num_items_in_batch

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> Any:
        if state := policy_state(self.policy):
            self.state.stateful_callbacks[_STATE] = {name: tensor.tolist() for name, tensor in state.items()}
        return super()._save_checkpoint(*args, **kwargs)


class AugmentedTrainer(Augmenting, Trainer):
    """The `Trainer` of transformers with augmentation: it takes one more argument, the policy.

    Example::

        policy = outspan.Plain(outspan.natural(), classes=10, preprocess=normalize)
        trainer = AugmentedTrainer(model, args, train_dataset=data, data_collator=ImageCollator((224, 224)), policy=policy)
    """


def _check_data(data: Any, collator: Any, policy: Any, name: str) -> None:
    """Refuse data that cannot become batches for this policy and a model that takes `name`."""
    if isinstance(data, Mapping):
        splits = ", ".join(map(str, data)) or "none"
        raise ValueError(f"train_dataset must be one split, got {type(data).__name__} of {splits}: pass one of them")
    preprocess = getattr(policy, "preprocess", PadTokens())
    if isinstance(data, TokenizedTexts) and preprocess is None:
        how = f"{type(policy).__name__}(..., preprocess=outspan.text.PadTokens())"
        raise ValueError(f"a policy for texts needs a preprocess, which adds the padding, and got none: pass {how}")
    if data is not None and name == "input_ids" and not isinstance(data, TokenizedTexts):
        how = "make it with outspan.transformers.tokenize(data, tokenizer, length=...), because the policy needs the texts"
        raise ValueError(f"train_dataset must be TokenizedTexts, got {type(data).__name__}: {how}")
    if isinstance(collator, ImageCollator):
        channels = len(getattr(preprocess, "mean", ())) or collator.channels
        if channels != collator.channels:
            how = f"pass ImageCollator(size, channels={channels}), or a preprocess with {collator.channels} means"
            problem = f"the policy's preprocess must have {collator.channels} means, one per channel of the images"
            raise ValueError(f"{problem}, got {channels}: {how}")


def _check_columns(split: str, data: Any, collator: Any, name: str) -> None:
    """Refuse a split of `datasets` without the column that the model takes, unless a function or a collator makes it."""
    columns, format = getattr(data, "column_names", None), getattr(data, "format", None)
    makes_columns = isinstance(format, Mapping) and format.get("type") == "custom"  # by a function of the user
    if name in _ADVICE and columns is not None and name not in columns and not makes_columns and _is_default(collator):
        raise ValueError(f"{split} has no column {name!r} (columns: {', '.join(columns)}): {_ADVICE[name]}")


def _check_element(batch: Mapping[str, Tensor], name: str, use: str, how: str = "") -> None:
    if name not in batch:
        raise ValueError(f"the batch has no {name!r}, {use} (elements: {', '.join(batch)}){how}")


def _check_classes(classes: int | None, labels: int) -> None:
    """Refuse a policy whose soft targets have another number of classes than the logits."""
    if classes not in (None, labels):
        problem = f"the policy's classes must be {labels}, the number of labels of the model, got {classes}"
        raise ValueError(f"{problem}: pass classes={labels} to the policy, or num_labels={classes} to the model")


def _is_default(collator: object) -> bool:
    home = getattr(collator, "__module__", "") or type(collator).__module__
    return home.startswith("transformers.")


def _main_input(model: Any) -> str:
    return getattr(model, "main_input_name", "pixel_values")


def _are_bytes(images: object) -> bool:
    return isinstance(images, Tensor) and images.dtype == torch.uint8


def _as_tensor(value: Any, expected: Tensor | None) -> Tensor:
    """Return a tensor of a checkpoint, of the type that the policy expects; numbers are stored exactly."""
    if expected is None:
        return torch.tensor(value)
    tensor = torch.tensor(value, dtype=expected.dtype)
    return tensor.view_as(expected) if tensor.numel() == expected.numel() else tensor  # a list has no shape if it is empty
