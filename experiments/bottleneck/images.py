"""Images of two classes: CIFAR-10 from its binary files, if available, or generated images of the
same shape."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from esnlm.base.errors import InputError
from esnlm.base.settings import Count, Natural, NonNegative
from esnlm.base.settings import settings as checked

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SHAPE = (3, 32, 32)  # red, green, blue; rows; columns
PIXELS = 3072
FILES = tuple(f"data_batch_{i}.bin" for i in range(1, 6))  # the training set
IMAGES_PER_FILE = 10_000  # each image is a byte of label and PIXELS bytes
# Size of a generated class's pattern, relative to a deviation of 1 within a class. A linear
# classifier then has an accuracy of about 85 %.
SIGNAL = 0.25


@checked
class ImageSettings:
    """The images of a study."""

    folder: str | None = None  # folder of CIFAR-10's binary files; null: generate images
    train: Count = 2000
    test: Natural = 2000
    seed: Natural = 0  # seed of the choice among CIFAR-10's images, or of generated images
    power: NonNegative = 2.0  # for generated images: amplitudes fall as 1 / f**power
    # for generated images: number of smooth patterns per class; each image has one
    patterns: Count = 8


class Images(NamedTuple):
    """Images and their classes."""

    # (n, 3072) float32, each channel of mean 0 and deviation 1 over the training images
    x: np.ndarray
    y: np.ndarray  # (n, 2) float32, one-hot


def load(settings: ImageSettings, classes: Sequence[str], where: str) -> tuple[Images, Images]:
    """Returns training and test images of two classes, chosen without replacement; both classes are
    as likely.

    Args:
        settings: which images.
        classes: two of CLASSES.
        where: how an error names the settings, as "file: images".

    Raises:
        InputError: a class is unknown, a file is missing or is not one of CIFAR-10's, or there are
            too few images.
    """
    if len(classes) != 2 or len(set(classes)) != 2 or not set(classes) <= set(CLASSES):
        raise InputError(
            f"{where}: the classes are {', '.join(map(str, classes))}: give two different ones of"
            f" {', '.join(CLASSES)}"
        )
    count, labels = settings.train + settings.test, [CLASSES.index(name) for name in classes]
    rng = np.random.default_rng([settings.seed, *labels])
    if settings.folder is None:
        which = rng.integers(0, 2, count)
        patterns = _patterns(settings, labels)[which, rng.integers(0, settings.patterns, count)]
        pixels = patterns * SIGNAL + _natural(rng, count, settings.power)
    else:
        pixels, found = _read(Path(settings.folder), where)
        mine = np.flatnonzero(np.isin(found, labels))
        if count > len(mine):
            there = f"{len(mine):,} of {' and '.join(classes)}"
            raise InputError(
                f"{where}: train and test need {count:,} images together, but CIFAR-10 has {there}"
            )
        chosen = rng.permutation(mine)[:count]
        pixels, which = pixels[chosen].astype(np.float32), (found[chosen] == labels[1]).astype(int)
    pixels = pixels.reshape(count, 3, -1)
    train = pixels[: settings.train]
    mean, deviation = (
        np.asarray(f(train, axis=(0, 2), dtype=np.float64))[:, None] for f in (np.mean, np.std)
    )
    x, y = (
        ((pixels - mean) / deviation).reshape(count, PIXELS).astype(np.float32),
        np.eye(2, dtype=np.float32)[which],
    )
    return Images(x[: settings.train], y[: settings.train]), Images(
        x[settings.train :], y[settings.train :]
    )


def describe(settings: ImageSettings, classes: Sequence[str]) -> str:
    """Returns a sentence about the images for reports, with the spectrum of two classes."""
    largest, most = spectrum(load(settings, classes, "images")[0].x)
    ending = (
        "each channel is normalised to mean 0 and deviation 1 over the training images [ours]; of"
        f" their variance ({' and '.join(classes)}) the first component has {largest:.0%}, and"
        f" {most} components have 95 %"
    )
    if settings.folder is not None:
        return f"CIFAR-10, from the training files; {ending}."
    several = "one" if settings.patterns == 1 else f"one of {settings.patterns}"
    return (
        "Generated images, not photographs: 3 x 32 x 32 values with amplitudes that fall as"
        f" 1/f^{settings.power:g}, to which each image adds {several} of the smooth patterns of its"
        f" class; only the names of the classes are from CIFAR-10; {ending}."
    )


def _read(folder: Path, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns all training images (50,000, 3072) uint8 and their labels (50,000,)."""
    images, size = [], IMAGES_PER_FILE * (1 + PIXELS)
    for file in (folder / name for name in FILES):
        try:
            raw = np.fromfile(file, np.uint8)
        except OSError as error:
            raise InputError(
                f"{file}: {error.strerror}; name the folder of CIFAR-10's binary files in"
                f" {where}.folder"
            ) from None
        if raw.size != size:
            raise InputError(
                f"{file}: {raw.size:,} bytes, but CIFAR-10's binary files have {size:,}: get it"
                " again"
            )
        images.append(raw.reshape(IMAGES_PER_FILE, 1 + PIXELS))
    together = np.concatenate(images)
    return together[:, 1:], together[:, 0]


def _natural(
    rng: np.random.Generator, count: int, power: float, highest: float = np.inf
) -> np.ndarray:
    """Returns Gaussian images (count, 3, 32, 32) of deviation 1, whose channels correlate at 0.8.

    Amplitudes fall as 1 / f**power up to `highest` cycles per image.
    """
    down, across = np.fft.fftfreq(32, 1 / 32)[:, None], np.fft.rfftfreq(32, 1 / 32)
    f = np.hypot(down, across)  # cycles an image
    amplitude = np.where(f <= highest, 1 / np.maximum(f, 1) ** power, 0)
    grey, colour = (
        rng.standard_normal((count, channels, 32, 32), np.float32) for channels in (1, 3)
    )
    field = np.fft.irfft2(
        np.fft.rfft2(np.sqrt(0.8) * grey + np.sqrt(0.2) * colour) * amplitude, SHAPE[1:]
    )
    return (field / field.std()).astype(np.float32)


def _patterns(settings: ImageSettings, labels: Sequence[int]) -> np.ndarray:
    """Returns the patterns of each class, (2, patterns, 3, 32, 32). They do not depend on the other
    class."""
    rngs = (np.random.default_rng([settings.seed, label]) for label in labels)
    return np.stack([_natural(rng, settings.patterns, 1, highest=4) for rng in rngs])


def spectrum(x: np.ndarray) -> tuple[float, int]:
    """Returns the share of the first principal component of images x (n, 3072), and how many have
    95 % of the variance."""
    variances = np.linalg.svd(x - x.mean(axis=0), compute_uv=False).astype(float) ** 2
    shares = variances / variances.sum()
    return float(shares[0]), 1 + int(np.searchsorted(np.cumsum(shares), 0.95))
