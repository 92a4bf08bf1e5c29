"""How a picture becomes the numbers that a model takes in: image preprocessing, as a model's metadata keeps it."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Side = Annotated[int, Field(gt=0, le=2**14)]


class Preprocessing(BaseModel):
    """Resize, crop, then (pixels × scale − mean) / std. What is None is not done."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    size: tuple[Side, Side] | None = None  # height and width to resize to
    mean: tuple[float, ...] | None = None  # of each channel, or one for all
    std: tuple[float, ...] | None = None
    scale: float = 1 / 255
    resample: str | int = "bilinear"  # the filter, by name or by Pillow's number
    crop: tuple[Side, Side] | None = None  # height and width of the middle that is kept
    shortest: bool = False  # resize the shorter side to `size` and keep the proportions
    channels: int | None = None
