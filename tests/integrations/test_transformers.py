"""The trainer for Hugging Face models against a plain loop, which calls the policy itself."""

import importlib
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from PIL import Image
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import SequentialSampler, StackDataset

import outspan
from outspan.data.decode import read_fitted
from recording import IMAGES, LABELS, NORMALIZE, Recorder, auto, batches, check_same_draws, network, plain
from reviews import WORDS, make_reviews

transformers = pytest.importorskip("transformers")
from outspan.transformers import AugmentedTrainer, Augmenting, ImageCollator, tokenize  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # the trainer warns about pinned memory and missing accelerators
DATA = StackDataset(pixel_values=IMAGES, labels=LABELS)


class Model(nn.Module):
    """A user's model with the interface of transformers. It keeps its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.network, self.inputs = network(), []
        self.config = SimpleNamespace()

    def forward(self, pixel_values, labels=None):
        self.inputs.append(pixel_values.detach())
        logits = self.network(pixel_values)
        loss = None if labels is None else cross_entropy(logits, labels)
        return transformers.modeling_outputs.ImageClassifierOutput(loss=loss, logits=logits)


class InOrder(AugmentedTrainer):
    def _get_train_sampler(self, *_):
        return SequentialSampler(self.train_dataset)


def arguments(tmp_path, **options):
    quiet = {"report_to": [], "disable_tqdm": True, "save_strategy": "no", "logging_strategy": "no", "use_cpu": True}
    steps = {"optim": "sgd", "learning_rate": 0.1, "lr_scheduler_type": "constant", "max_grad_norm": 0.0}
    sizes = {"per_device_train_batch_size": 4, "per_device_eval_batch_size": 12, "num_train_epochs": 2}
    return transformers.TrainingArguments(tmp_path, **{**quiet, **steps, **sizes, **options})


def plain_loop(policy, steps, accumulate=1, **options):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (images, labels) in zip(range(steps), batches(4, steps), strict=False):
        batch = policy(images, labels, step=step)
        losses = cross_entropy(model(batch.inputs), batch.targets, reduction="none", **options)
        (losses.mean() / accumulate).backward()
        if hasattr(policy, "learn"):
            policy.learn(losses.detach(), step=step)
        if (step + 1) % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
    return model


def check_same_weights(model, expected):
    for one, other in zip(model.parameters(), expected.parameters(), strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_training_is_that_of_a_plain_loop(tmp_path, accumulate, smoothing):
    options = {"gradient_accumulation_steps": accumulate, "label_smoothing_factor": smoothing}
    model, policy, by_hand = Model(), Recorder(plain(seed=3)), Recorder(plain(seed=3))
    InOrder(model, arguments(tmp_path, **options), train_dataset=DATA, policy=policy).train()
    expected = plain_loop(by_hand, 12, accumulate, label_smoothing=smoothing)
    assert sorted(policy.batches) == list(range(12))
    for step, batch in policy.batches.items():
        check_same_draws(batch, by_hand.batches[step])
        assert torch.equal(model.inputs[step], by_hand.batches[step].inputs)
    check_same_weights(model, expected)


def test_a_short_last_update_of_an_epoch_has_its_own_draws(tmp_path):
    policy = Recorder(plain())
    InOrder(Model(), arguments(tmp_path, gradient_accumulation_steps=4), train_dataset=DATA, policy=policy).train()
    assert sorted(policy.batches) == [0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13]  # global_step * 4 + the batch of the update


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_resumed_run_is_that_of_an_unbroken_one(tmp_path, accumulate):
    options = {"save_strategy": "steps", "save_steps": 4, "num_train_epochs": 4 * accumulate}
    args = arguments(tmp_path, gradient_accumulation_steps=accumulate, **options)
    steps = 24 * accumulate
    whole, part, by_hand = Recorder(auto(steps)), Recorder(auto(steps)), auto(steps)
    trained, resumed = Model(), Model()
    AugmentedTrainer(trained, args, train_dataset=DATA, policy=whole).train()  # in random order
    AugmentedTrainer(resumed, args, train_dataset=DATA, policy=part).train(
        resume_from_checkpoint=str(tmp_path / "checkpoint-8")
    )
    assert sorted(part.batches) == list(range(8 * accumulate, steps))
    for step, batch in part.batches.items():
        check_same_draws(batch, whole.batches[step])
        assert torch.equal(batch.inputs, whole.batches[step].inputs)
    expected = whole.state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in part.state_dict().items())
    assert any(not torch.equal(tensor, expected[name]) for name, tensor in by_hand.state_dict().items())
    assert all(map(torch.equal, resumed.parameters(), trained.parameters()))


def test_a_policy_learns_as_in_a_plain_loop(tmp_path):
    policy, by_hand = auto(12), auto(12)
    InOrder(Model(), arguments(tmp_path), train_dataset=DATA, policy=policy).train()
    plain_loop(by_hand, 12)
    expected = by_hand.state_dict()
    assert all(torch.allclose(tensor, expected[name], atol=1e-4) for name, tensor in policy.state_dict().items())


def test_evaluation_normalizes_and_does_not_augment(tmp_path):
    model = Model()
    trainer = AugmentedTrainer(model, arguments(tmp_path), eval_dataset=DATA, policy=plain())
    predicted = trainer.predict(DATA)
    assert torch.equal(torch.cat(model.inputs), NORMALIZE(IMAGES))
    logits = network()(NORMALIZE(IMAGES))
    assert torch.allclose(torch.from_numpy(predicted.predictions), logits, atol=1e-5)
    assert predicted.metrics["test_loss"] == pytest.approx(float(cross_entropy(logits, LABELS)), rel=1e-4)
    floats = StackDataset(pixel_values=NORMALIZE(IMAGES), labels=LABELS)  # as before augmentation was added
    assert trainer.evaluate(floats)["eval_loss"] == pytest.approx(predicted.metrics["test_loss"], rel=1e-6)


def test_a_loss_of_the_user_gets_soft_targets_and_may_teach_the_policy(tmp_path, unchecked):
    seen = []

    def loss(outputs, labels, num_items_in_batch=None):
        seen.append(labels)
        losses = cross_entropy(outputs.logits, labels, reduction="none")
        if teaches:
            trainer.learn(losses)
        return losses.mean()

    for teaches in (True, False):
        trainer = InOrder(Model(), arguments(tmp_path), train_dataset=DATA, compute_loss_func=loss, policy=auto(12))
        if teaches:
            trainer.train()
            assert len(seen) == 12
            assert {labels.shape for labels in seen} == {(4, 5)}
            continue
        with pytest.raises(ValueError, match=r"Auto learns from the losses of each batch, and got none: call trainer.learn"):
            trainer.train()


def test_a_trainer_of_the_user_is_extended(tmp_path):
    class Weighted(transformers.Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, **_):
            targets.append(inputs.pop("labels"))
            outputs = model(**inputs)
            loss = cross_entropy(outputs.logits, targets[-1], weight=torch.arange(5.0))
            return (loss, outputs) if return_outputs else loss

    class Mine(Augmenting, Weighted):
        """Both."""

    targets = []
    Mine(Model(), arguments(tmp_path), train_dataset=DATA, policy=plain()).train()
    assert {target.shape for target in targets} == {(4, 5)}


def test_images_of_columns(tmp_path):
    pictures = []
    for i in range(8):
        pictures.append(Image.fromarray(IMAGES[i].permute(1, 2, 0).numpy()).resize((20 + i, 16)))
        pictures[i].save(tmp_path / f"{i}.png")
    columns = [{"image": picture, "label": i % 5, "other": "x"} for i, picture in enumerate(pictures)]
    collate = ImageCollator((8, 8))
    batch = collate(columns)
    assert torch.equal(batch["pixel_values"], torch.stack([read_fitted(tmp_path / f"{i}.png", 8, 8) for i in range(8)]))
    assert batch["labels"].tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    assert torch.equal(collate([{"image": IMAGES[0], "label": 1}])["pixel_values"], IMAGES[:1])
    config = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "num_labels": 5}
    model = transformers.ViTForImageClassification(transformers.ViTConfig(**config, image_size=8, patch_size=4))
    options = {"data_collator": collate, "train_dataset": columns, "eval_dataset": columns}
    trainer = AugmentedTrainer(model, arguments(tmp_path), policy=plain(), **options)
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 224}, r"size must be a height and a width, such as \(224, 224\), got 224"),
        ({"size": (8, 0)}, "width must be"),
        ({"size": (8, 8), "channels": 4}, "channels must be 1 or 3, got 4"),
    ],
)
def test_wrong_arguments_of_the_collator(unchecked, arguments, message):
    with pytest.raises(ValueError, match=message):
        ImageCollator(**arguments)


def test_wrong_columns_are_refused(unchecked, tiny_model):
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_model)
    with pytest.raises(ValueError, match=r"no column 'image' \(columns: img, label\): .* remove_unused_columns=False"):
        ImageCollator((8, 8))([{"img": IMAGES[0], "label": 0}])
    with pytest.raises(
        ValueError, match=r"column 'image' must have Pillow images or uint8 tensors \[3, 8, 8\], got torch.float"
    ):
        ImageCollator((8, 8))([{"image": IMAGES[0].float(), "label": 0}])
    for image, advice in (
        (None, r"got NoneType: remove these rows, data.filter\("),
        ("cat.png", r"got str: decode the files, data.cast_column\('image', datasets.Image\(\)\)"),
        (IMAGES[0].numpy(), r"got ndarray: remove the format, data.with_format\(None\)"),
        (IMAGES[0, :, 1:], r"got torch.uint8 \[3, 7, 8\]: .* or resize in the transform"),
        (7, r"got int: name the column of images, ImageCollator\(\(8, 8\), image=...\)"),
    ):
        with pytest.raises(ValueError, match=advice):
            ImageCollator((8, 8))([{"image": image, "label": 0}])
    for label in (1.7, torch.tensor(1.0), "cat", None, [0, 1]):
        with pytest.raises(
            ValueError, match=r"column 'label' must have class indices, got .*: .* data.class_encode_column\('lab"
        ):
            ImageCollator((8, 8))([{"image": IMAGES[0], "label": label}])
    labels = [{"image": IMAGES[0], "label": label} for label in (2, True, torch.tensor(3), LABELS.numpy()[4])]
    assert ImageCollator((8, 8))(labels)["labels"].tolist() == [2, 1, 3, 4]
    columns = {"text": ["a film", 3], "stars": [0, "good"]}
    with pytest.raises(ValueError, match=r"the data set has no column 'label' \(columns: text, stars\): .* pass one split"):
        tokenize(columns, tokenizer, length=16)
    with pytest.raises(ValueError, match="column 'text' must have texts, got 3"):
        tokenize(columns, tokenizer, length=16, label="stars")
    with pytest.raises(ValueError, match="column 'stars' must have class indices, got 'good'"):
        tokenize(columns | {"text": ["a", "b"]}, tokenizer, length=16, label="stars")
    with pytest.raises(ValueError, match="column 'text' must have texts, got None"):
        tokenize({"text": ["a", None], "label": [0, 1]}, tokenizer, length=16)
    with pytest.raises(ValueError, match="tokenizer must be a fast tokenizer of transformers, got str"):
        tokenize(columns, "bert", length=16)


def test_columns_that_are_formatted_as_tensors(tiny_model):
    class Split(dict):  # like a split of datasets after `with_format("torch")`
        column_names = ("text", "label")

        def with_format(self, format):
            assert format is None
            return {"text": self["text"], "label": self["label"].tolist()}

    data = Split(text=["a film", "the plot"], label=torch.tensor([1, 0]))
    texts = tokenize(data, transformers.AutoTokenizer.from_pretrained(tiny_model), length=16)
    assert [texts[row] for row in range(2)] == [(0, 1), (1, 0)]


def test_tokens_and_models_without_a_mask_are_refused(tmp_path, unchecked, tiny_model):
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tiny_model)
    tokens = [{"input_ids": torch.tensor([2, 5, 3]), "labels": 0}] * 8
    with pytest.raises(ValueError, match=r"train_dataset must be TokenizedTexts, got list: .*outspan.transformers.tokenize\("):
        AugmentedTrainer(model, arguments(tmp_path), train_dataset=tokens, policy=plain())
    scored = {"candidates": 2, "preprocess": outspan.text.PadTokens()}
    proposal = outspan.uniform(1, transforms=("switchout",))
    with pytest.raises(ValueError, match=r"Uncertain would score texts without a mask: pass outspan.text.Classifier\(model"):
        AugmentedTrainer(model, arguments(tmp_path), policy=outspan.Uncertain(model, proposal, **scored))
    masked = outspan.Uncertain(outspan.text.Classifier(model, 0), proposal, **scored)
    assert AugmentedTrainer(model, arguments(tmp_path), policy=masked).policy is masked


def test_texts_are_augmented_and_evaluated_with_the_tokens_of_the_user(tmp_path, tiny_model):
    reviews = make_reviews(24)
    columns = {"text": [text for text, _ in reviews], "label": [label for _, label in reviews]}
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_model)
    data = tokenize(columns, tokenizer, length=32)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.BertConfig(**sizes, vocab_size=len(WORDS), pad_token_id=0, num_labels=2)
    model, seen = transformers.BertForSequenceClassification(config), []
    model.register_forward_pre_hook(lambda _, __, kwargs: seen.append(kwargs), with_kwargs=True)
    test = [{**tokenizer(text), "labels": label} for text, label in reviews]

    def build():
        proposal = outspan.uniform(1, transforms=("switchout", "word_replacement"))
        return Recorder(outspan.Plain(proposal, classes=2, preprocess=outspan.text.PadTokens()))

    policy, by_hand = build(), build()
    options = {"processing_class": tokenizer, "train_dataset": data, "eval_dataset": test, "policy": policy}
    trainer = InOrder(model, arguments(tmp_path, num_train_epochs=1), **options)
    trainer.train()
    assert len(seen) == 6
    for step, kwargs in enumerate(seen):
        rows = torch.arange(24)[4 * step : 4 * step + 4]
        (passages, labels), *_ = data.texts.batches([rows], torch.device("cpu"))
        expected = by_hand(passages, labels, step=step)
        check_same_draws(policy.batches[step], expected)
        assert torch.equal(kwargs["input_ids"], expected.inputs)
        assert torch.equal(kwargs["attention_mask"], (expected.inputs != 0).long())
    unchanged = outspan.text.PadTokens()(passages)
    expected = tokenizer(columns["text"][20:], padding=True, truncation=True, max_length=32, return_tensors="pt")["input_ids"]
    assert torch.equal(unchanged[:, : expected.shape[1]], expected)  # the tokens of the user, without augmentation
    assert trainer.evaluate()["eval_loss"] > 0


def test_wrong_policies_and_batches_are_refused(tmp_path, unchecked):
    with pytest.raises(ValueError, match=r"policy must be a policy .*: outspan.Plain\(proposal"):
        AugmentedTrainer(Model(), arguments(tmp_path), train_dataset=DATA, policy=outspan.natural())
    smooth = arguments(tmp_path, label_smoothing_factor=0.1)
    with pytest.raises(ValueError, match=r"label_smoothing must be that of the losses, 0.1 \(label_smoothing_factor .*, got 0"):
        AugmentedTrainer(Model(), smooth, train_dataset=DATA, policy=auto(12))
    floats = StackDataset(pixel_values=NORMALIZE(IMAGES), labels=LABELS)
    with pytest.raises(ValueError, match=r"images must be a uint8 tensor .* use v2.PILToTensor\(\)"):
        AugmentedTrainer(Model(), arguments(tmp_path), train_dataset=floats, policy=plain()).train()
    other = StackDataset(image=IMAGES, labels=LABELS)
    args = arguments(tmp_path, remove_unused_columns=False)
    with pytest.raises(ValueError, match=r"the batch has no 'pixel_values', which the model takes \(elements: image, labels\)"):
        AugmentedTrainer(Model(), args, train_dataset=other, policy=plain()).train()
    other = StackDataset(pixel_values=IMAGES, y=LABELS)
    with pytest.raises(
        ValueError, match=r"the batch has no 'labels', .* \(elements: pixel_values, y\): name .* 'label', with ren"
    ):
        AugmentedTrainer(Model(), args, train_dataset=other, policy=plain()).train()
    with pytest.raises(
        ValueError, match=r"policy must be a policy .* RandAugment\(.*, a drop-in .*outspan.Plain\(outspan.randaug"
    ):
        AugmentedTrainer(Model(), args, train_dataset=DATA, policy=outspan.dropin.RandAugment(seed=0))


def test_a_policy_for_another_number_of_classes_is_refused(tmp_path, unchecked, tiny_model):
    message = "classes must be {0}, the number of labels of the model, got 20: pass classes={0} to the policy, or num_labels=20"
    proposal = outspan.uniform(1, transforms=("switchout",))
    of_texts = outspan.Plain(proposal, classes=20, preprocess=outspan.text.PadTokens())
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tiny_model)
    with pytest.raises(ValueError, match=message.format(2)):
        AugmentedTrainer(model, arguments(tmp_path), policy=of_texts)
    policy = outspan.Plain(outspan.uniform(2), classes=20)
    trainer = AugmentedTrainer(Model(), arguments(tmp_path), train_dataset=DATA, policy=policy)  # a model of the user
    with pytest.raises(ValueError, match=message.format(5)):
        trainer.train()


def test_a_checkpoint_without_the_state_of_the_policy_is_refused(tmp_path):
    args = arguments(tmp_path, save_strategy="steps", save_steps=4)
    AugmentedTrainer(Model(), args, train_dataset=DATA, policy=plain()).train()
    with pytest.raises(ValueError, match="the checkpoint has no state of a policy that learns, and policy is Auto: pass the"):
        AugmentedTrainer(Model(), args, train_dataset=DATA, policy=auto(12)).train(str(tmp_path / "checkpoint-4"))


def test_data_that_does_not_fit_is_refused_before_training(tmp_path, unchecked, tiny_model):
    class Split(list):  # like a split of datasets
        column_names, format = ("image", "label"), {"type": None}

    def build(data, policy, model=None, **options):
        return AugmentedTrainer(model or Model(), arguments(tmp_path), train_dataset=data, policy=policy, **options)

    split = Split([{"image": image, "label": 0} for image in IMAGES])
    with pytest.raises(
        ValueError, match=r"no column 'pixel_values' \(columns: image, label\): pass data_collator=ImageCollator"
    ):
        build(split, plain())
    with pytest.raises(ValueError, match="train_dataset must be one split, got dict of train, test: pass one of them"):
        build({"train": split, "test": split}, plain())
    for evaluated, name in ((split, "eval_dataset"), ({"": DATA, "test": split}, r"eval_dataset\['test'\]")):
        with pytest.raises(ValueError, match=rf"{name} has no column 'pixel_values' \(columns: image, label\): pass data_col"):
            build(DATA, plain(), eval_dataset=evaluated)
    assert build(split, plain(), eval_dataset=split, data_collator=ImageCollator((8, 8))).eval_dataset is split
    grey = outspan.Plain(outspan.natural(), classes=5, preprocess=outspan.Normalize((0.5,), (0.5,)))
    with pytest.raises(
        ValueError, match=r"must have 3 means.*, got 1: pass ImageCollator\(size, channels=1\), or .* with 3 means"
    ):
        build(split, grey, data_collator=ImageCollator((8, 8)))
    assert build(split, grey, data_collator=ImageCollator((8, 8), channels=1)).policy is grey

    model = transformers.AutoModelForSequenceClassification.from_pretrained(tiny_model)
    texts = tokenize({"text": ["a"], "label": [0]}, transformers.AutoTokenizer.from_pretrained(tiny_model), length=16)
    words = outspan.Plain(outspan.uniform(1, transforms=("switchout",)), classes=2)
    with pytest.raises(ValueError, match=r"needs a preprocess.* pass Plain\(..., preprocess=outspan.text.PadTokens\(\)\)"):
        build(texts, words, model)
    padded = replace(words, preprocess=outspan.text.PadTokens())
    split.column_names = ("text", "label")
    for data in (split, None):  # before they are tokenized
        with pytest.raises(ValueError, match=r"train_dataset must be TokenizedTexts|eval_dataset has no column 'input_ids'"):
            build(data, padded, model, eval_dataset=split)
    with pytest.raises(
        ValueError, match="eval_dataset must have the tokens of your own data set, got TokenizedTexts: tokenize"
    ):
        build(texts, padded, model, eval_dataset=texts)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "outspan.integrations.transformers")
    with pytest.raises(ImportError, match=r"outspan.transformers needs .*: pip install 'outspan\[huggingface\]'"):
        importlib.import_module("outspan.integrations.transformers")
