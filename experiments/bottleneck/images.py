"""Images of two classes: CIFAR-10 from its binary files, where a user has them, or generated ones of the same shape."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from esnlm.errors import InputError

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SHAPE = (3, 32, 32)  # red, green, blue; rows; columns
PIXELS = 3072
FILES = tuple(f"data_batch_{i}.bin" for i in range(1, 6))  # the training set
IMAGES_PER_FILE = 10_000  # each image is a byte of label and PIXELS bytes
# The size of a generated class's pattern, where images within a class have deviation 1. A linear classifier then gets
# about 85 % right.
SIGNAL = 0.12


@dataclass(frozen=True)
class ImageSettings:
    """Which images a study takes."""

    folder: str | None = None  # holds CIFAR-10's binary files; null: images are generated
    train: int = 2000
    test: int = 2000
    seed: int = 0  # decides the choice among CIFAR-10's images, or the generated ones


class Images(NamedTuple):
    """Images and their classes."""

    x: np.ndarray  # (n, 3072) float32, each channel of mean 0 and deviation 1 over the training images
    y: np.ndarray  # (n, 2) float32, one-hot


def load(settings: ImageSettings, classes: Sequence[str], where: str) -> tuple[Images, Images]:
    """Returns training and test images of two classes, chosen without replacement; both classes are as likely.

    Args:
        settings: which images.
        classes: two of CLASSES.
        where: how an error names the settings, as "file: images".

    Raises:
        InputError: a class is unknown, a file is missing or is not one of CIFAR-10's, or there are too few images.
    """
    if len(classes) != 2 or len(set(classes)) != 2 or not set(classes) <= set(CLASSES):
        raise InputError(
            f"{where}: the classes are {', '.join(map(str, classes))}: give two different ones of {', '.join(CLASSES)}"
        )
    if settings.train < 1 or settings.test < 0 or settings.seed < 0:
        raise InputError(f"{where}: train must be at least 1, test and seed must not be negative")
    count, labels = settings.train + settings.test, [CLASSES.index(name) for name in classes]
    rng = np.random.default_rng([settings.seed, *labels])
    if settings.folder is None:
        which = rng.integers(0, 2, count)
        pixels = _patterns(settings.seed, labels)[which] * SIGNAL + _natural(rng, count)
    else:
        pixels, found = _read(Path(settings.folder), where)
        mine = np.flatnonzero(np.isin(found, labels))
        if count > len(mine):
            there = f"{len(mine):,} of {' and '.join(classes)}"
            raise InputError(f"{where}: train and test are {count:,} images together: CIFAR-10 has {there}")
        chosen = rng.permutation(mine)[:count]
        pixels, which = pixels[chosen].astype(np.float32), (found[chosen] == labels[1]).astype(int)
    pixels = pixels.reshape(count, 3, -1)
    train = pixels[: settings.train]
    mean, deviation = (np.asarray(f(train, axis=(0, 2), dtype=np.float64))[:, None] for f in (np.mean, np.std))
    x, y = ((pixels - mean) / deviation).reshape(count, PIXELS).astype(np.float32), np.eye(2, dtype=np.float32)[which]
    return Images(x[: settings.train], y[: settings.train]), Images(x[settings.train :], y[settings.train :])


def describe(settings: ImageSettings) -> str:
    """Returns a sentence about the images for reports."""
    ending = "each channel normalised to mean 0 and deviation 1 over the training images"
    if settings.folder is not None:
        return f"CIFAR-10, from the training files, {ending}."
    return (
        "Generated images, no photographs: 3 x 32 x 32 values with the 1/f amplitude spectrum of natural images, to"
        " which each class adds a smooth pattern of its own; the classes' names are CIFAR-10's, but nothing else is;"
        f" {ending}."
    )


def _read(folder: Path, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns all training images (50,000, 3072) uint8 and their labels (50,000,)."""
    images, size = [], IMAGES_PER_FILE * (1 + PIXELS)
    for file in (folder / name for name in FILES):
        try:
            raw = np.fromfile(file, np.uint8)
        except OSError as error:
            raise InputError(
                f"{file}: {error.strerror}; name the folder of CIFAR-10's binary files in {where}.folder"
            ) from None
        if raw.size != size:
            raise InputError(f"{file}: {raw.size:,} bytes, where CIFAR-10's binary files have {size:,}: get it anew")
        images.append(raw.reshape(IMAGES_PER_FILE, 1 + PIXELS))
        if (worst := images[-1][:, 0].max()) >= len(CLASSES):
            raise InputError(f"{file}: label {worst}, where CIFAR-10 has 0 to 9: get it anew")
    together = np.concatenate(images)
    return together[:, 1:], together[:, 0]


def _natural(rng: np.random.Generator, count: int, highest: float = np.inf) -> np.ndarray:
    """Returns Gaussian images (count, 3, 32, 32) of deviation 1, whose channels correlate at 0.8.

    Amplitudes fall as 1/f up to `highest` cycles an image.
    """
    down, across = np.fft.fftfreq(32, 1 / 32)[:, None], np.fft.rfftfreq(32, 1 / 32)
    f = np.hypot(down, across)  # cycles an image
    amplitude = np.where(f <= highest, 1 / np.maximum(f, 1), 0)
    grey, colour = (rng.standard_normal((count, channels, 32, 32), np.float32) for channels in (1, 3))
    field = np.fft.irfft2(np.fft.rfft2(np.sqrt(0.8) * grey + np.sqrt(0.2) * colour) * amplitude, SHAPE[1:])
    return (field / field.std()).astype(np.float32)


def _patterns(seed: int, labels: Sequence[int]) -> np.ndarray:
    """Returns what the images of each class share, whatever the other class is: (2, 3, 32, 32)."""
    return np.concatenate([_natural(np.random.default_rng([seed, label]), 1, highest=4) for label in labels])
