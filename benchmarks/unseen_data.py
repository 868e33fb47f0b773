"""Data sets that were not used to design the policy `auto`, made from packages of npm and Debian, for safety.py --unseen.

    python benchmarks/unseen_data.py folder      # downloads the packages: 0.5 GB

- Emoji of four vendors; the class is one of nine categories. All pictures of an emoji are in the same split.
- Letters and digits in fonts; the class is one of 62 characters. All fonts of a package are in the same split.
- Icons of desktop themes; the class is one of seven contexts. All icons of a name are in the same split.
- Spectrograms of simulated sounds; the class is one of ten: position, direction and brightness matter.
- Short descriptions of Debian packages; the class is one of ten sections. All packages of a source are in the same split.

The splits are drawn once, with a fixed seed. OUTSPAN_PACKAGES is the folder.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib.ft2font import FT2Font
from PIL import Image, ImageDraw, ImageFont

from outspan.data.dataset import Data
from outspan.data.splits import InMemory
from outspan.text.documents import Documents

VENDORS = ("google", "twitter", "apple", "facebook")
THEMES = ("tango-icon-theme", "gnome-icon-theme", "mate-icon-theme", "oxygen-icon-theme")
_FONTS = """
3270 adf-accanthis adf-baskervald adf-berenis adf-gillius adf-ikarius adf-irianis adf-libris adf-mekanus adf-oldania
adf-romande adf-solothurn adf-switzera adf-tribun adf-universalis adf-verana agave anonymous-pro arapey averia-gwf
averia-sans-gwf averia-serif-gwf b612 bajaderka bebas-neue beteckna breip cabin cabinsketch campania cantarell cardo
century-catalogue cherrybomb clear-sans comfortaa comic-neue courier-prime crosextra-caladea crosextra-carlito dancingscript
dejavu-core dkg-handwriting dosis dustin ebgaramond ecolier-court essays1743 eurofurence fanwood fantasque-sans femkeklaver
freefont-ttf georgewilliams gnutypewriter go goudybookletter hack havana hermit inconsolata inter isabella jetbrains-mono
joscelyn jura karla kaushanscript klaudia-berenika kristi lato leckerli-one lemonada levien-museum levien-typoscript
liberation lindenhill linex linuxlibertine lobster lobstertwo manrope monofur mononoki monoid national-park ocr-a ocr-b
okolaks oldstandard open-sans opendyslexic osifont oxygen pagul play prociono quattrocento quicksand roadgeek roboto-slab
routed-gothic rufscript sil-gentium-basic sjfonts smiley-sans sora staypuft summersby tlwg-purisa-ttf tomsontalks
triod-postnaja tuffy vollkorn yanone-kaffeesatz yrsa-rasa
"""
FONTS = _FONTS.split()  # packages fonts-*
CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
CONTEXTS = ("actions", "apps", "devices", "emblems", "mimetypes", "places", "status")
SECTIONS = ("admin", "devel", "doc", "games", "graphics", "net", "science", "sound", "text", "utils")
PARTS = (0.6, 0.15, 0.25)  # of the groups: train, validation, test
FRAMES, BINS = 32, 32  # of a spectrogram
RATE = 4_000  # samples of a sound, which lasts a second


def download(folder: Path) -> None:
    """Download and unpack all packages, and write what apt knows about all others to available.txt."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["npm", "install", "--prefix", folder, *(f"emoji-datasource-{vendor}" for vendor in VENDORS)], check=True)
    subprocess.run(["apt-get", "download", *THEMES, *(f"fonts-{name}" for name in FONTS)], cwd=folder, check=True)
    for archive in folder.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", archive, folder / archive.name.split("_")[0]], check=True)
        archive.unlink()
    (folder / "available.txt").write_bytes(subprocess.run(["apt-cache", "dumpavail"], check=True, capture_output=True).stdout)


def find_packages() -> Path:
    """Return the folder of the packages."""
    folder = Path(os.environ.get("OUTSPAN_PACKAGES", ""))
    if not (folder / "available.txt").exists():
        raise SystemExit("set OUTSPAN_PACKAGES to the folder that `python benchmarks/unseen_data.py folder` has filled")
    return folder


def split_groups(groups: Sequence[str]) -> list[torch.Tensor]:
    """Return the rows of train, validation and test in random order. All rows of a group are in the same part."""
    generator = torch.Generator().manual_seed(0)
    names = sorted(set(groups))
    bounds = np.cumsum([round(part * len(names)) for part in PARTS[:2]])
    order = torch.randperm(len(names), generator=generator).tolist()
    parts = {names[index]: int(np.searchsorted(bounds, place, side="right")) for place, index in enumerate(order)}
    of_rows = torch.tensor([parts[group] for group in groups])
    rows = [torch.nonzero(of_rows == part).flatten() for part in range(len(PARTS))]
    return [part[torch.randperm(len(part), generator=generator)] for part in rows]


def make_data(name: str, samples: Iterable[tuple[Image.Image, int, str]], classes: Sequence[str], count: int | None) -> Data:
    """Return images with their classes and groups, without copies, as data; with at most `count` train images."""
    seen: dict[bytes, tuple[np.ndarray, int, str]] = {}
    for picture, label, group in samples:
        pixels = np.atleast_3d(np.asarray(picture)).transpose(2, 0, 1)
        seen.setdefault(pixels.tobytes(), (pixels, label, group))
    arrays, labels, groups = zip(*seen.values(), strict=True)
    images, targets = torch.from_numpy(np.stack(arrays)), torch.tensor(labels)
    train, validation, test = split_groups(groups)
    parts = [InMemory(images[rows].contiguous(), targets[rows]) for rows in (train[:count], validation, test)]
    return Data(name, parts[0], parts[2], tuple(classes), parts[1])


def on_white(picture: Image.Image) -> Image.Image:
    """Return a picture in RGB, 32 pixels wide and high, with white where it is transparent."""
    picture = picture.convert("RGBA")
    composed = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("RGB")
    return composed.resize((32, 32), Image.Resampling.BOX)


def make_emoji(count: int | None = None) -> Data:
    """Return emoji; the class is the category. Variants of skin tones are left out."""
    folder = find_packages() / "node_modules"
    entries = json.loads((folder / "emoji-datasource-google" / "emoji.json").read_text())
    classes = sorted({entry["category"] for entry in entries} - {"Component"})

    def read() -> Iterator[tuple[Image.Image, int, str]]:
        for entry in entries:
            for vendor in VENDORS:
                path = folder / f"emoji-datasource-{vendor}" / "img" / vendor / "64" / entry["image"]
                if entry["category"] in classes and path.exists():
                    yield on_white(Image.open(path)), classes.index(entry["category"]), entry["unified"]

    return make_data("emoji", read(), classes, count)


def make_letters(count: int | None = None) -> Data:
    """Return letters and digits in grey, 28 pixels wide and high, of at most two fonts of each package."""

    def read() -> Iterator[tuple[Image.Image, int, str]]:
        for name in FONTS:
            files = [path for suffix in ("ttf", "otf") for path in (find_packages() / f"fonts-{name}").rglob(f"*.{suffix}")]
            readable = sorted(path for path in files if not path.is_symlink() and has_characters(path))
            for path in readable[:: max(1, len(readable) // 2)][:2]:
                font = ImageFont.truetype(path, 20)
                for label, character in enumerate(CHARACTERS):
                    picture = Image.new("L", (28, 28))
                    ImageDraw.Draw(picture).text((14, 21), character, fill=255, font=font, anchor="ms")
                    yield picture, label, name

    return make_data("letters", read(), CHARACTERS, count)


def has_characters(path: Path) -> bool:
    """Return whether a font has all characters."""
    return {ord(character) for character in CHARACTERS} <= FT2Font(str(path)).get_charmap().keys()


def make_icons(count: int | None = None) -> Data:
    """Return icons of desktop themes; the class is the context, such as devices. Links to other icons are left out."""

    def read() -> Iterator[tuple[Image.Image, int, str]]:
        for theme in THEMES:
            for path in sorted((find_packages() / theme).rglob("*.png")):
                if "32x32" in path.parts and path.parent.name in CONTEXTS and not path.is_symlink():
                    yield on_white(Image.open(path)), CONTEXTS.index(path.parent.name), path.name

    return make_data("icons", read(), CONTEXTS, count)


def rise(time: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Return a frequency that rises with the time."""
    return 0.15 + 0.3 * u[0] + (0.2 + 0.2 * u[1]) * time


# Sounds: the frequency (0 to 1, of the highest) and the loudness over the time t in [0, 1], for random numbers u in [0, 1].
SOUNDS: dict[str, tuple[Callable[..., np.ndarray], Callable[..., np.ndarray]]] = {
    "rising": (rise, lambda t, u: 1 + 0 * t),
    "falling": (lambda t, u: rise(1 - t, u), lambda t, u: 1 + 0 * t),
    "low": (lambda t, u: 0.12 + 0.2 * u[0] + 0 * t, lambda t, u: 1 + 0 * t),
    "middle": (lambda t, u: 0.37 + 0.2 * u[0] + 0 * t, lambda t, u: 1 + 0 * t),
    "high": (lambda t, u: 0.62 + 0.2 * u[0] + 0 * t, lambda t, u: 1 + 0 * t),
    "vibrato": (lambda t, u: 0.3 + 0.4 * u[0] + 0.06 * np.sin(2 * np.pi * (4 + 2 * u[1]) * t), lambda t, u: 1 + 0 * t),
    "fading": (lambda t, u: 0.12 + 0.7 * u[0] + 0 * t, lambda t, u: np.exp(-(2 + 2 * u[1]) * t)),
    "swelling": (lambda t, u: 0.12 + 0.7 * u[0] + 0 * t, lambda t, u: np.exp(-(2 + 2 * u[1]) * (1 - t))),
    "slow pulses": (lambda t, u: 0.12 + 0.7 * u[0] + 0 * t, lambda t, u: np.sin(np.pi * (2 + u[1]) * (t + u[2])) ** 2),
    "fast pulses": (lambda t, u: 0.12 + 0.7 * u[0] + 0 * t, lambda t, u: np.sin(np.pi * (5 + u[1]) * (t + u[2])) ** 2),
}


def make_spectrograms(count: int | None = None) -> Data:
    """Return the logarithm of the power of noisy sounds, with time from left to right and high frequencies at the top."""
    rng = np.random.default_rng(0)

    def draw() -> Iterator[tuple[Image.Image, int, str]]:
        time, window = np.arange(RATE) / RATE, np.hanning(2 * BINS)
        starts = np.linspace(0, RATE - len(window), FRAMES).astype(int)
        for index in range(8_000):
            frequency, loudness = [*SOUNDS.values()][index % len(SOUNDS)]
            u = rng.random(5)
            phase = 2 * np.pi * np.cumsum(frequency(time, u)) / 2 + 2 * np.pi * u[3]
            sound = (0.2 + u[4]) * loudness(time, u) * np.sin(phase) + rng.normal(0, 0.9, RATE)
            frames = np.stack([sound[start : start + len(window)] for start in starts]) * window
            power = np.abs(np.fft.rfft(frames)[:, :BINS].T[::-1]) ** 2
            grey = 255 * (np.log10(power + 1e-3) + 1) / 4
            yield Image.fromarray(grey.clip(0, 255).astype(np.uint8)), index % len(SOUNDS), str(index)

    return make_data("spectrograms", draw(), [*SOUNDS], count)


def make_packages(count: int | None = None, tested: int = 2_000) -> Data:
    """Return short descriptions of Debian packages; the class is the section. Equal descriptions are kept once.

    `count` is the number of train texts, by default all; `tested` is the highest number for validation, and for testing.
    """
    found: dict[str, tuple[int, str]] = {}
    for paragraph in (find_packages() / "available.txt").read_text(encoding="utf-8").split("\n\n"):
        lines = (line.partition(": ") for line in paragraph.splitlines() if not line.startswith(" "))
        fields = {key: value for key, _, value in lines}
        if fields.get("Section") in SECTIONS:
            source = fields.get("Source", fields["Package"]).split(" ")[0]  # a version may follow
            found.setdefault(fields["Description"], (SECTIONS.index(fields["Section"]), source))
    texts, labels = [*found], torch.tensor([label for label, _ in found.values()])
    parts = split_groups([source for _, source in found.values()])
    train, validation, test = (rows[:limit] for rows, limit in zip(parts, (count, tested, tested), strict=True))
    of_part = [Documents([texts[row] for row in rows], labels[rows]) for rows in (train, validation, test)]
    return Data("packages", of_part[0], of_part[2], SECTIONS, of_part[1])


if __name__ == "__main__":
    download(Path(sys.argv[1]))
