"""The one loop. Starting and resuming are one call: it is a function of the recipe, the state and the step."""

import copy
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from outspan import models, rng
from outspan.config import Recipe, differing, stored_recipe, write_recipe
from outspan.data.sets import SETS, Data, as_read, hold_out, is_textual, load_for
from outspan.files import digest_of, remove_partials, write_lines, write_whole
from outspan.messages import first_line
from outspan.models.evaluating import evaluating
from outspan.models.from_timm import PUBLISHED
from outspan.plan import Plan
from outspan.policies.batch import Batch
from outspan.policies.files import file_and_function
from outspan.policies.protocols import LearningPolicy
from outspan.policies.table import build_policy, check_noun, find_policy
from outspan.training import Diverged, OnStep, Progress, Stopped, checkpoint, compositions
from outspan.training.graphs import Learner, Replayed
from outspan.training.metadata import RUN, check_metadata
from outspan.training.state import State, lr_at, new_state, take_step
from outspan.training.trained import accuracy, check_same_data, last_step

_PATIENCE = 20  # a large model is saved no oftener than takes a twentieth of the time


@dataclass(frozen=True)
class Summary:
    """What a run came to, after its last epoch."""

    accuracy: float  # on the test split, last epoch
    loss: float  # on train, averaged over the last epoch
    steps: int
    seconds: float  # of training, over every start
    chance: float  # what always naming the largest class of the test split comes to
    metrics: list[dict[str, Any]] = field(repr=False)  # one an epoch


class _Unread:
    """Losses and choices that the device may still be working on: read together, so that no step waits for it."""

    def __init__(self, depth: int, device: torch.device) -> None:
        self.depth = depth
        self.limit = 1 if device.type == "cpu" else 50
        self.steps: list[tuple[Tensor, Plan, Tensor | None, Tensor | None]] = []
        self.last = math.nan

    def add(self, state: State, losses: Tensor, batch: Batch) -> None:
        self.steps.append((losses.mean(), batch.drawn, batch.chosen, batch.losses))
        if len(self.steps) >= self.limit:
            self.read(state)

    def read(self, state: State) -> None:
        """Add what is there to the epoch so far, step by step: the sums do not depend on when they are read."""
        for i, (loss, drawn, chosen, losses) in enumerate(self.steps):
            self.last = loss.item()
            if not math.isfinite(self.last):
                at = state.step - len(self.steps) + i
                raise Diverged(f"the loss is {self.last} at step {at}, epoch {len(state.metrics)}: try a smaller lr")
            state.losses += self.last
            if chosen is not None and losses is not None:
                compositions.count(state.chosen, drawn, chosen, losses, self.depth)
        self.steps.clear()


def train(
    recipe: Recipe,
    *,
    out: Path,
    device: str | torch.device = "cpu",
    data: Data | None = None,
    compile: bool = False,
    graphs: bool = True,
    deterministic: bool = False,
    tensorboard: bool = False,
    skip_bad: int = 0,
    save_every: float = 30.0,
    on_begin: Callable[[str], object] = lambda said: None,
    on_step: OnStep | None = None,
) -> Summary:
    """Train a recipe into a folder, or go on where the folder stands; a finished run returns its summary at once.

    It saves itself every `save_every` seconds, less often where that takes long, and at its end; 0 saves after every step. On a
    GPU `graphs` records the launches of a step and replays them, and `deterministic` makes it end to the bit the same, more
    slowly. `on_begin` is told what is about to be trained, on what; `on_step` is called after every step with what a progress
    bar shows, and where it returns True the run saves and stops. `skip_bad` files of a folder may be no images.
    """
    with algorithms(deterministic):
        device = torch.device(device)
        setting = {"compiled": compile, "deterministic": deterministic}
        setting["graphs"] = graphs and device.type == "cuda"
        recipe = found_from_anywhere(recipe)
        file = file_and_function(recipe.policy_file)[0]
        recipe = replace(recipe, policy_file=_from_anywhere(file) + recipe.policy_file[len(file) :])
        run = _Run(recipe, out, device, data or load_for(recipe, skip_bad=skip_bad), setting)
        out.mkdir(parents=True, exist_ok=True)  # all that may be refused without looking into it has been
        with checkpoint.locked(out):  # nothing is written before, and no run taken up: another process's files are its own
            run.take_up()
            writer = None
            if run.state.step < run.steps:  # a finished run is only read: its folder may be read-only
                remove_partials(out)
                writer = _writer(out, run.state.step) if tensorboard else None
                on_begin(run.said())
            return run.go(on_step, save_every, writer)


class _Run:
    """A run and its folder, which it is the only process in from when it is taken up."""

    def __init__(self, recipe: Recipe, out: Path, device: torch.device, data: Data, setting: dict[str, bool]) -> None:
        self.recipe, self.out, self.device = recipe, out, device
        self.data = data
        kept, held = hold_out(self.data.train, recipe.validation, recipe.seed)
        check_noun(recipe, kept.noun)  # before texts are tokenized, which takes time
        models.check_noun(recipe.model, kept.noun)
        split, self.test = as_read(kept, recipe, train=True), as_read(self.data.test, recipe)
        if held is not None and self.data.validation is not None:
            raise ValueError(f"validation must be 0 where the data has a validation split of its own, got {recipe.validation}")
        held = self.data.validation if held is None else held
        self.held = None if held is None else as_read(held, recipe)
        self.split = split.to(device)
        mean, std = split.statistics()
        self.last = last_step(mean, std, on_gpu=device.type == "cuda")
        setting = setting | {"graphs": setting["graphs"] and not split.is_ragged}
        begun = replace(recipe, weights="") if checkpoint.is_begun(out) else recipe  # what it began with is no longer needed
        self.state = new_state(begun, split.shape, len(self.data.classes), device)
        if not split.is_ragged:
            each = find_policy(recipe.policy).rows(recipe)
            batches = {min(recipe.batch, len(split)), len(split) % recipe.batch} - {0}
            least = min(_least_part(each * batch, recipe.accumulate) for batch in batches)
            _check_fit(recipe.model, self.state.model, split.shape, least)
        self.about = {"train": len(split), "shape": list(split.shape), "classes": list(self.data.classes)}
        self.about |= {"mean": list(mean), "std": list(std)}
        if recipe.policy_file:
            self.about["policy_file"] = digest_of(file_and_function(recipe.policy_file)[0])
        if recipe.weights != PUBLISHED and Path(recipe.weights).is_file():
            self.about["weights"] = digest_of(recipe.weights)
        self.about |= {"train_digest": kept.digest, "test_digest": data.test.digest, "cache": digest_of(recipe.cache)}
        self.setting = {"device": device.type, "threads": torch.get_num_threads(), "torch": torch.__version__, **setting}
        model: Any = torch.compile(self.state.model) if setting["compiled"] else self.state.model
        self.learn = Learner(model, recipe.label_smoothing, graphs=setting["graphs"], parts=recipe.accumulate)
        self.policy = build_policy(recipe, Replayed(model) if setting["graphs"] else model, self.data, self.last)
        # Not the compiled one: that would compile once more, for longer than it saves.
        self.judge = Replayed(self.state.model) if setting["graphs"] else self.state.model
        self.learns = self.policy if isinstance(self.policy, LearningPolicy) else None
        if (out / "models").is_dir() and (out / "settings.json").exists():
            raise ValueError(f"{out}: the folder of a measure, not of a run; give another")
        self.unread = _Unread(recipe.depth, device)
        self.epoch_steps = -(-len(split) // recipe.batch)
        self.steps = recipe.epochs * self.epoch_steps

    def take_up(self) -> None:
        """Begin, or go on where the folder's newest checkpoint stands; one of another recipe or of other data is refused."""
        found = checkpoint.load(self.out)
        if found is None:
            for name in ("metrics.jsonl", compositions.FILE):  # of a run that was killed before it saved
                (self.out / name).unlink(missing_ok=True)
            text = write_recipe(self.recipe).encode(errors="surrogateescape")  # a path may be any bytes
            write_whole(self.out / "recipe.toml", lambda partial: partial.write_bytes(text))
        else:
            _same_run(self.recipe, self.about, self.setting, found[1], self.out)
            self.about = found[1]["data"] | self.about  # of weights that are no longer there what is known of them
            try:
                self.state.restore(*found)
                if self.learns is not None:
                    self.learns.load_state_dict(
                        {k.removeprefix("policy."): v for k, v in found[0].items() if k.startswith("policy.")}
                    )
            except ValueError as error:
                raise ValueError(f"{self.out}: {error}") from None
            finished = self.state.step >= self.steps
            if not (finished and (self.out / "metrics.jsonl").exists()):  # rows after the checkpoint are void
                write_lines(self.out / "metrics.jsonl", self.state.metrics)
        self.saved, self.saving, self.before = time.perf_counter(), 0.0, self.state.seconds
        self.began = self.saved

    def said(self) -> str:
        """Say what is trained, on what, and where it begins."""
        about, recipe = self.about, self.recipe
        held = "" if self.held is None else f", {len(self.held):,} for validation"
        size = " x ".join(map(str, about["shape"]))
        weights = sum(parameter.numel() for parameter in self.state.model.parameters())
        samples = f"{about['train']:,} train and {len(self.test):,} test {self.split.noun}{held}"
        of = f"{samples}, {len(about['classes'])} classes, {size}"
        policy = recipe.policy + ("" if recipe.defaults == "none" else f", then {recipe.defaults}")
        at = f"; resuming at step {self.state.step:,} of {self.steps:,}" if self.state.step else ""
        return f"{of}; model {recipe.model}, {weights:,} parameters; policy {policy}; device {self.device.type}{at}"

    def go(self, on_step: OnStep | None, save_every: float, writer: Any) -> Summary:
        """Train to the end, or until `on_step` asks to stop."""
        state, recipe = self.state, self.recipe
        while state.step < self.steps:
            epoch, at = divmod(state.step, self.epoch_steps)
            self.learn.model.train()
            order = torch.from_numpy(rng.generator(recipe.seed, "order", epoch).permutation(len(self.split)))
            rows = self.split.divide(order, recipe.batch)
            crops = (recipe.seed, epoch) if recipe.crop == "resized" else None
            for images, labels in self.split.batches(rows[at:], self.device, crops):
                batch = self.policy(images, labels, step=state.step)
                losses = take_step(state, self.learn, recipe, batch, lr_at(recipe, state.step, self.steps))
                if self.learns is not None:
                    self.learns.learn(losses, step=state.step)
                state.step += 1
                self.unread.add(state, losses, batch)
                if state.step == (epoch + 1) * self.epoch_steps:
                    self.end_epoch(epoch, writer)
                pause = max(save_every, _PATIENCE * self.saving) if save_every else 0.0
                if state.step == self.steps or time.perf_counter() - self.saved >= pause:
                    self.save()
                loss, samples = self.unread.last, len(labels)
                progress = Progress(state.step, self.steps, epoch, recipe.epochs, loss, samples, state.metrics)
                if on_step is not None and on_step(progress) and state.step < self.steps:
                    self.save()
                    raise Stopped(f"stopped at step {state.step} of {self.steps}; run the same command again to resume")
        final = state.metrics[-1]
        chance = int(self.test.labels.bincount().max()) / len(self.test)
        return Summary(final["test_accuracy"], final["train_loss"], self.steps, state.seconds, chance, state.metrics)

    def end_epoch(self, epoch: int, writer: Any) -> None:
        """Take stock: what was chosen, the mean loss, and the accuracies."""
        state = self.state
        self.unread.read(state)
        if state.chosen:
            compositions.add_epoch(self.out, epoch, state.chosen)
        row: dict[str, Any] = {"epoch": epoch, "step": state.step, "train_loss": state.losses / self.epoch_steps}
        row["lr"] = lr_at(self.recipe, state.step - 1, self.steps)
        row["test_accuracy"] = accuracy(self.judge, self.test, self.last, self.device)
        if self.held is not None:
            row["validation_accuracy"] = accuracy(self.judge, self.held, self.last, self.device)
        state.metrics.append(row)
        write_lines(self.out / "metrics.jsonl", state.metrics)  # for who looks on; resuming cuts off what is void
        state.losses, state.chosen = 0.0, {}
        if writer is not None:
            for name in row.keys() - {"epoch", "step"}:
                writer.add_scalar(name, row[name], state.step)
            writer.flush()

    def save(self) -> None:
        """Write a checkpoint, if the weights are finite."""
        state = self.state
        self.unread.read(state)
        began = time.perf_counter()
        state.seconds = self.before + began - self.began
        tensors = checkpoint.pack(state.model, state.optimizer)
        if self.learns is not None:
            tensors |= {f"policy.{name}": tensor for name, tensor in self.learns.state_dict().items()}
        if not all(bool(tensor.isfinite().all()) for tensor in tensors.values()):
            raise Diverged(f"weights are not finite after step {state.step}: not saved; try a smaller lr")
        meta = {"recipe": asdict(self.recipe), "data": self.about, "setting": self.setting, **state.meta()}
        check_metadata(meta | {"step": state.step}, RUN)  # what could not be read again is not written
        checkpoint.save(self.out, state.step, tensors, meta)
        self.saved = time.perf_counter()
        self.saving = self.saved - began


def _from_anywhere(name: str) -> str:
    """Return the whole path of a file or folder; other names as they are."""
    return str(Path(name).resolve()) if name and Path(name).exists() else name


@contextmanager
def algorithms(deterministic: bool) -> Iterator[None]:
    """Let a GPU take the fastest algorithms, or those that give the same bits every time; put back what was asked before."""
    cudnn = torch.backends.cudnn
    before = cudnn.benchmark, cudnn.deterministic, torch.are_deterministic_algorithms_enabled()
    cudnn.benchmark, cudnn.deterministic = not (deterministic or before[1]), deterministic or before[1]
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        cudnn.benchmark, cudnn.deterministic = before[:2]
        if deterministic:  # setting it imports much of torch, which an interruption may have left half imported
            torch.use_deterministic_algorithms(before[2])


def found_from_anywhere(recipe: Recipe) -> Recipe:
    """Return a recipe that finds its data, its weights, and for text its model and cache, from any folder."""
    if is_textual(recipe.data):
        recipe = replace(recipe, model=_from_anywhere(recipe.model), cache=_from_anywhere(recipe.cache))
    if recipe.weights not in ("", PUBLISHED):
        recipe = replace(recipe, weights=str(Path(recipe.weights).resolve()))  # there or not: a run needs them once
    return recipe if recipe.data in SETS else replace(recipe, data=_from_anywhere(recipe.data))


def _least_part(batch: int, parts: int) -> int:
    """Return how many images the last part of a batch has, which is its smallest."""
    size = -(-batch // parts)
    return batch % size or size


def _check_fit(name: str, model: nn.Module, shape: tuple[int, ...], least: int) -> None:
    """Refuse images that the model does not take, and parts of batches that it cannot normalise: the smallest has `least`."""
    device = next(model.parameters()).device
    try:
        with evaluating(model):
            model(torch.zeros(1, *shape, device=device))
    except (RuntimeError, AssertionError, ValueError, IndexError) as error:
        size = " x ".join(map(str, shape))
        raise ValueError(f"model {name!r} does not take images of {size} ({first_line(error)})") from None
    if least == 1:
        try:
            with torch.no_grad():
                copy.deepcopy(model).train()(torch.zeros(1, *shape, device=device))  # a copy: its statistics would move
        except ValueError:
            raise ValueError(
                f"an epoch's last batch, or a part of one, has one image, and {name!r} cannot normalise one alone at "
                f"{shape[1]} x {shape[2]}: take another batch, fewer parts (accumulate) or larger images"
            ) from None


def _same_run(recipe: Recipe, about: dict[str, Any], setting: dict[str, Any], stored: dict[str, Any], out: Path) -> None:
    different = differing(stored_recipe(stored["recipe"]), recipe)
    for key in {"data", "cache", "weights"} & different.keys():  # files that have moved: what is in them is compared
        if all(Path(name).is_absolute() for name in different[key]):
            del different[key]
    if different:
        shown = ", ".join(f"{key} {was!r} there, {now!r} asked" for key, (was, now) in different.items())
        raise ValueError(f"{out}: a run of another recipe ({shown})")
    check_same_data(about, stored["data"], out)
    then, finished = stored["setting"], len(stored["metrics"]) == recipe.epochs
    changed = [f"{key} {then.get(key)} then, {value} now" for key, value in setting.items() if then.get(key) != value]
    if changed and not finished:
        warnings.warn(f"{out}: it will not end to the bit the same ({', '.join(changed)})", stacklevel=3)


def _writer(out: Path, step: int) -> Any:
    """Return a TensorBoard writer that takes over from a step: what an interrupted start wrote beyond it is void."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ValueError("TensorBoard is not installed: pip install 'outspan[track]'") from None
    return SummaryWriter(out / "tensorboard", purge_step=step + 1)
