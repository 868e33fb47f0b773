"""The same seed and batches give the same plans and the same chosen rows in every loop."""

from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, SequentialSampler, StackDataset, TensorDataset

import outspan
from recording import IMAGES, LABELS, NORMALIZE, Recorder, batches, check_same_draws, network

pytestmark = pytest.mark.filterwarnings("ignore")  # frameworks warn about few batches, workers and missing loggers
EPOCHS, RATE = 2, 0.1


def uncertain(model):
    return Recorder(outspan.Uncertain(model, outspan.uniform(2), candidates=4, keep=2, preprocess=NORMALIZE, seed=7))


def plain_loop(tmp_path):
    model = network()
    policy, optimizer = uncertain(model), torch.optim.SGD(model.parameters(), lr=RATE)
    for step, (images, labels) in enumerate(batches(4, EPOCHS)):
        batch = policy(images, labels, step=step)
        optimizer.zero_grad()
        cross_entropy(model(batch.inputs), batch.targets).backward()
        optimizer.step()
    return policy.batches


def accelerate_loop(tmp_path):
    from accelerate import Accelerator

    model, accelerator = network(), Accelerator(cpu=True)
    loader = DataLoader(TensorDataset(IMAGES, LABELS), batch_size=4)
    parallel, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=RATE), loader)
    policy = uncertain(model)
    for epoch in range(EPOCHS):
        for i, (images, labels) in enumerate(loader):
            batch = policy(images, labels, step=epoch * len(loader) + i)
            optimizer.zero_grad()
            accelerator.backward(cross_entropy(parallel(batch.inputs), batch.targets))
            optimizer.step()
    return policy.batches


def lightning_loop(tmp_path):
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = network()

        def training_step(self, batch, _):
            return cross_entropy(self.network(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=RATE)

    module = Module()
    policy = uncertain(module.network)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False, "default_root_dir": tmp_path}
    callbacks = [outspan.lightning.Augment(policy)]
    trainer = lightning.Trainer(max_epochs=EPOCHS, callbacks=callbacks, accelerator="cpu", devices=1, **quiet)
    trainer.fit(module, DataLoader(TensorDataset(IMAGES, LABELS), batch_size=4))
    return policy.batches


def transformers_loop(tmp_path):
    import transformers

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.network = network()

        def forward(self, pixel_values):
            return SimpleNamespace(logits=self.network(pixel_values))

    class InOrder(outspan.transformers.AugmentedTrainer):
        def _get_train_sampler(self, *_):
            return SequentialSampler(self.train_dataset)

    model = Model()
    policy = uncertain(model)
    quiet = {"report_to": [], "disable_tqdm": True, "save_strategy": "no", "logging_strategy": "no", "use_cpu": True}
    steps = {"optim": "sgd", "learning_rate": RATE, "lr_scheduler_type": "constant", "max_grad_norm": 0.0}
    sizes = {"per_device_train_batch_size": 4, "num_train_epochs": EPOCHS, "remove_unused_columns": False}
    args = transformers.TrainingArguments(tmp_path, **quiet, **steps, **sizes)
    InOrder(model, args, train_dataset=StackDataset(pixel_values=IMAGES, labels=LABELS), policy=policy).train()
    return policy.batches


@pytest.mark.parametrize("loop", [accelerate_loop, lightning_loop, transformers_loop])
def test_draws_and_choices_are_those_of_a_plain_loop(loop, tmp_path):
    torch.manual_seed(5)  # the draws do not depend on it
    result, expected = loop(tmp_path), plain_loop(tmp_path)
    assert sorted(result) == sorted(expected) == list(range(12))
    for step, batch in result.items():
        check_same_draws(batch, expected[step])
        assert torch.equal(batch.inputs, expected[step].inputs)
        assert torch.equal(batch.targets, expected[step].targets)
        assert torch.allclose(batch.losses, expected[step].losses, rtol=1e-3, atol=1e-4)  # so the models are the same
