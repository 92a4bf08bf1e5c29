"""Pictures from files, read with care.

A file is looked at before it is decoded: its size, its format, its number of pixels. What comes out is upright, in RGB
or grey with eight bits a channel, and without transparency.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from clearformer.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

LARGEST_FILE = 2**28  # bytes
MOST_PIXELS = 100_000_000
# no format whose reader starts another program or looks at other files
FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF", "PPM")
SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
GREY = ("1", "L", "I", "I;16", "I;16B", "I;16L", "I;16N")
DEEP = GREY[2:]  # more than eight bits a pixel
TURNED = range(5, 9)  # EXIF orientations that swap height and width
ORIENTATION = 0x0112


def open_image(path: str | Path, channels: int = 3) -> "Image":
    """The first picture of a file: upright, as RGB (or grey, for one channel), what is transparent over white."""
    path = Path(path)
    with _quiet(), _opened(path) as image:
        try:
            image.load()
        except Exception as error:  # decoders of damaged files raise whatever they stumble over
            raise DataError(f"{path} is damaged: {_said(error)}; copy or save it anew") from None
        return coloured(upright(image), channels, str(path))


def decode(content: bytes, most: int = MOST_PIXELS) -> "Image":
    """The first picture of a file that is in memory, with so many pixels at most, which is known before they are."""
    with _quiet():
        image = _identified(BytesIO(content), "the image", min(most, MOST_PIXELS))
        try:
            image.load()
        except Exception as error:  # as above
            raise DataError(f"the image is damaged: {_said(error)}; copy or save it anew") from None
        return image


def look(path: Path) -> tuple[int, int, bool]:
    """Height, width and whether it is grey, from a file's header alone."""
    with _quiet(), _opened(path) as image:
        width, height = image.size
        if _orientation(image) in TURNED:
            width, height = height, width
        return height, width, image.mode in GREY


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Pillow's warnings: what they are about is checked here, or is damage that does not matter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _opened(path: Path) -> "Image":
    """The file with its header read and nothing decoded."""
    pillow_module()
    if path.is_dir():
        raise DataError(f"{path} is a folder; give an image file")
    if not path.is_file():
        raise DataError(f"there is no file {path}")
    if path.stat().st_size > LARGEST_FILE:
        raise DataError(f"{path} has more than {LARGEST_FILE:,} bytes; make a smaller image of it")
    return _identified(path, str(path), MOST_PIXELS)


def _identified(file: Path | BytesIO, name: str, most: int) -> "Image":
    pillow = pillow_module()
    try:
        image = pillow.open(file, formats=FORMATS)
    except pillow.DecompressionBombError:
        raise DataError(f"{name} has more than {most:,} pixels; make a smaller image of it") from None
    except pillow.UnidentifiedImageError:
        raise DataError(f"{name} is not an image: none of {', '.join(FORMATS)}") from None
    except PermissionError as error:
        raise DataError(f"cannot read {name}: {error.strerror}") from None
    except Exception as error:  # as above
        raise DataError(f"{name} is damaged: {_said(error)}; copy or save it anew") from None
    if image.width * image.height > most:
        image.close()
        raise DataError(f"{name} has more than {most:,} pixels; make a smaller image of it")
    return image


def upright(image: "Image") -> "Image":
    """Turned and mirrored as its EXIF orientation says; one that cannot be read says nothing."""
    from PIL import ImageOps

    try:
        return ImageOps.exif_transpose(image)
    except Exception:
        return image


def _orientation(image: "Image") -> int:
    try:
        return int(image.getexif().get(ORIENTATION, 1))
    except Exception:
        return 1


def coloured(image: "Image", channels: int, name: str) -> "Image":
    """RGB for three channels and grey for one, eight bits each."""
    mode = {1: "L", 3: "RGB"}.get(channels)
    if mode is None:
        raise DataError(f"images are read with 1 or 3 channels, and this model wants {channels}")
    if image.mode == "F":
        raise DataError(f"{name} has floating-point pixels, which have no agreed range; save it with 8 or 16 bits")
    if image.mode in DEEP:
        image = _eight_bits(image, name)
    elif image.has_transparency_data:
        image = image.convert("RGBA")
        white = pillow_module().new("RGBA", image.size, "white")
        image = pillow_module().alpha_composite(white, image)
    return image if image.mode == mode else image.convert(mode)


def _eight_bits(image: "Image", name: str) -> "Image":
    """65,535 becomes 255; Pillow alone would cut off what is above 255."""
    values = np.asarray(image)
    if values.min() < 0 or values.max() > 65_535:
        raise DataError(f"{name} has pixels of 32 bits; save it with 8 or 16 bits a channel")
    return pillow_module().fromarray(((values.astype(np.uint32) + 128) // 257).astype(np.uint8))


def from_array(array: Any, name: str) -> "Image":
    """A picture from numbers: uint8 of shape height × width, with 1, 3 or 4 channels at the end or in front."""
    values = np.asarray(array)
    if values.ndim == 3 and values.shape[2] not in (1, 3, 4) and values.shape[0] in (1, 3, 4):
        values = values.transpose(1, 2, 0)
    flat = values.ndim == 2 or (values.ndim == 3 and values.shape[2] in (1, 3, 4))
    if values.dtype != np.uint8 or not flat or not values.size:
        shape = " × ".join(map(str, values.shape)) or "one number"
        raise DataError(
            f"{name} is {values.dtype} of shape {shape}; expected uint8 (0 to 255) of height × width"
            " with 1, 3 or 4 channels"
        )
    return pillow_module().fromarray(np.ascontiguousarray(values[:, :, 0] if values.shape[2:] == (1,) else values))


def take(given: Any, channels: int, name: str) -> "Image":
    """A picture from a path, a Pillow image, an array or a tensor."""
    if isinstance(given, str | Path):
        return open_image(given, channels)
    if isinstance(given, Tensor | np.ndarray):
        image = from_array(given.cpu().numpy() if isinstance(given, Tensor) else given, name)
        return coloured(image, channels, name)
    if isinstance(given, pillow_module().Image):
        return coloured(upright(given), channels, name)
    raise DataError(f"{name} is a {type(given).__name__}; give a path, a Pillow image or an array")


def _said(error: Exception) -> str:
    return str(error).strip().rstrip(".").split("\n")[0] or type(error).__name__


def pillow_module() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise DataError("images need Pillow; install it with: pip install 'clearformer[images]'") from None
    return Image
