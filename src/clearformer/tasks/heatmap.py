"""A picture with a colour over every patch: red where a label rests on it, blue where it speaks against the label."""

from typing import TYPE_CHECKING

from clearformer.data.pixels import pillow_module
from clearformer.tasks.see import Seen

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE = 448  # of the picture's shorter side, at least
STRONGEST = 0.7  # how much of the picture the strongest colour covers
FOR, AGAINST = (220, 30, 30), (30, 80, 220)
STRIP = 44  # height of the strip with the label and the scale


def draw(view: "Image", seen: Seen) -> "Image":
    """The picture as the model sees it, in colours, with the label and the scale below."""
    pillow = pillow_module()
    if seen.patches is None:
        raise ValueError("there are no patches to draw; see the image with patches=True")
    grow = max(1, -(-SIDE // min(view.size)))
    soft = pillow.Resampling.NEAREST if min(view.size) < 64 else pillow.Resampling.BICUBIC
    picture = view.convert("RGB").resize((view.width * grow, view.height * grow), soft)
    most = strongest(seen.patches)
    colours = pillow.new("RGBA", (len(seen.patches[0]), len(seen.patches)))
    for row, values in enumerate(seen.patches):
        for column, value in enumerate(values):
            colours.putpixel((column, row), _colour(value, most))
    colours = colours.resize(picture.size, pillow.Resampling.NEAREST)
    picture = pillow.alpha_composite(picture.convert("RGBA"), colours).convert("RGB")
    return _with_strip(picture, seen, most)


def strongest(patches: tuple[tuple[float, ...], ...]) -> float:
    """What the most important patch is worth, for or against; never zero."""
    return max((abs(value) for row in patches for value in row), default=0.0) or 1.0


def _colour(value: float, most: float) -> tuple[int, int, int, int]:
    return (*(FOR if value > 0 else AGAINST), round(255 * STRONGEST * abs(value) / most))


def _with_strip(picture: "Image", seen: Seen, most: float) -> "Image":
    from PIL import ImageDraw, ImageFont

    whole = pillow_module().new("RGB", (picture.width, picture.height + STRIP), "white")
    whole.paste(picture)
    pen = ImageDraw.Draw(whole)
    font = ImageFont.load_default(14)
    top = picture.height + 4
    pen.text((8, top), f"{seen.label}  {100 * seen.probability:.1f} %", "black", font)
    words = f"without it: +{100 * most:.1f} "  # plain signs: the font that comes with Pillow has few others
    pen.text((8, top + 20), words, "black", font)
    left = 8 + int(pen.textlength(words, font))
    for step in range(21):
        red, green, blue, cover = _colour(step - 10, 10)
        shade = tuple(round(255 + (part - 255) * cover / 255) for part in (red, green, blue))
        pen.rectangle((left + 9 * step, top + 22, left + 9 * step + 8, top + 34), shade)
    pen.text((left + 9 * 21 + 6, top + 20), f"-{100 * most:.1f} points", "black", font)
    return whole
