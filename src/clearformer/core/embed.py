"""What turns input into vectors: a table for tokens, a projection for squares of an image."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.core.places import Places
from clearformer.core.step import step
from clearformer.errors import DataError


class Tokens(nn.Module):
    """scale · table[id] + position + segment, then norm and dropout."""

    def __init__(
        self,
        table: nn.Parameter,
        segments: nn.Parameter | None,
        positions: nn.Module | None,
        norm: nn.Module,
        drop: nn.Module,
        scale: float,
    ):
        super().__init__()
        self.table, self.segments, self.positions = table, segments, positions
        self.norm, self.drop, self.scale = norm, drop, scale

    def forward(self, ids: Tensor, places: Places, segments: Tensor | None = None) -> Tensor:
        x = self.tokens(ids)
        if self.positions is not None:
            x = self.placed(x, self.positions(x, places))
        if self.segments is not None:
            x = self.sided(x, segments)
        elif segments is not None:
            raise DataError("this model has no segments; give none")
        return self.drop(self.norm(x))

    @step("b t m")
    def tokens(self, ids: Tensor) -> Tensor:
        try:
            return F.embedding(ids, self.table) * self.scale
        except IndexError:
            raise self.outside(ids) from None

    def outside(self, ids: Tensor) -> DataError:
        wrong = [int(i) for i in ids.flatten() if not 0 <= i < len(self.table)]
        return DataError(
            f"token id {wrong[0]} is outside the vocabulary of {len(self.table)} (ids run from 0 to"
            f" {len(self.table) - 1}); was this text encoded with another model's tokenizer?"
        )

    @step("b t m")
    def placed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        return tokens + positions

    @step("b t m")
    def sided(self, placed: Tensor, segments: Tensor | None) -> Tensor:
        assert self.segments is not None
        which = placed.new_zeros(placed.shape[:2], dtype=torch.long) if segments is None else segments
        if which.shape != placed.shape[:2] or which.dtype not in (torch.int64, torch.int32):
            raise DataError(
                f"segments must be integers of the ids' shape {tuple(placed.shape[:2])}, given {which.dtype}"
            )
        try:
            return placed + F.embedding(which, self.segments)
        except IndexError:
            raise DataError(
                f"segment {int(which.max())} given to a model with segments 0 to {len(self.segments) - 1}"
            ) from None


class Patches(nn.Module):
    """Each square of the image, flattened and projected; a learned summary in front; positions; norm; dropout.

    Places that are not those of a whole image say which squares are looked at.
    """

    def __init__(
        self,
        project: nn.Linear,
        patch: int,
        image: tuple[int, int],
        summary: nn.Parameter | None,
        positions: nn.Module | None,
        norm: nn.Module,
        drop: nn.Module,
    ):
        super().__init__()
        self.project, self.patch, self.image = project, patch, image
        self.summary, self.positions, self.norm, self.drop = summary, positions, norm, drop
        self.channels = project.in_features // patch**2
        self.count = (image[0] // patch) * (image[1] // patch) + (summary is not None)

    def forward(self, images: Tensor, places: Places, segments: Tensor | None = None) -> Tensor:
        x = self.squares(images)
        if self.summary is not None:
            x = torch.cat([self.summary.expand(len(x), 1, -1), x], 1)
        if places.start is None:
            x = x.gather(1, places.index[..., None].expand(len(x), -1, x.size(2)))
        if self.positions is not None:
            x = self.placed(x, self.positions(x, places))
        return self.drop(self.norm(x))

    @step("b t m")
    def squares(self, images: Tensor) -> Tensor:
        p = self.patch
        squares = images.unflatten(3, (-1, p)).unflatten(2, (-1, p))  # b c rows p columns p
        return self.project(squares.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2))  # b (rows columns) (c p p)

    @step("b t m")
    def placed(self, squares: Tensor, positions: Tensor) -> Tensor:
        return squares + positions
