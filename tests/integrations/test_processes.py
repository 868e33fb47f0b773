"""Lightning and Hugging Face in two processes: each has its own rows of one plan."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from recording import IMAGES, LABELS, plain

BEGINNING = """
import torch
from recording import IMAGES, LABELS, Recorder, network, plain
import outspan

policy = Recorder(plain())
"""
LIGHTNING = """
import lightning
from torch.utils.data import DataLoader, TensorDataset


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = network()

    def training_step(self, batch, _):
        return torch.nn.functional.cross_entropy(self.network(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


processes = {"strategy": "ddp", "accelerator": "cpu", "devices": 2}
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
trainer = lightning.Trainer(max_epochs=2, callbacks=[outspan.lightning.Augment(policy)], **processes, **quiet)
trainer.fit(Module(), DataLoader(TensorDataset(IMAGES, LABELS), batch_size=4))
rank = trainer.global_rank
"""
TRANSFORMERS = """
import transformers
from torch.utils.data import StackDataset


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.network = network()

    def forward(self, pixel_values):
        return transformers.modeling_outputs.ImageClassifierOutput(logits=self.network(pixel_values))


options = {"save_strategy": "no", "report_to": [], "use_cpu": True, "per_device_train_batch_size": 4, "num_train_epochs": 2}
args = transformers.TrainingArguments("saved", remove_unused_columns=False, **options)
data = StackDataset(pixel_values=IMAGES, labels=LABELS)
outspan.transformers.AugmentedTrainer(Model(), args, train_dataset=data, policy=policy).train()
rank = args.process_index
"""
END = """
drawn = {step: (batch.plan.ops, batch.plan.levels, batch.plan.places) for step, batch in policy.batches.items()}
torch.save(drawn, f"{rank}.pt")
"""
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2")


@pytest.mark.slow
@pytest.mark.parametrize(("source", "launcher"), [(LIGHTNING, ()), (TRANSFORMERS, TORCHRUN)], ids=["lightning", "transformers"])
def test_two_processes_have_their_own_rows_of_one_plan(tmp_path, source, launcher):
    (tmp_path / "train.py").write_text(BEGINNING + source + END)
    paths = os.pathsep.join([str(Path(__file__).parent.parent), str(tmp_path)])
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    options = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True, "timeout": 600}
    done = subprocess.run([sys.executable, *launcher, "train.py"], **options)
    assert done.returncode == 0, done.stderr
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    assert list(first) == list(second) == list(range(6))  # two epochs of 12 images for each process
    for step in first:
        whole = plain()(IMAGES[:8], LABELS[:8], step=step).plan  # the plan of both batches in one process
        for own, other, both in zip(first[step], second[step], (whole.ops, whole.levels, whole.places), strict=True):
            assert torch.equal(torch.cat([own, other]), both)
