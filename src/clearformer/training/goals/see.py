"""What an image shows: a ViT over images with a label each, from an .npz file or a folder of folders."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer import arrangements
from clearformer.assemble import count_parameters
from clearformer.checkpoints.metadata import Metadata
from clearformer.core.places import Places
from clearformer.data.corpus import Report
from clearformer.data.images import ImageSet, read_images
from clearformer.data.pairs import Pairs
from clearformer.data.preprocessing import Preprocessing
from clearformer.errors import DataError, SpecError, nearest
from clearformer.spec import Classes, Patches, Transformer
from clearformer.training.goals.base import DATA, Goal, Say, accuracy, check_memory, heads_of
from clearformer.training.settings import Settings, known

AT_ONCE = 512  # images written or looked at in one go
WHOLE = 8  # one part in so many of a run, its end: images are looked at whole, whatever share was before


class Pictures(NamedTuple):
    """Images as numbers, and what each shows."""

    pixels: Tensor  # b c h w, uint8
    labels: Tensor  # b
    counts: Tensor  # b
    squares: Tensor  # b: how many of them are looked at, all alike; 0 for all there are

    @property
    def tokens(self) -> int:
        return int(self.counts.sum())

    def nothing(self) -> "Pictures":
        first = Pictures(*(part[:1] for part in self))
        return first._replace(counts=torch.zeros_like(first.counts))


@dataclass(frozen=True)
class PictureBatches:
    """Batches of `size` images from a memory map, shuffled by seed and epoch. In all but the last batches of a run,
    `total` in number, only `squares` of each are looked at, if that is said."""

    pixels: np.ndarray[Any, Any]
    labels: np.ndarray[Any, Any]
    size: int
    seed: int | None = 0
    squares: int = 0
    total: int | None = None

    def plan(self, epoch: int) -> list[tuple[np.ndarray[Any, Any], int]]:
        order = np.arange(len(self.labels))
        if self.seed is not None:
            order = np.random.default_rng((self.seed, epoch)).permutation(order)
        starts = range(0, len(order), self.size)
        before = epoch * len(starts)
        return [(order[at : at + self.size], self._squares(before + n)) for n, at in enumerate(starts)]

    def _squares(self, batch: int) -> int:
        if self.total is None:  # not known yet: as many whole ones as there will be
            return 0 if batch % WHOLE == WHOLE - 1 else self.squares
        return 0 if batch >= self.total - self.total // WHOLE else self.squares

    def make(self, planned: tuple[np.ndarray[Any, Any], int]) -> Pictures:
        rows, squares = np.sort(planned[0]), planned[1]
        labels = torch.from_numpy(self.labels[rows].astype(np.int64))
        counts = torch.ones(len(rows), dtype=torch.bool)
        return Pictures(torch.from_numpy(self.pixels[rows]), labels, counts, torch.full((len(rows),), squares))

    def padding(self, epoch: int = 0) -> float:
        return 0.0


class SeeLoss(nn.Module):
    """Cross-entropy; while training, images are shifted by up to `shift` pixels, mirrored if asked, and looked at in
    part (Liu et al. 2022, PatchDropout): less to compute, and no two looks alike."""

    def __init__(self, model: Any, how: Preprocessing, smoothing: float, shift: int, mirror: bool):
        super().__init__()
        self.model, self.smoothing, self.shift, self.mirror = model, smoothing, shift, mirror
        self.register_buffer("mean", torch.tensor(how.mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(how.std).view(-1, 1, 1), persistent=False)
        self.mean: Tensor
        self.std: Tensor
        self.scale = how.scale

    def forward(self, batch: Pictures) -> Tensor:
        if self.training:
            logits = self.logits(self._varied(batch.pixels), int(batch.squares[0]))
        else:
            logits = self.logits(batch.pixels)
        losses = F.cross_entropy(logits, batch.labels, reduction="none", label_smoothing=self.smoothing)
        return losses[batch.counts].sum()

    def logits(self, pixels: Tensor, squares: int = 0) -> Tensor:
        images, stack = (pixels.to(self.mean.dtype) * self.scale - self.mean) / self.std, self.model.stack
        if not squares:
            return self.model(images)
        summary = stack.embed.summary is not None
        order = torch.rand(len(images), stack.embed.count, device=images.device)
        if summary:
            order[:, 0] = 1.0  # the first of all, so that it is among them
        places = Places.some(order.topk(squares + summary).indices)
        return self.model.head(stack(images, places), places)

    def _varied(self, pixels: Tensor) -> Tensor:
        count, _, height, width = pixels.shape
        if self.shift:
            wide = F.pad(pixels, (self.shift,) * 4)
            down, right = torch.randint(0, 2 * self.shift + 1, (2, count), device=pixels.device)  # seeded by the step
            rows = (down[:, None] + torch.arange(height, device=pixels.device))[:, None, :, None]
            columns = (right[:, None] + torch.arange(width, device=pixels.device))[:, None, None, :]
            which = torch.arange(count, device=pixels.device)[:, None, None, None]
            channels = torch.arange(pixels.size(1), device=pixels.device)[None, :, None, None]
            pixels = wide[which, channels, rows, columns]
        if self.mirror:
            turned = torch.rand(count, device=pixels.device) < 0.5
            pixels = torch.where(turned[:, None, None, None], pixels.flip(-1), pixels)
        return pixels


class See(Goal):
    name, unit, measure = "see", "images", "accuracy"

    def count(self) -> int:
        data = self.settings.data
        self.given(self.settings, 0, _takes_images, "is no model that labels images")
        self.check_pins()
        sets = [self._read(part) for part in data.train]
        if len({each.shape for each in sets}) > 1:
            raise DataError("the training images differ in size: " + ", ".join(str(each.shape) for each in sets))
        self._shape = sets[0].shape
        decided = self.advise(self.settings, Report(kept=1))
        check_memory(count_parameters(self._sized(decided, self._shape, 2)), self.settings)
        return sum(len(each) for each in sets)

    def inputs(self) -> list[Any]:
        """Files only: a folder of images has no fingerprint."""
        return [path for path in super().inputs() if path.is_file()]

    def _read(self, part: Pairs) -> ImageSet:
        if part.file is None:
            raise DataError("images are read from one .npz file or one folder; give it as file")
        side = self.settings.data.size
        size = None if side is None else (side, side)
        if self.start is not None:
            size = self.start.spec.stack.embed.image
        found = read_images(part.file, size=size)
        if part.rows is None:
            return found
        rows = range(len(found))[slice(*part.rows)]
        if not len(rows):
            raise DataError(f"{part.file} has {len(found):,} images, and none of rows {part.rows[0]} to {part.rows[1]}")
        return ImageSet(found.batch(np.asarray(rows)), [found.labels[row] for row in rows], found.kinds)

    def fill(self, total: int, say: Say) -> tuple[dict[str, Report], dict[str, Any]]:
        data = self.settings.data
        train = [self._read(part) for part in data.train]
        kinds = list(dict.fromkeys(kind for each in train for kind in each.kinds))
        if len(kinds) < 2:
            raise DataError(f"the training images have {len(kinds)} label; there must be at least two to tell apart")
        valid = [self._read(part) for part in data.valid]
        held = np.zeros(total, bool)
        if not valid:
            wanted = min(data.held_out, max(1, total // 20))
            held[np.random.default_rng(self.settings.seed).choice(total, wanted, replace=False)] = True
        counts = {
            "train": self._write("train", train, kinds, ~held),
            "valid": self._write("valid", valid or train, kinds, None if valid else held),
        }
        pixels, _ = self._array("train", counts["train"], train[0].shape)
        mean, std = _spread(pixels)
        self.keep({"labels": kinds, "shape": list(train[0].shape), "counts": counts, "mean": mean, "std": std})
        shape = " × ".join(map(str, train[0].shape))
        say(
            f"images: {counts['train']:,} to train on, {counts['valid']:,} to validate on, {shape}, {len(kinds)} labels"
        )
        return {name: Report(kept=count, read=count) for name, count in counts.items()}, {}

    def take(self, metadata: Metadata) -> None:
        sets = [self._read(part) for part in self.settings.data.valid]
        self._shape = sets[0].shape
        assert metadata.labels is not None
        assert metadata.image is not None
        count = self._write("valid", sets, list(metadata.labels), None)
        self.how = metadata.image
        if self._shape[1:] != self.how.size:
            raise DataError(f"images of {self._shape[1:]} given to a model that sees {self.how.size}")
        self.keep({"labels": list(metadata.labels), "shape": list(self._shape), "counts": {"valid": count}})

    def _write(self, name: str, sets: Sequence[ImageSet], kinds: list[str], chosen: Any) -> int:
        numbers = {kind: number for number, kind in enumerate(kinds)}
        labels: list[int] = []
        first = 0
        with (self.out / DATA / f"{name}.pixels").open("wb") as out:
            for each in sets:
                mask = np.ones(len(each), bool) if chosen is None else chosen[first : first + len(each)]
                first += len(each)
                rows = np.flatnonzero(mask)
                for at in range(0, len(rows), AT_ONCE):
                    out.write(np.ascontiguousarray(each.batch(rows[at : at + AT_ONCE]), np.uint8).tobytes())
                for row in rows:
                    label = each.labels[int(row)]
                    if label not in numbers:
                        raise DataError(f"no training image has the label {label!r}{nearest(label, kinds)}")
                    labels.append(numbers[label])
        (self.out / DATA / f"{name}.labels").write_bytes(np.asarray(labels, "<u2").tobytes())
        return len(labels)

    def _array(self, name: str, count: int, shape: Sequence[int]) -> tuple[Any, Any]:
        folder = self.out / DATA
        try:
            pixels = np.memmap(folder / f"{name}.pixels", np.uint8, "r", shape=(count, *shape))
            return pixels, np.fromfile(folder / f"{name}.labels", "<u2", count)
        except (OSError, ValueError) as error:
            raise DataError(f"{folder / name}.pixels cannot be read ({error})") from None

    def advise(self, asked: Settings, report: Report) -> Settings:
        model, fine = asked.model, asked.model.start is not None
        width = model.width or 128
        model = model.replace(
            width=width,
            layers=model.layers or 6,
            heads=heads_of(width, model.heads),
            inner=model.inner or 2 * width,
            dropout=0.0 if model.dropout is None else model.dropout,
            patch=model.patch or self._patch(),
        )
        changes: dict[str, Any] = {
            "model": model,
            "batch.tokens": asked.batch.tokens or 128 * self._count(asked.replace(model=model)),
        }
        changes["optimizer.rate"] = asked.optimizer.rate or (1e-3 if model.lora is not None or not fine else 3e-5)
        changes["length"] = asked.length.otherwise(3.0 if fine else 10.0)
        return asked.replace(changes)

    def _patch(self) -> int:
        """Squares of about an eighth of the image, that tile it."""
        _, height, width = self.shape
        return min((p for p in range(1, 33) if height % p == width % p == 0), key=lambda p: abs(p - height / 8))

    def _count(self, settings: Settings) -> int:
        """The squares of an image, as the model cuts it."""
        found, (_, height, width) = self.given(settings, 0, _takes_images, "is no model that labels images"), self.shape
        if found is not None:
            return found.stack.embed.count - found.stack.embed.summary
        return max(1, height * width // known(settings.model.patch) ** 2)

    @property
    def shape(self) -> tuple[int, int, int]:
        found = getattr(self, "_shape", None)
        return found or tuple(self.found["shape"])

    @property
    def vocabulary(self) -> int:
        return 0

    @property
    def labels(self) -> list[str]:
        return self.found["labels"]

    def spec(self, settings: Settings, vocabulary: int) -> Transformer:
        return self._sized(settings, self.shape, len(self.labels))

    def _sized(self, settings: Settings, shape: tuple[int, int, int], classes: int) -> Transformer:
        model, (channels, height, width) = settings.model, shape
        found = self.given(settings, 0, _takes_images, "is no model that labels images")
        if found is not None:
            embed = found.stack.embed
            if (embed.channels, *embed.image) != shape:
                raise SpecError(f"model: it takes images of {(embed.channels, *embed.image)}, and these are {shape}")
            head = found.head if isinstance(found.head, Classes) else Classes(count=classes)
            return found.replace(head=head.replace(count=classes))
        return arrangements.vision(
            width=known(model.width),
            layers=known(model.layers),
            heads=known(model.heads),
            inner=known(model.inner),
            image=(height, width),
            patch=known(model.patch),
            channels=channels,
            classes=classes,
            dropout=known(model.dropout),
            # the public family that looks at the mean of all squares (SigLIP) has square images only
            pool="mean" if height == width else "first",
        )

    def batches(self, settings: Settings) -> Any:
        count, images = self._count(settings), self._array("train", self.found["counts"]["train"], self.shape)
        size, squares = max(1, known(settings.batch.tokens) // count), max(1, round(settings.data.squares * count))
        steps = settings.length.steps
        total = None if steps is None else steps * settings.batch.accumulate
        return PictureBatches(*images, size, settings.seed, squares if squares < count else 0, total)

    def valid_batches(self) -> Any:
        return PictureBatches(*self._array("valid", self.found["counts"]["valid"], self.shape), 256, None)

    @cached_property
    def how(self) -> Preprocessing:
        """How images become numbers: the start's way, or by the mean and deviation of the training images."""
        if self.start is not None and self.start.metadata.image is not None:
            return self.start.metadata.image
        channels, height, width = self.shape
        found = self.found
        return Preprocessing(
            size=(height, width),
            mean=tuple(found["mean"]),
            std=tuple(found["std"]),
            scale=1 / 255,
            resample="bilinear",
            crop=None,
            shortest=False,
            channels=channels,
        )

    def objective(self, model: Any, smoothing: float) -> nn.Module:
        data = self.settings.data
        return SeeLoss(model, self.how, smoothing, data.shift, data.mirror)

    @torch.inference_mode()
    def measures(self, model: Any) -> tuple[dict[str, float], list[tuple[str, str, str]]]:
        seen = SeeLoss(model, self.how, 0.0, 0, False)
        return accuracy(self.valid_batches(), lambda batch: seen.logits(batch.pixels).argmax(-1) == batch.labels), []

    def metadata(self, model: Any) -> Metadata:
        return Metadata(task="see", labels=tuple(self.labels), image=self.how)


def _takes_images(what: Any) -> bool:
    return isinstance(what, Transformer) and isinstance(what.stack.embed, Patches)


def _spread(pixels: np.ndarray[Any, Any]) -> tuple[list[float], list[float]]:
    """Mean and deviation of every channel, of at most ten thousand images."""
    some = pixels[:: max(1, len(pixels) // 10_000)].astype(np.float32) / 255
    mean, std = some.mean((0, 2, 3)), some.std((0, 2, 3))
    return [round(float(x), 6) for x in mean], [max(round(float(x), 6), 1e-3) for x in std]
