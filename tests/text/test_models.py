"""Pretrained classifiers: padding does not matter, and an invalid folder is refused in one line."""

import shutil
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from outspan.text.models import load_classifier, load_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")


def test_padding_and_other_rows_do_not_change_the_logits(tiny_model):
    model = load_classifier(str(tiny_model), 2, 48).eval()
    short = torch.tensor([[2, 7, 8, 3]])
    padded = torch.nn.functional.pad(short, (0, 9))
    beside = torch.cat([padded, torch.full((1, 13), 9)])
    assert torch.allclose(model(short), model(padded), atol=1e-6)
    assert torch.allclose(model(short), model(beside)[:1], atol=1e-6)


def test_evaluation_in_small_parts_gives_the_same_logits(tiny_model, monkeypatch):
    from outspan.text import models

    model = load_classifier(str(tiny_model), 2, 48).eval()
    tokens = torch.randint(7, 30, (9, 10), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        whole = model(tokens)
        monkeypatch.setattr(models, "_TOKENS", 40)
        assert torch.allclose(model(tokens), whole, atol=1e-6)


def test_weights_of_another_model_are_refused(tiny_model, tmp_path):
    shutil.copytree(tiny_model, tmp_path / "other")
    weights = load_file(tmp_path / "other" / "model.safetensors")
    save_file({f"gpt.{name}": tensor for name, tensor in weights.items()}, tmp_path / "other" / "model.safetensors")
    with pytest.raises(ValueError, match=r"its weights fit 0 of \d+ tensors: another model's\?"):
        load_classifier(str(tmp_path / "other"), 2, 48)
    save_file({name: tensor for name, tensor in weights.items() if "pooler" not in name}, tmp_path / "other/model.safetensors")
    load_classifier(str(tmp_path / "other"), 2, 48)  # a missing pooler is allowed


def test_a_pickle_is_refused(tiny_model, tmp_path):
    for path in tiny_model.iterdir():
        (tmp_path / path.name.replace("model.safetensors", "pytorch_model.bin")).write_bytes(path.read_bytes())
    for load_one in (load_tokenizer, lambda name: load_classifier(name, 2, 48)):
        with pytest.raises(ValueError, match=r"only pytorch_model\.bin, a pickle, which can run code .*safetensors"):
            load_one(str(tmp_path))
    (tmp_path / "pytorch_model.bin").unlink()
    with pytest.raises(ValueError, match="no weights"):
        load_tokenizer(str(tmp_path))


@pytest.mark.parametrize("broken", ["model.safetensors", "tokenizer.json", "config.json"])
def test_a_broken_folder_is_refused_in_one_line(broken, tiny_model, tmp_path):
    folder = tmp_path / "bert"
    shutil.copytree(tiny_model, folder)

    def load_both():
        load_tokenizer(str(folder))
        load_classifier(str(folder), 2, 48)

    for content in (b"garbage", None):
        (folder / broken).write_bytes(content) if content else (folder / broken).unlink()
        with pytest.raises(ValueError, match=r"bert'? ?[^\n]*(cannot be loaded|no weights)[^\n]*$"):
            load_both()


@pytest.mark.filterwarnings("ignore")  # the library's own
def test_a_model_with_reserved_positions_is_refused_before_training(tmp_path):
    from transformers import MPNetConfig, MPNetModel

    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    MPNetModel(MPNetConfig(vocab_size=40, max_position_embeddings=20, **size)).save_pretrained(tmp_path)
    assert load_classifier(str(tmp_path), 2, 18)(torch.full((2, 18), 5)).shape == (2, 2)
    with pytest.raises(ValueError, match="does not take texts of 20 tokens"):
        load_classifier(str(tmp_path), 2, 20)


@pytest.mark.filterwarnings("ignore")  # the library's own
def test_a_model_without_a_padding_token_is_padded_with_the_end_token(tmp_path):
    from transformers import GPT2Config, GPT2Model

    def write(end):
        config = GPT2Config(vocab_size=40, n_positions=20, n_embd=16, n_layer=1, n_head=2, bos_token_id=end, eos_token_id=end)
        GPT2Model(config).save_pretrained(tmp_path)
        return load_classifier(str(tmp_path), 2, 20).eval()

    model = write(39)
    short = torch.tensor([[5, 6, 7]])
    padded = torch.nn.functional.pad(short, (0, 4), value=39)
    assert torch.allclose(model(short), model(torch.cat([padded, torch.full((1, 7), 8)]))[:1], atol=1e-5)
    with pytest.raises(ValueError, match="names no token for padding"):
        write(None)


def test_missing_transformers_is_named(tiny_model, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ValueError, match=r"pip install 'outspan\[text\]'"):
        load_tokenizer(str(tiny_model))


def test_a_model_that_needs_the_end_token_is_supported(tmp_path):
    from transformers import BartConfig, BartModel

    size = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    size |= {"encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "max_position_embeddings": 20}
    BartModel(BartConfig(vocab_size=40, **size)).save_pretrained(tmp_path)
    tokens = torch.full((2, 18), 5)
    tokens[:, -1] = 2
    assert load_classifier(str(tmp_path), 3, 18)(tokens).shape == (2, 3)
