"""The callback for Lightning against a plain loop, which calls the policy itself."""

import importlib
import sys
from collections import namedtuple
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, StackDataset, TensorDataset

import outspan
from recording import IMAGES, LABELS, Recorder, auto, batches, check_same_draws, network, plain

lightning = pytest.importorskip("lightning")
from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: E402

from outspan.lightning import Augment  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning warns about few batches, workers and missing loggers
QUIET = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu", "devices": 1}


class Module(lightning.LightningModule):
    """A user's module, which keeps the batches that it gets."""

    def __init__(self, names: tuple[Any, Any] = (0, 1), learns: bool = False) -> None:
        super().__init__()
        self.network, self.names, self.learns = network(), names, learns
        self.trained, self.validated = [], []

    def training_step(self, batch, _):
        self.trained.append(batch)
        inputs, targets = batch[self.names[0]], batch[self.names[1]]
        losses = outspan.soft_cross_entropy(self.network(inputs), targets, reduction="none")
        return {"loss": losses.mean(), "losses": losses} if self.learns else losses.mean()

    def validation_step(self, batch, _):
        self.validated.append(batch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.network.parameters(), lr=0.1)


class Data(lightning.LightningDataModule):
    """A user's data module with a hook of its own."""

    def train_dataloader(self):
        return DataLoader(TensorDataset(IMAGES, LABELS), batch_size=4)

    def on_after_batch_transfer(self, batch, dataloader_idx):
        return [batch[0].flip(-1), batch[1]]


class Resumable(DataLoader):
    """A loader that continues within an epoch; without this Lightning starts again with the first samples of the epoch."""

    def __init__(self) -> None:
        super().__init__(TensorDataset(IMAGES, LABELS), batch_size=4)
        self.skip = self.done = 0

    def __iter__(self):
        (skip, self.skip), self.done = (self.skip, 0), 0
        for i, batch in enumerate(super().__iter__()):
            self.done = i + 1
            if i >= skip:
                yield batch

    def state_dict(self):
        return {"done": self.done}

    def load_state_dict(self, state):
        self.skip = state["done"] % len(self)


def fit(module, callback, tmp_path, data=None, loaders=None, checkpoint=None, **options):
    options = QUIET | {"max_epochs": 2, "enable_checkpointing": False, "default_root_dir": tmp_path} | options
    callbacks = [callback, *options.pop("callbacks", [])]
    trainer = lightning.Trainer(callbacks=callbacks, **options)
    loader = DataLoader(TensorDataset(IMAGES, LABELS), batch_size=4)
    with torch.random.fork_rng():
        if data is not None:
            trainer.fit(module, datamodule=data, ckpt_path=checkpoint)
        else:
            trainer.fit(module, *(loaders or [loader, loader]), ckpt_path=checkpoint)
    return trainer


def test_training_batches_are_those_of_a_plain_loop_and_others_are_unchanged(tmp_path):
    module, callback = Module(), Augment(plain(seed=3))
    fit(module, callback, tmp_path, accumulate_grad_batches=2)
    policy = plain(seed=3)
    assert len(module.trained) == 12
    for step, (batch, (images, labels)) in enumerate(zip(module.trained, batches(4, 2), strict=True)):
        expected = policy(images, labels, step=step)
        assert torch.equal(batch[0], expected.inputs)
        assert torch.equal(batch[1], expected.targets)
    for batch, (images, labels) in zip(module.validated[2:], batches(4, 2), strict=True):  # the first two are a check
        assert torch.equal(batch[0], images)
        assert torch.equal(batch[1], labels)
    assert "on_after_batch_transfer" not in vars(module)  # the module's own hook is back
    assert callback.state_dict() == {}


def test_uncertain_scores_with_the_module_and_chooses_as_a_plain_loop_does(tmp_path):
    module = Module()
    recorder = Recorder(outspan.Uncertain(module.network, outspan.uniform(2), candidates=3))
    fit(module, Augment(recorder), tmp_path)
    model = network()
    policy, optimizer = outspan.Uncertain(model, outspan.uniform(2), candidates=3), torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (images, labels) in enumerate(batches(4, 2)):
        batch = policy(images, labels, step=step)
        check_same_draws(recorder.batches[step], batch)
        optimizer.zero_grad()
        outspan.soft_cross_entropy(model(batch.inputs), batch.targets).backward()
        optimizer.step()


@pytest.mark.parametrize("every", [4, 6])  # within an epoch, and at its end
def test_a_resumed_run_has_the_draws_and_the_state_of_an_unbroken_one(tmp_path, every):
    whole, module, resumed = Recorder(auto(24)), Module(learns=True), Module(learns=True)
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=every, save_top_k=-1, filename="{step}")
    options = {"callbacks": [saving], "enable_checkpointing": True, "max_epochs": 4}
    fit(module, Augment(whole), tmp_path, loaders=[Resumable()], **options)
    state = {name: tensor.clone() for name, tensor in whole.state_dict().items()}
    checkpoint = tmp_path / f"step={2 * every}.ckpt"
    part = Recorder(auto(24))
    assert "adapted" in torch.load(checkpoint, weights_only=True)["callbacks"]["outspan.lightning.Augment"]
    fit(resumed, Augment(part), tmp_path, loaders=[Resumable()], max_epochs=4, checkpoint=checkpoint)
    assert sorted(part.batches) == list(range(2 * every, 24))
    for step, batch in part.batches.items():
        check_same_draws(batch, whole.batches[step])
    assert all(torch.equal(tensor, state[name]) for name, tensor in part.state_dict().items())
    assert all(map(torch.equal, resumed.network.parameters(), module.network.parameters()))


def test_a_learning_policy_learns_as_in_a_plain_loop(tmp_path):
    policy, by_hand, module = auto(12), auto(12), Module(learns=True)
    fit(module, Augment(policy), tmp_path)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (images, labels) in enumerate(batches(4, 2)):
        batch = by_hand(images, labels, step=step)
        losses = outspan.soft_cross_entropy(model(batch.inputs), batch.targets, reduction="none")
        optimizer.zero_grad()
        losses.mean().backward()
        optimizer.step()
        by_hand.learn(losses.detach(), step=step)
    expected = by_hand.state_dict()
    assert all(torch.allclose(tensor, expected[name]) for name, tensor in policy.state_dict().items())
    assert any(not torch.equal(tensor, expected[name]) for name, tensor in auto(12).state_dict().items())


def test_a_data_module_and_its_hook_are_kept(tmp_path):
    module, data = Module(), Data()
    fit(module, Augment(plain()), tmp_path, data=data)
    for step, (batch, (images, labels)) in enumerate(zip(module.trained, batches(4, 2), strict=True)):
        assert torch.equal(batch[0], plain()(images.flip(-1), labels, step=step).inputs)
    assert "on_after_batch_transfer" not in vars(data)
    assert "on_after_batch_transfer" not in vars(module)


def test_a_hook_of_the_module_itself_is_put_back(tmp_path):
    module = Module()
    own = module.on_after_batch_transfer = lambda batch, dataloader_idx: [batch[0] // 2, batch[1]]
    fit(module, Augment(plain()), tmp_path)
    assert torch.equal(module.trained[0][0], plain()(IMAGES[:4] // 2, LABELS[:4], step=0).inputs)
    assert module.on_after_batch_transfer is own


def test_the_hook_is_put_back_after_an_error(tmp_path, unchecked):
    module = Module()
    floats = DataLoader(TensorDataset(IMAGES.float(), LABELS), batch_size=4)
    with pytest.raises(ValueError, match=r"images must be a uint8 tensor .* use v2.PILToTensor\(\)"):
        fit(module, Augment(plain()), tmp_path, loaders=[floats])
    assert "on_after_batch_transfer" not in vars(module)
    fit(module, Augment(plain()), tmp_path)
    assert torch.equal(module.trained[0][0], plain()(IMAGES[:4], LABELS[:4], step=0).inputs)


def test_dictionaries_named_tuples_and_further_elements(tmp_path):
    expected = plain()(IMAGES[:4], LABELS[:4], step=0)
    rows = torch.arange(24)
    columns = StackDataset(image=IMAGES, label=LABELS, row=rows)
    module = Module(("image", "label"))
    loader = DataLoader(columns, batch_size=4)
    fit(module, Augment(plain(), inputs="image", labels="label"), tmp_path, loaders=[loader, loader])
    assert torch.equal(module.trained[0]["image"], expected.inputs)
    assert torch.equal(module.trained[0]["row"], rows[:4])
    assert torch.equal(module.validated[0]["image"], IMAGES[:4])
    sample = namedtuple("sample", ("row", "image", "label"))
    loader = DataLoader([sample(*values) for values in zip(rows, IMAGES, LABELS, strict=True)], batch_size=4)
    module = Module((1, 2))
    fit(module, Augment(plain(), inputs=1, labels=2), tmp_path, loaders=[loader])
    assert torch.equal(module.trained[0].image, expected.inputs)
    assert torch.equal(module.trained[0].row, rows[:4])


@pytest.mark.parametrize(("precision", "dtype"), [("bf16-true", torch.bfloat16), ("bf16-mixed", torch.float32)])
def test_inputs_have_the_type_of_the_model(tmp_path, precision, dtype):
    module = Module()
    policy = outspan.Uncertain(module.network, outspan.uniform(2), preprocess=None if dtype == torch.float32 else bf16())
    fit(module, Augment(policy), tmp_path, precision=precision, max_epochs=1)
    assert module.trained[0][0].dtype == dtype
    assert module.trained[0][1].dtype == dtype


def bf16() -> outspan.Normalize:
    return outspan.Normalize((0.5,) * 3, (0.25,) * 3, torch.bfloat16)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (outspan.natural(), r"policy must be a policy .*: outspan.Plain\(proposal, classes=10, preprocess=normalize\) makes"),
        (
            outspan.dropin.RandAugment(seed=0),
            r"policy must be a policy .* RandAugment\(.*, a drop-in transform: .* outspan.Plain\(outspan.randaugment\(",
        ),
        (outspan.Plain, "policy must be a policy such as outspan.Plain"),
        ("auto", r"policy must be a policy such as outspan.Plain\(...\), got 'auto'"),
    ],
)
def test_what_is_not_a_policy_is_refused(unchecked, policy, message):
    with pytest.raises(ValueError, match=message):
        Augment(policy)


def test_the_older_package_has_its_own_callbacks(monkeypatch):
    older = SimpleNamespace(Callback=type("Callback", (), {}))
    helpers = SimpleNamespace(is_overridden=None)
    for name, module in {"": older, ".utilities": None, ".utilities.model_helpers": helpers}.items():
        monkeypatch.setitem(sys.modules, f"pytorch_lightning{name}", module)
    monkeypatch.delitem(sys.modules, "lightning.pytorch")
    monkeypatch.delitem(sys.modules, "outspan.integrations.lightning")
    assert issubclass(importlib.import_module("outspan.integrations.lightning").Augment, older.Callback)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    monkeypatch.delitem(sys.modules, "outspan.integrations.lightning")
    with pytest.raises(ImportError, match=r"outspan.lightning needs Lightning: pip install 'outspan\[lightning\]'"):
        outspan.lightning.Augment  # noqa: B018


def test_wrong_batches_and_modules_are_refused(tmp_path, unchecked):
    with pytest.raises(ValueError, match=r"the batch has no element 'image' for inputs, it is a list of 2 elements: pass Aug"):
        fit(Module(), Augment(plain(), inputs="image"), tmp_path)
    loader = DataLoader(StackDataset(image=IMAGES, label=LABELS), batch_size=4)
    with pytest.raises(ValueError, match="no element 0 for inputs, it is a dictionary with the keys 'image', 'label'"):
        fit(Module(), Augment(plain()), tmp_path, loaders=[loader])
    with pytest.raises(ValueError, match=r'Auto learns from the losses .* return {"loss": losses.mean\(\), "losses": losses}'):
        fit(Module(), Augment(auto(12)), tmp_path)

    class Iterating(Module):
        def training_step(self, dataloader_iter):
            (images, labels), *_ = next(dataloader_iter)
            return super().training_step((images.float(), labels), 0)

    with pytest.raises(ValueError, match="training_step must take a batch, not dataloader_iter"):
        fit(Iterating(), Augment(plain()), tmp_path)


def test_the_state_of_another_policy_is_refused():
    with pytest.raises(ValueError, match="the state of a policy that learns, and policy is Plain: pass the same policy"):
        Augment(plain()).load_state_dict(auto(12).state_dict())


def test_a_checkpoint_without_the_state_of_the_policy_is_refused(tmp_path):
    options = {"callbacks": [ModelCheckpoint(tmp_path, filename="first")], "enable_checkpointing": True, "max_epochs": 1}
    fit(Module(), Augment(plain()), tmp_path, **options)
    module = Module(learns=True)
    with pytest.raises(ValueError, match="the checkpoint has no state of a policy that learns, and policy is Auto: pass the"):
        fit(module, Augment(auto(12)), tmp_path, checkpoint=tmp_path / "first.ckpt")
    assert "on_after_batch_transfer" not in vars(module)
    trainer = lightning.Trainer(callbacks=[Augment(auto(12))], **QUIET)
    trainer.validate(module, DataLoader(TensorDataset(IMAGES, LABELS)), ckpt_path=tmp_path / "first.ckpt")
    assert module.validated
