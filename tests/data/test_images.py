"""Images are prepared as Hugging Face's processor prepares them and read as they were meant; what is none is named."""

import io
import json
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from transformers.image_utils import PILImageResampling
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from clearformer.data import images, pixels
from clearformer.data.images import prepare, read_images, view
from clearformer.data.pixels import coloured, from_array, look, open_image, take
from clearformer.data.preprocessing import Preprocessing
from clearformer.errors import DataError


def noise(height: int, width: int, channels: int = 3, seed: int = 0) -> np.ndarray:
    shape = (height, width, channels) if channels > 1 else (height, width)
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def preprocessing(**kept: Any) -> Preprocessing:
    """As it is read from a folder."""
    return Preprocessing.model_validate_json(json.dumps(kept))


# --- preparing --------------------------------------------------------------------------------------------


@given(
    size=st.tuples(st.integers(1, 60), st.integers(1, 60)),
    to=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    kind=st.sampled_from(images.RESAMPLE),
    shortest=st.booleans(),
    crop=st.none() | st.tuples(st.integers(1, 50), st.integers(1, 50)),
    normal=st.booleans(),
    channels=st.sampled_from([1, 3]),
    seed=st.integers(0, 9),
)
def test_prepared_to_the_last_bit_as_the_public_processor_does(
    size: tuple[int, int],
    to: tuple[int, int],
    kind: str,
    shortest: bool,
    crop: tuple[int, int] | None,
    normal: bool,
    channels: int,
    seed: int,
) -> None:
    picture = Image.fromarray(noise(*size, channels, seed))
    mean, std = [0.485, 0.456, 0.406][:channels], [0.229, 0.224, 0.225][:channels]
    public = ViTImageProcessorPil(
        size={"shortest_edge": to[0]} if shortest else {"height": to[0], "width": to[1]},
        resample=PILImageResampling[kind.upper()],
        do_center_crop=crop is not None,
        crop_size=None if crop is None else {"height": crop[0], "width": crop[1]},
        do_normalize=normal,
        image_mean=mean,
        image_std=std,
    )
    kept = {"size": list(to), "resample": kind, "shortest": shortest, "crop": crop, "scale": 1 / 255}
    how = preprocessing(**kept, **({"mean": mean, "std": std} if normal else {}))
    expected = public(picture, return_tensors="pt")["pixel_values"][0]
    assert torch.equal(prepare(picture, how), expected)
    number = PILImageResampling[kind.upper()].value
    assert torch.equal(prepare(picture, how.model_copy(update={"resample": number})), expected)


def test_hand_numbers() -> None:
    picture = Image.fromarray(np.array([[[255, 0, 51]]], np.uint8))
    found = prepare(
        picture, preprocessing(size=[2, 1], resample="nearest", scale=1 / 255, mean=[0.5] * 3, std=[0.5] * 3)
    )
    assert found.shape == (3, 2, 1)
    assert found[:, 0, 0].tolist() == pytest.approx([1.0, -1.0, -0.6])


def test_a_narrow_picture_is_refused_before_it_fills_the_memory() -> None:
    picture = Image.new("RGB", (1, 60_000))
    assert view(picture, preprocessing(size=[4, 4])).size == (4, 4)
    with pytest.raises(DataError, match=r"1 × 60000 is too narrow: .* crop it"):
        prepare(picture, preprocessing(size=[224, 224], shortest=True, crop=[224, 224]))


def test_preparing_that_does_not_fit_is_said() -> None:
    picture = Image.new("RGB", (4, 4))
    with pytest.raises(DataError, match="no way to resize called 'bicubik'; did you mean 'bicubic'"):
        prepare(picture, preprocessing(size=[2, 2], resample="bicubik"))
    with pytest.raises(DataError, match="2 means or deviations for 3 channels"):
        prepare(picture, preprocessing(size=[2, 2], mean=[0.5, 0.5], std=[0.5, 0.5]))


# --- colours ----------------------------------------------------------------------------------------------


def saved(folder: Path, picture: Image.Image, name: str = "a.png", **how: Any) -> Path:
    picture.save(folder / name, **how)
    return folder / name


def test_what_is_transparent_lies_over_white(tmp_path: Path) -> None:
    red = Image.new("RGBA", (2, 1), (255, 0, 0, 255))
    red.putpixel((1, 0), (255, 0, 0, 0))
    found = np.asarray(open_image(saved(tmp_path, red)))
    assert found.tolist() == [[[255, 0, 0], [255, 255, 255]]]
    half = open_image(saved(tmp_path, Image.new("RGBA", (1, 1), (0, 0, 0, 128))))
    assert half.getpixel((0, 0)) == (127, 127, 127)
    grey = open_image(saved(tmp_path, Image.new("LA", (1, 1), (0, 0))), channels=1)
    assert (grey.mode, grey.getpixel((0, 0))) == ("L", 255)
    palette = Image.new("P", (2, 1), 0)
    palette.putpalette([0, 0, 255, 9, 9, 9])
    palette.putpixel((1, 0), 1)
    found = np.asarray(open_image(saved(tmp_path, palette, transparency=1)))
    assert found.tolist() == [[[0, 0, 255], [255, 255, 255]]]


def test_every_kind_of_pixel_becomes_eight_bits(tmp_path: Path) -> None:
    deep = Image.fromarray(np.array([[0, 257, 65_535, 32_896]], np.uint16))
    assert np.asarray(open_image(saved(tmp_path, deep))).tolist() == [[[n] * 3 for n in (0, 1, 255, 128)]]
    assert np.asarray(open_image(saved(tmp_path, deep, "a.tif"), 1)).tolist() == [[0, 1, 255, 128]]
    assert open_image(saved(tmp_path, Image.new("1", (2, 2), 1))).getpixel((0, 0)) == (255, 255, 255)
    inks = open_image(saved(tmp_path, Image.new("CMYK", (8, 8), (255, 0, 0, 0)), "a.jpg", quality=100))
    assert inks.mode == "RGB"
    assert np.abs(np.array(inks.getpixel((4, 4))) - (0, 255, 255)).max() <= 3
    assert open_image(saved(tmp_path, Image.new("L", (3, 2), 7))).getpixel((0, 0)) == (7, 7, 7)


def test_pixels_without_plain_colours_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, Image.fromarray(np.full((2, 2), 70_000, np.int32)), "a.tif")
    with pytest.raises(DataError, match=r"a\.tif has pixels of 32 bits"):
        open_image(path)
    path = saved(tmp_path, Image.new("F", (2, 2), 0.5), "b.tif")
    with pytest.raises(DataError, match=r"b\.tif has floating-point pixels"):
        open_image(path)
    with pytest.raises(DataError, match="1 or 3 channels, and this model wants 2"):
        coloured(Image.new("RGB", (1, 1)), 2, "it")


@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_stand_upright(tmp_path: Path, orientation: int) -> None:
    """Each of the eight ways a camera may have been held, undone by hand."""
    values = np.arange(6, dtype=np.uint8).reshape(2, 3) * 40
    stored = {
        1: values,
        2: values[:, ::-1],
        3: values[::-1, ::-1],
        4: values[::-1],
        5: values.T,
        6: np.rot90(values),
        7: values[::-1, ::-1].T,
        8: np.rot90(values, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = saved(tmp_path, Image.fromarray(np.ascontiguousarray(stored)), exif=exif)
    assert np.asarray(open_image(path, 1)).tolist() == values.tolist()
    assert look(path) == (2, 3, True)


def test_of_a_moving_picture_the_first_frame(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    path = saved(tmp_path, frames[0], "a.gif", save_all=True, append_images=frames[1:])
    assert open_image(path).getpixel((0, 0)) == (255, 0, 0)


# --- files that are no images -----------------------------------------------------------------------------


def test_what_is_no_image_is_named(tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("I am a text, whatever I am called.\n" * 9)
    with pytest.raises(DataError, match=r"text\.png is not an image: none of PNG, JPEG"):
        open_image(tmp_path / "text.png")
    (tmp_path / "empty.png").touch()
    with pytest.raises(DataError, match=r"empty\.png is not an image"):
        open_image(tmp_path / "empty.png")
    with pytest.raises(DataError, match=r"there is no file .*none\.png"):
        open_image(tmp_path / "none.png")
    with pytest.raises(DataError, match="is a folder; give an image file"):
        open_image(tmp_path)


def test_no_reader_that_starts_other_programs(tmp_path: Path) -> None:
    """Pillow hands PostScript to Ghostscript."""
    (tmp_path / "a.png").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n")
    with pytest.raises(DataError, match="is not an image"):
        open_image(tmp_path / "a.png")


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.gif", "a.webp", "a.tif", "a.bmp"])
def test_a_file_that_breaks_off_is_damaged(tmp_path: Path, name: str) -> None:
    path = saved(tmp_path, Image.fromarray(noise(40, 40)), name)
    whole = path.read_bytes()
    assert open_image(path).size == (40, 40)
    for kept in (len(whole) // 2, 40, 12):
        path.write_bytes(whole[:kept])
        with pytest.raises(DataError, match=rf"{name} is (damaged: .*; copy or save it anew|not an image)"):
            open_image(path)


@given(st.sampled_from(["PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP", "PPM"]), st.randoms(use_true_random=False))
def test_mutated_files_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, kind: str, random: Any) -> None:
    stream = io.BytesIO()
    Image.fromarray(noise(9, 11)).save(stream, kind)
    content = bytearray(stream.getvalue())
    for _ in range(random.randint(1, 6)):
        content[random.randrange(min(len(content), 120))] = random.randrange(256)
    path = tmp_path_factory.getbasetemp() / f"mutated.{kind.lower()}"
    path.write_bytes(content)
    try:
        assert open_image(path).mode == "RGB"
    except DataError as error:
        assert str(path) in str(error)  # noqa: PT017


def png(width: int, height: int) -> bytes:
    """A file of a few bytes that says it is large: rows of zeros, packed."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(99))) + chunk(b"IEND", b"")


@pytest.mark.parametrize("size", [(10_001, 10_000), (9_500, 10_600), (60_000, 60_000), (2**31 - 1, 2**31 - 1)])
def test_a_bomb_is_refused_by_its_header(tmp_path: Path, size: tuple[int, int]) -> None:
    path = tmp_path / "bomb.png"
    path.write_bytes(png(*size))
    with pytest.raises(DataError, match=r"bomb\.png has more than 100,000,000 pixels"):
        open_image(path)
    with pytest.raises(DataError, match="100,000,000"):
        look(path)


def test_a_file_that_is_too_large_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pixels, "LARGEST_FILE", 50)
    with pytest.raises(DataError, match=r"a\.png has more than 50 bytes"):
        open_image(saved(tmp_path, Image.fromarray(noise(9, 9))))


def test_without_pillow_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(DataError, match=r"pip install 'clearformer\[images\]'"):
        open_image("a.png")


# --- numbers instead of files -----------------------------------------------------------------------------


def test_pictures_from_arrays() -> None:
    values = noise(5, 7)
    for given_ in (values, values.transpose(2, 0, 1), torch.from_numpy(values), Image.fromarray(values)):
        assert np.array_equal(np.asarray(take(given_, 3, "it")), values)
    grey = noise(5, 7, 1)
    for given_ in (grey, grey[..., None], grey[None]):
        assert np.array_equal(np.asarray(take(given_, 1, "it")), grey)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (np.zeros((4, 4)), "it is float64 of shape 4 × 4; expected uint8"),
        (np.zeros((5, 5, 2), np.uint8), "shape 5 × 5 × 2; .* with 1, 3 or 4 channels"),
        (np.zeros((0, 4), np.uint8), "shape 0 × 4"),
        (np.zeros(4, np.uint8), "shape 4;"),
        (np.uint8(1), "one number"),
    ],
)
def test_arrays_that_are_no_picture(wrong: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        from_array(wrong, "it")
    with pytest.raises(DataError, match="it is a dict; give a path"):
        take({}, 3, "it")


# --- sets -------------------------------------------------------------------------------------------------


def archive(folder: Path, **arrays: Any) -> Path:
    np.savez_compressed(folder / "set.npz", **arrays)
    return folder / "set.npz"


def test_a_set_of_grey_images_with_numbers(tmp_path: Path) -> None:
    x, y = noise(5 * 6, 7, 1).reshape(5, 6, 7), np.array([3, 10, 2, 2, 3], np.uint8)
    found = read_images(archive(tmp_path, x=x, y=y))
    assert (len(found), found.shape) == (5, (1, 6, 7))
    assert found.labels == ["3", "10", "2", "2", "3"]
    assert found.kinds == ["2", "3", "10"]
    assert np.array_equal(found.batch([4, 0]), x[[4, 0], None])
    assert np.array_equal(found.images[1], x[1][None])


@pytest.mark.parametrize("names", [("x", "y"), ("X", "y"), ("images", "labels"), ("data", "labels")])
def test_sets_by_their_usual_names(tmp_path: Path, names: tuple[str, str]) -> None:
    x = noise(4 * 6, 7, 3).reshape(4, 6, 7, 3)
    for images_ in (x, x.transpose(0, 3, 1, 2)):
        found = read_images(archive(tmp_path, **dict(zip(names, (images_, np.array(list("abca"))), strict=True))))
        assert np.array_equal(found.images, x.transpose(0, 3, 1, 2))
        assert found.kinds == ["a", "b", "c"]


@pytest.mark.parametrize("name", ["{}_train", "train_{}"])
def test_a_file_with_parts(tmp_path: Path, name: str) -> None:
    x = noise(6 * 3, 3, 1).reshape(6, 3, 3)
    there = {name.format("x"): x, name.format("y"): np.arange(6)[:, None]}
    there |= {key.replace("train", "test"): value[:2] for key, value in there.items()}
    path = archive(tmp_path, **there)
    assert len(read_images(path)) == 6
    assert len(read_images(path, part="test")) == 2
    with pytest.raises(DataError, match=r"no arrays x_valid and y_valid, nor .*; it has "):
        read_images(path, part="valid")


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"x": np.zeros((3, 4, 4), np.uint8), "y": np.zeros(2, int)}, "x has 3 images and y 2 labels"),
        ({"x": np.zeros((3, 4, 4)), "y": np.zeros(3, int)}, "x is float64; expected uint8"),
        ({"x": np.zeros((3, 16), np.uint8), "y": np.zeros(3, int)}, "shape 3 × 16; expected images × height × width"),
        ({"x": np.zeros((3, 4, 4, 2), np.uint8), "y": np.zeros(3, int)}, "shape 3 × 4 × 4 × 2"),
        ({"x": np.zeros((3, 4, 4), np.uint8), "y": np.zeros(3)}, "y is float64"),
        ({"x": np.zeros((3, 4, 4), np.uint8), "y": np.zeros((3, 2), int)}, r"y is int64 of shape \(3, 2\)"),
        ({"x": np.zeros((0, 4, 4), np.uint8), "y": np.zeros(0, int)}, "has no images"),
        ({"a": np.zeros(3)}, "no arrays x and y, nor images and labels; it has a"),
        ({"x": np.zeros((1, 4, 4), np.uint8), "y": np.array([{}])}, "y holds Python objects, which are not read"),
    ],
)
def test_sets_that_do_not_fit(tmp_path: Path, arrays: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=rf"set\.npz.*{said}"):
        read_images(archive(tmp_path, **arrays))


def test_sets_that_are_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = archive(tmp_path, x=noise(400, 40, 1).reshape(10, 40, 40), y=np.arange(10))
    whole = path.read_bytes()
    path.write_bytes(whole[:200] + b"?" * 20 + whole[220:])
    with pytest.raises(DataError, match=r"set\.npz is damaged"):
        read_images(path)
    path.write_bytes(whole[:500])
    with pytest.raises(DataError, match=r"set\.npz is no set of images; give an \.npz file, or a folder"):
        read_images(path)
    path.write_bytes(whole)
    monkeypatch.setattr(images, "LARGEST_SET", 1_000)
    with pytest.raises(DataError, match="x has 16,000 bytes, and 1,000 is the most"):
        read_images(path)
    with pytest.raises(DataError, match="there is no file or folder"):
        read_images(tmp_path / "none.npz")


def test_a_header_that_promises_more_than_there_is(tmp_path: Path) -> None:
    import zipfile

    np.save(tmp_path / "x.npy", np.zeros((2, 4, 4), np.uint8))
    head = (tmp_path / "x.npy").read_bytes().replace(b"(2, 4, 4), ", b"(99,44,444)", 1)
    with zipfile.ZipFile(tmp_path / "set.npz", "w") as file:
        file.writestr("x.npy", head)
        file.writestr("y.npy", head)
    with pytest.raises(DataError, match="says it has 1,934,064 bytes and has fewer"):
        read_images(tmp_path / "set.npz")


def labelled(folder: Path, **sizes: tuple[int, int]) -> Path:
    for number, (name, size) in enumerate(sizes.items()):
        kind = folder / name.rstrip("_")
        kind.mkdir(parents=True, exist_ok=True)
        saved(kind, Image.fromarray(noise(*size, seed=number)), f"{number}.png")
    return folder


def test_a_folder_of_folders(tmp_path: Path) -> None:
    folder = labelled(tmp_path, dog=(5, 6), cat=(5, 6), dog_=(5, 6))
    (folder / "README.txt").write_text("beside the labels, nothing is an image")
    (folder / "cat" / ".DS_Store").touch()
    found = read_images(folder)
    assert found.kinds == ["cat", "dog"]
    assert found.labels == ["cat", "dog", "dog"]
    assert (len(found), found.shape) == (3, (3, 5, 6))
    assert np.array_equal(found.images[1], noise(5, 6, seed=0).transpose(2, 0, 1))
    assert found.batch([0, 2]).shape == (2, 3, 5, 6)


def test_numbers_as_folders_are_in_their_order(tmp_path: Path) -> None:
    assert read_images(labelled(tmp_path, **{"10": (2, 2), "2": (2, 2)})).kinds == ["2", "10"]


def test_grey_files_have_one_channel(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    saved(tmp_path / "a", Image.fromarray(noise(4, 4, 1)))
    assert read_images(tmp_path).shape == (1, 4, 4)


def test_sizes_that_differ_need_a_word(tmp_path: Path) -> None:
    folder = labelled(tmp_path, a=(5, 6), b=(5, 7))
    with pytest.raises(DataError, match=r"differ in size: .*a.0\.png is 5 × 6 \(height × width\) and .*b.1\.png 5 × 7"):
        read_images(folder)
    assert read_images(folder, size=(4, 4)).batch([0, 1]).shape == (2, 3, 4, 4)


def test_folders_that_are_no_set(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no folders of images; make one folder for each label"):
        read_images(tmp_path)
    saved(tmp_path, Image.new("L", (2, 2)))
    with pytest.raises(DataError, match="holds images without labels"):
        read_images(tmp_path)
    (tmp_path / "train").mkdir()
    with pytest.raises(DataError, match="train is the folder of a label and has no images"):
        read_images(tmp_path)
    labelled(tmp_path / "train", cat=(2, 2))
    with pytest.raises(DataError, match=r"cat is a folder inside the folder of a label; give .*train if"):
        read_images(tmp_path)
    (tmp_path / "train" / "cat" / "notes.txt").touch()
    with pytest.raises(DataError, match=r"notes\.txt is in the folder of a label and no image"):
        read_images(tmp_path / "train")
    (tmp_path / "train" / "cat" / "notes.txt").rename(tmp_path / "train" / "cat" / "notes.png")
    with pytest.raises(DataError, match=r"notes\.png is not an image"):
        read_images(tmp_path / "train")
