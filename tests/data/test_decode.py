"""Photographs as phones and programs write them are read as Pillow shows them: upright, opaque, and in 8 bits."""

import io
import tarfile
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from PIL.JpegImagePlugin import JpegImageFile

import outspan
from made import DRAW
from outspan.config import Recipe
from outspan.data import sets
from outspan.data.decode import Pixels, read_cropped, read_fitted
from outspan.data.image_files import Files

SMOOTH = Image.fromarray(DRAW.integers(0, 256, (6, 8, 3), dtype=np.uint8)).resize((640, 480), Image.Resampling.BICUBIC)
PHOTO = Image.fromarray(DRAW.integers(0, 256, (20, 30, 3), dtype=np.uint8))


def bytes_of(image: Image.Image) -> torch.Tensor:
    array = np.array(image)
    return torch.from_numpy(array[None] if array.ndim == 2 else array.transpose(2, 0, 1).copy())


def with_orientation(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tiff"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_exif_orientation_is_applied_as_pillow_does(orientation, suffix, tmp_path):
    path = tmp_path / f"photo.{suffix}"
    PHOTO.save(path, exif=with_orientation(orientation))
    with Image.open(path) as file:
        upright = ImageOps.exif_transpose(file).convert("RGB")
    assert upright.size == ((20, 30) if orientation > 4 else (30, 20))
    assert torch.equal(outspan.read_image(path)[0], bytes_of(upright))
    width, height = upright.size
    left, top = width / 2 - 10, height / 2 - 10
    box = upright.resize((8, 8), Image.Resampling.BILINEAR, (left, top, left + 20, top + 20))
    assert torch.equal(read_fitted(path, 8, 8), bytes_of(box))
    upright.save(tmp_path / "turned.png")
    place = [0.2, 0.7, 0.4, 0.9]
    assert torch.equal(read_cropped(path, 8, place), read_cropped(tmp_path / "turned.png", 8, place))


@pytest.mark.parametrize("orientation", [1, 6])
def test_large_jpeg_files_are_decoded_at_a_fraction_of_their_size(orientation, tmp_path):
    """The pixels are nearly those of the whole file, also in a small box, which needs more of them."""
    path, whole = tmp_path / "large.jpg", tmp_path / "large.png"
    SMOOTH.save(path, quality=95, exif=with_orientation(orientation))
    with Image.open(path) as file:
        ImageOps.exif_transpose(file).save(whole)
    sizes: list[tuple[int, int]] = []
    load = JpegImageFile.load
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JpegImageFile, "load", lambda file: (sizes.append(file.size), load(file))[1])
        for read in (
            lambda file: read_fitted(file, 64, 20),
            lambda file: read_cropped(file, 16, [0.2, 0.7, 0.9, 0.5]),
            lambda file: read_cropped(file, 60, [0.2, 0.7, 0.0, 0.5]),
        ):
            difference = read(path).int() - read(whole).int()
            assert difference.abs().float().mean() < 1
            assert difference.abs().max() <= 8
    assert [*dict.fromkeys(sizes)] == [(320, 240) if orientation == 1 else (160, 120), (80, 60), (640, 480)]


@pytest.mark.parametrize(
    "exif", [b"Exif\0\0MM\0*\0\0", b"Exif\0\0nonsense", b"Exif\0\0", bytes(with_orientation(99).tobytes())]
)
def test_damaged_exif_changes_nothing(exif, tmp_path):
    PHOTO.save(tmp_path / "odd.jpg", exif=exif)
    PHOTO.save(tmp_path / "plain.jpg")
    assert torch.equal(outspan.read_image(tmp_path / "odd.jpg"), outspan.read_image(tmp_path / "plain.jpg"))


@pytest.mark.parametrize(("background", "color"), [("white", (255, 255, 255)), ("#102030", (16, 32, 48))])
@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "RGB", "L"])
def test_transparent_pixels_are_composed_over_the_background(mode, background, color, tmp_path):
    alpha, path = Image.linear_gradient("L").resize(PHOTO.size), tmp_path / "clear.png"
    if mode == "P":
        PHOTO.quantize(8).save(path, transparency=3)
    elif mode in ("RGB", "L"):
        image = PHOTO.convert(mode)
        image.save(path, transparency=image.getpixel((5, 5)))  # one color is transparent
    else:
        image = PHOTO.convert(mode)
        image.putalpha(alpha)
        image.save(path)
    with Image.open(path) as file:
        assert file.mode == mode
        expected = Image.new("RGB", file.size, color)
        image = file.convert("RGBA")
        expected.paste(image, mask=image.getchannel("A"))
    assert np.array(image.getchannel("A")).min() < 10
    read = read_fitted(path, 20, 30, Pixels(3, background))
    assert (read.int() - bytes_of(expected).int()).abs().max() <= 1  # the two ways to compose round differently
    in_grey = Image.fromarray(read.permute(1, 2, 0).numpy()).convert("L")
    assert torch.equal(read_fitted(path, 20, 30, Pixels(1, background)), bytes_of(in_grey))


@pytest.mark.parametrize("suffix", ["png", "tiff", "ppm"])
def test_of_16_bits_the_upper_8_are_kept(suffix, tmp_path):
    deep = DRAW.integers(0, 65536, (6, 7), dtype=np.uint16)
    Image.fromarray(deep).save(tmp_path / f"deep.{suffix}")
    assert torch.equal(
        outspan.read_image(tmp_path / f"deep.{suffix}"), torch.from_numpy(deep // 256).to(torch.uint8)[None, None]
    )


@pytest.mark.parametrize(("mode", "suffix"), [("CMYK", "jpg"), ("CMYK", "tiff"), ("P", "png"), ("P", "gif"), ("1", "png")])
def test_other_modes_are_converted_as_pillow_does(mode, suffix, tmp_path):
    path = tmp_path / f"a.{suffix}"
    (PHOTO.quantize(16) if mode == "P" else PHOTO.convert(mode)).save(path)
    with Image.open(path) as file:
        expected = bytes_of(file.convert("RGB"))
    assert torch.equal(read_fitted(path, 20, 30), expected)


def make_folder(root, modes=("L", "L"), count=8):
    for split in ("train", "val"):
        for name, mode in zip(("a", "b"), modes, strict=True):
            (root / split / name).mkdir(parents=True)
            for i in range(count):
                image = Image.fromarray(DRAW.integers(0, 256, (12, 12, 3), dtype=np.uint8))
                image.convert(mode).save(root / split / name / f"{i}.png")
    return str(root)


def make_shard(path, mode, count=12):
    with tarfile.open(path, "w") as archive:
        for i in range(count):
            content = io.BytesIO()
            PHOTO.convert(mode).save(content, "PNG", exif=with_orientation(6))
            for name, data in ((f"{i}.png", content.getvalue()), (f"{i}.cls", str(i % 2).encode())):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return str(path)


def test_grey_files_stay_grey_unless_one_of_them_has_colors(tmp_path):
    grey, mixed = make_folder(tmp_path / "grey"), make_folder(tmp_path / "mixed", ("L", "RGB"))
    assert sets.load(grey, size=8).train.shape == sets.load(grey, size=8).test.shape == (1, 8, 8)
    assert sets.load(mixed, size=8).train.shape == (3, 8, 8)
    for channels in (1, 3):
        for name in (grey, mixed):
            data = sets.load_for(Recipe(data=name, size=8, channels=str(channels)))
            (batch,) = data.test.batches([torch.arange(2)], torch.device("cpu"))
            assert batch[0].shape == (2, channels, 8, 8)
            assert len(data.train.statistics()[0]) == channels


def test_shards_are_read_as_folders_are(tmp_path):
    for mode, channels in (("L", 1), ("RGB", 3)):
        split = sets.load(make_shard(tmp_path / f"{mode}.tar", mode), size=20).train
        assert split.shape == (channels, 20, 20)
        PHOTO.convert(mode).save(tmp_path / "same.png", exif=with_orientation(6))
        ((images, _),) = split.batches([torch.tensor([0])], torch.device("cpu"))
        assert torch.equal(images[0], read_fitted(tmp_path / "same.png", 20, 20, Pixels(channels)))


def test_a_run_on_grey_files_predicts_colored_ones_and_the_reverse(tmp_path):
    keys = {"model": "mlp-4", "size": 8, "epochs": 1, "batch": 8, "policy": "none"}
    grey, mixed = make_folder(tmp_path / "grey"), make_folder(tmp_path / "mixed", ("L", "RGB"))
    for name, channels in ((grey, 1), (mixed, 3)):
        outspan.train(data=name, out=tmp_path / f"run{channels}", **keys)
        run = outspan.load(tmp_path / f"run{channels}")
        assert run.shape[0] == channels
        for other in (grey, mixed):
            tested = outspan.evaluate(run, other).tested.split
            assert tested.shape == run.shape
            assert len(outspan.predict(run, [f"{other}/val"])) == len(tested)


def test_channels_of_arrays_are_not_changed(tmp_path):
    keys = {"model": "mlp-4", "epochs": 1, "out": tmp_path / "run"}
    outspan.train(data="digits", channels=1, fraction=0.01, **keys)
    with pytest.raises(ValueError, match=r"channels must be 'auto' for images that are not files, got '3'.* have 1"):
        outspan.train(data="digits", channels=3, out=tmp_path / "other", model="mlp-4")


def test_a_run_of_an_older_decoder_is_not_resumed_and_can_be_evaluated(tmp_path, monkeypatch):
    data = make_folder(tmp_path / "data", ("RGB", "RGB"))
    keys = {"data": data, "model": "mlp-4", "size": 8, "epochs": 1, "batch": 8, "out": tmp_path / "run"}
    with monkeypatch.context() as patch:
        patch.setattr(Files, "decoding", 0)  # stored before the key existed
        outspan.train(**keys)
    outspan.evaluate(tmp_path / "run")
    with pytest.raises(ValueError, match="contains a run of another version of outspan, which reads image files differently"):
        outspan.train(**keys)
    outspan.train(**{**keys, "out": tmp_path / "new"})
    outspan.train(**{**keys, "out": tmp_path / "new"})


@pytest.mark.parametrize("background", ["red", "#12", "", "#1234567"])
def test_a_background_is_a_known_color(background):
    with pytest.raises(ValueError, match="background must be one of white, black, grey, #rrggbb, got"):
        replace(Recipe(), background=background)
