"""Images as a model was trained to see them, and sets of images with labels to train on.

A set is an `.npz` file with images and labels, or a folder with one folder of images for each label.
"""

import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from clearformer.data.pixels import MOST_PIXELS, SUFFIXES, look, open_image, pillow_module
from clearformer.data.preprocessing import Preprocessing
from clearformer.errors import DataError, nearest

if TYPE_CHECKING:
    from PIL.Image import Image

RESAMPLE = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # by Pillow's numbers
LARGEST_SET = 2**32  # bytes of an array, unpacked
UNREADABLE = (OSError, EOFError, ValueError, RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error)
NAMES = (("x", "y"), ("X", "y"), ("images", "labels"), ("data", "labels"), ("x", "labels"), ("image", "label"))

Array = np.ndarray[Any, Any]


def view(image: "Image", how: Preprocessing) -> "Image":
    """The part of a picture that a model sees, in the size it sees it: resized, then cropped."""
    if how.size is not None:
        height, width = _size(image, how.size, how.shortest)
        if height * width > MOST_PIXELS:
            raise DataError(
                f"an image of {image.width} × {image.height} is too narrow: with its shorter side brought to"
                f" {how.size[0]} it would have more than {MOST_PIXELS:,} pixels; crop it"
            )
        image = image.resize((width, height), resample(how.resample))
    if how.crop is not None:
        height, width = how.crop
        left, top = (image.width - width) // 2, (image.height - height) // 2
        image = image.crop((left, top, left + width, top + height))  # black where the picture does not reach
    return image


def prepare(image: "Image", how: Preprocessing) -> Tensor:
    """c h w: what a model takes in, by the metadata that came with it (`metadata.image`).

    (pixels × scale − mean) / std, after resizing and cropping with Pillow: to the last bit what the public
    preprocessors compute with Pillow and numpy.
    """
    pixels = np.asarray(view(image, how))
    pixels = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    values: Array = (pixels.astype(np.float64) * how.scale).astype(np.float32)
    if how.mean is not None:
        mean, std = (_column(each, len(values)) for each in (how.mean, how.std or (1.0,)))
        values = (values - mean) / std
    return torch.from_numpy(np.ascontiguousarray(values))


def resample(kind: str | int) -> Any:
    """Pillow's filter of a name or a number."""
    name = RESAMPLE[kind] if isinstance(kind, int) and 0 <= kind < len(RESAMPLE) else str(kind)
    if name not in RESAMPLE:
        raise DataError(f"there is no way to resize called {name!r}{nearest(name, RESAMPLE)}")
    return pillow_module().Resampling(RESAMPLE.index(name))


def _size(image: "Image", size: tuple[int, int], shortest: bool) -> tuple[int, int]:
    height, width = size
    if not shortest:
        return height, width
    short, long = sorted(image.size)
    grown = int(height * long / short)
    return (grown, height) if image.width <= image.height else (height, grown)


def _column(values: Any, channels: int) -> Array:
    found = np.asarray(values, np.float32).reshape(-1, 1, 1)
    if len(found) not in (1, channels):
        raise DataError(f"the image preprocessing has {len(found)} means or deviations for {channels} channels")
    return found


# --- sets -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ImageSet:
    """Images and what they show. `images[n]` is c h w in uint8; `batch` gives several, b c h w."""

    images: "Array | Files"
    labels: list[str]
    kinds: list[str]  # every label once, in the order of the classes

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        channels, height, width = self.images.shape[1:]
        return channels, height, width

    def batch(self, rows: Sequence[int] | Array) -> Array:
        if isinstance(self.images, Files):
            return np.stack([self.images[int(row)] for row in rows])
        return self.images[np.asarray(rows)]


@dataclass(frozen=True)
class Files(Sequence[Array]):
    """Images that stay in their files until they are asked for."""

    paths: list[Path]
    shape: tuple[int, int, int, int]  # of the array they would be

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: Any) -> Any:
        _, channels, height, width = self.shape
        image = open_image(self.paths[row], channels)
        if image.size != (width, height):
            image = image.resize((width, height), resample("bilinear"))
        pixels = np.asarray(image)
        return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)


def read_images(path: str | Path, *, part: str | None = None, size: tuple[int, int] | None = None) -> ImageSet:
    """The set at a path: an `.npz` file, or a folder of folders named by their labels.

    `part` picks x_train and y_train, say, from a file that has several parts ("train" without a word). `size`, height
    and width, is what the images of a folder are resized to where they differ.
    """
    path = Path(path)
    if path.is_dir():
        return _from_folder(path, size)
    if not path.exists():
        raise DataError(f"there is no file or folder {path}")
    if not zipfile.is_zipfile(path):
        raise DataError(f"{path} is no set of images; give an .npz file, or a folder with one folder for each label")
    return _from_arrays(path, part)


def _from_folder(folder: Path, size: tuple[int, int] | None) -> ImageSet:
    inside = _listed(folder)
    kinds = [each for each in inside if each.is_dir()]
    if all(kind.name.isdecimal() for kind in kinds):
        kinds.sort(key=lambda kind: int(kind.name))  # 2 comes before 10
    if not kinds:
        what = "images without labels" if any(map(_is_image, inside)) else "no folders of images"
        raise DataError(f"{folder} holds {what}; make one folder for each label, with its images inside")
    paths = [file for kind in kinds for file in _files(kind)]
    looks = [look(file) for file in paths]
    if size is None:
        size = _common_size(paths, [(height, width) for height, width, _ in looks])
    channels = 1 if all(grey for *_, grey in looks) else 3
    labels = [file.parent.name for file in paths]
    return ImageSet(Files(paths, (len(paths), channels, *size)), labels, [kind.name for kind in kinds])


def _files(kind: Path) -> list[Path]:
    """The images of one label; anything else there is an error, for nothing is left out in silence."""
    files = _listed(kind)
    if not files:
        raise DataError(f"{kind} is the folder of a label and has no images")
    for file in files:
        if file.is_dir():
            raise DataError(
                f"{file} is a folder inside the folder of a label; give {kind} if its folders are the labels"
            )
        if not _is_image(file):
            endings = ", ".join(SUFFIXES)
            raise DataError(f"{file} is in the folder of a label and no image; names of images end in {endings}")
    return files


def _common_size(paths: list[Path], sizes: list[tuple[int, int]]) -> tuple[int, int]:
    first = sizes[0]
    for path, size in zip(paths, sizes, strict=True):
        if size != first:
            raise DataError(
                f"images differ in size: {paths[0]} is {first[0]} × {first[1]} (height × width) and {path}"
                f" {size[0]} × {size[1]}; say what size they shall have (data.size, in training)"
            )
    return first


def _listed(folder: Path) -> list[Path]:
    return sorted(each for each in folder.iterdir() if not each.name.startswith("."))


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES


def _from_arrays(path: Path, part: str | None) -> ImageSet:
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
            which = _which(names, part, path)
            images, labels = (_array(archive, name, path) for name in which)
    except UNREADABLE as error:
        raise DataError(f"{path} is damaged or no .npz file: {error}") from None
    images = _channels_first(images, which[0], path)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or labels.dtype.kind not in "iuU":
        raise DataError(
            f"{path}: {which[1]} is {labels.dtype} of shape {labels.shape}; expected one whole number or text an image"
        )
    if len(images) != len(labels):
        raise DataError(f"{path}: {which[0]} has {len(images):,} images and {which[1]} {len(labels):,} labels")
    if not len(images):
        raise DataError(f"{path} has no images")
    return ImageSet(
        images, [str(label) for label in labels.tolist()], [str(kind) for kind in np.unique(labels).tolist()]
    )


def _which(names: list[str], part: str | None, path: Path) -> tuple[str, str]:
    """The names of the arrays of images and of labels."""
    if part is None:
        for pair in NAMES:
            if set(pair) <= set(names):
                return pair
    wanted = part or "train"
    for a, b in NAMES:
        for pair in ((f"{a}_{wanted}", f"{b}_{wanted}"), (f"{wanted}_{a}", f"{wanted}_{b}")):
            if set(pair) <= set(names):
                return pair
    asked = "x and y" if part is None else f"x_{part} and y_{part}"
    raise DataError(f"{path} has no arrays {asked}, nor images and labels; it has {', '.join(names) or 'none'}")


def _array(archive: zipfile.ZipFile, name: str, path: Path) -> Array:
    """One array, with its header checked before room is made for it; never with Python objects."""
    form = np.lib.format
    with archive.open(f"{name}.npy") as file:
        version = form.read_magic(file)
        header = form.read_array_header_1_0 if version == (1, 0) else form.read_array_header_2_0
        shape, _, kind = header(file)
        if kind.hasobject:
            raise DataError(f"{path}: {name} holds Python objects, which are not read; save it as plain numbers")
        size = int(np.prod(shape, dtype=object)) * kind.itemsize
        if size > LARGEST_SET:
            raise DataError(f"{path}: {name} has {size:,} bytes, and {LARGEST_SET:,} is the most")
        if size > archive.getinfo(f"{name}.npy").file_size:
            raise DataError(f"{path} is damaged: {name} says it has {size:,} bytes and has fewer")
    with archive.open(f"{name}.npy") as file:
        return form.read_array(file, allow_pickle=False)


def _channels_first(images: Array, name: str, path: Path) -> Array:
    if images.dtype != np.uint8:
        raise DataError(f"{path}: {name} is {images.dtype}; expected uint8, 0 to 255")
    if images.ndim == 3:
        return images[:, None]
    if images.ndim == 4 and images.shape[3] in (1, 3):
        return images.transpose(0, 3, 1, 2)
    if images.ndim == 4 and images.shape[1] in (1, 3):
        return images
    shape = " × ".join(map(str, images.shape))
    raise DataError(
        f"{path}: {name} has the shape {shape}; expected images × height × width, with 1 or 3 channels at the end or"
        " after the images"
    )
