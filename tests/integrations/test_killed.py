"""Lightning and Hugging Face runs that are killed resume with the draws of a run that was not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BEGINNING = """
import hashlib, os, signal, sys
import torch
from recording import IMAGES, LABELS, auto, network
import outspan

killed = int(sys.argv[1])


class Logged:
    def __init__(self, policy):
        self.policy = policy

    def __getattr__(self, name):
        return getattr(self.policy, name)

    def __call__(self, inputs, labels, *, step, confidence=None):
        if step == killed:
            os.kill(os.getpid(), signal.SIGKILL)
        batch = self.policy(inputs, labels, step=step)
        plan = batch.drawn
        parts = [plan.ops, plan.levels, plan.places, plan.partners]
        print("draw", step, hashlib.sha256(b"".join(part.numpy().tobytes() for part in parts)).hexdigest(), flush=True)
        return batch


policy = Logged(auto(24))
"""
LIGHTNING = """
import lightning
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = network()

    def training_step(self, batch, _):
        losses = outspan.soft_cross_entropy(self.network(batch[0]), batch[1], reduction="none")
        return {"loss": losses.mean(), "losses": losses}

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


callbacks = [outspan.lightning.Augment(policy), ModelCheckpoint("saved", save_last=True)]
trainer = lightning.Trainer(max_epochs=4, callbacks=callbacks, accelerator="cpu", devices=1, logger=False)
resume = "saved/last.ckpt" if os.path.exists("saved/last.ckpt") else None
trainer.fit(Module(), DataLoader(TensorDataset(IMAGES, LABELS), batch_size=4), ckpt_path=resume)
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


options = {"save_steps": 5, "report_to": [], "use_cpu": True, "per_device_train_batch_size": 4, "num_train_epochs": 4}
args = transformers.TrainingArguments("saved", remove_unused_columns=False, **options)
data = StackDataset(pixel_values=IMAGES, labels=LABELS)
trainer = outspan.transformers.AugmentedTrainer(Model(), args, train_dataset=data, policy=policy)
trainer.train(resume_from_checkpoint=os.path.exists("saved/checkpoint-5"))
"""


def run(source: str, folder: Path, killed: int = -1) -> tuple[int, dict[int, str]]:
    """Run a program in a folder. Return its exit status and the digests of its draws, by step."""
    folder.mkdir(exist_ok=True)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", BEGINNING + source, str(killed)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    draws = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("draw ")]
    assert draws, done.stderr
    return done.returncode, {int(step): digest for step, digest in draws}


@pytest.mark.slow
@pytest.mark.parametrize(("source", "saved"), [(LIGHTNING, 12), (TRANSFORMERS, 15)], ids=["lightning", "transformers"])
def test_a_killed_run_resumes_with_the_draws_of_one_that_was_not(tmp_path, source, saved):
    """Lightning saves at the end of an epoch of 6 steps, and the other trainer every 5 steps, here within an epoch."""
    status, whole = run(source, tmp_path / "whole")
    assert status == 0
    assert sorted(whole) == list(range(24))
    status, before = run(source, tmp_path / "killed", killed=17)
    assert status == -9
    assert sorted(before) == list(range(17))
    status, after = run(source, tmp_path / "killed")
    assert status == 0
    assert sorted(after) == list(range(saved, 24))
    assert before | after == whole
