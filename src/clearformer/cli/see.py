"""`clearformer see`: what images show, and which of their patches it rests on; or captions, by what the model is."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearformer.cli.generation import generation, said
from clearformer.cli.output import check_out, json_line, naming, output
from clearformer.cli.progress import passes
from clearformer.cli.texts import check_files
from clearformer.cli.values import Ignore, Model, Precision, chosen
from clearformer.generate.options import GenerationOptions

if TYPE_CHECKING:
    from clearformer.tasks.see import Caption, Seen, Seer

SHADES = ("  ", "░░", "▒▒", "▓▓", "██")
AGAINST = "--"


def register(app: typer.Typer) -> None:
    app.command()(see)


@generation()
def see(
    images: Annotated[list[Path], typer.Argument(help="Image files: PNG, JPEG, GIF, BMP, WebP, TIFF, PPM.")],
    model: Model = None,
    top: Annotated[int | None, typer.Option(help="So many labels for each image, likeliest first; else 5.")] = None,
    patches: Annotated[
        bool, typer.Option("--patches/--no-patches", help="Measure and draw what each patch was worth to the label.")
    ] = True,
    square: Annotated[
        int | None, typer.Option(help="Take away so many patches on a side at once; else as many as need 64 runs.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Write the picture with the patches in colour; a new file.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="JSON lines: one object an image.")] = False,
    precision: Precision = "auto",
    ignore: Ignore = None,
    *,
    options: GenerationOptions,
) -> None:
    """Label images, or caption them where the model writes.

    A patch is worth what the first label's probability loses without it: the model runs once more for each patch, or
    each square of patches where there are many.
    """
    from clearformer.errors import DataError

    check_files(images)
    check_out(out)
    if out is not None and (len(images) > 1 or not patches):
        raise DataError("--out is for the patches of one image; give one, and not --no-patches")
    if out is not None and out.suffix.lower() not in (".png", ".jpg", ".jpeg", ".webp"):
        raise DataError(f"{out} has no ending of a picture; call it {out.with_suffix('.png').name}, say")

    from clearformer.tasks.load import load
    from clearformer.tasks.see import Captioner, Seer

    loaded = load(chosen(model, "see"), precision=precision, ignore=ignore)
    if isinstance(loaded, Captioner):
        if out is not None:
            raise DataError("--out draws what a label rests on, and this model writes captions")
        if top is not None or square is not None:
            raise DataError("--top and --square are for models that label images, and this one writes captions")
        with passes("looking") as done:
            _print(images, loaded.see(images, options=options, done=done), json)
        return
    work = loaded.see  # or the error of a model that cannot
    if not isinstance(loaded, Seer) or options.to_dict():
        raise DataError(f"{said(options)}: for models that write captions, and this one labels images")
    with passes("looking") as done:
        found: Any = work(images, top=5 if top is None else top, patches=patches, square=square, done=done)
    _print(images, found, json)
    if out is not None:
        _write(loaded, images[0], found[0], out)


def _print(images: list[Path], found: "list[Any]", json: bool) -> None:
    with output(None) as stream:
        for path, one in zip(images, found, strict=True):
            stream.write(_json(path, one) if json else "\n".join(_lines(path, one, len(images) > 1)) + "\n")


def _json(path: Path, one: "Seen | Caption") -> str:
    return json_line({"image": str(path), **one.to_dict()})


def _lines(path: Path, one: Any, several: bool) -> list[str]:
    if not hasattr(one, "labels"):
        return [f"{path}\t{each.text}" if several else each.text for each in (one, *one.others)]
    lines = [str(path)] if several else []
    lines += [f"{100 * chance:5.1f} %  {name}" for name, chance in one.labels]
    return lines if one.patches is None else [*lines, "", *grid(one)]


def grid(seen: "Seen") -> list[str]:
    """The patches as shaded cells, with what the shades mean."""
    from clearformer.tasks.heatmap import strongest

    assert seen.patches is not None
    most = strongest(seen.patches)
    rows = ["".join(_cell(value / most) for value in row) for row in seen.patches]
    edge = "─" * 2 * len(seen.patches[0])
    values = [value for row in seen.patches for value in row]
    taken = "a patch" if seen.square == 1 else f"a square of {seen.square} × {seen.square} patches"
    said = f"without {taken} {seen.label!r} loses up to {100 * max(0.0, *values):.1f} points (shades)"
    if (gain := -min(values)) > 0:
        said += f", gains up to {100 * gain:.1f} ({AGAINST})"
    return [f"┌{edge}┐", *(f"│{row}│" for row in rows), f"└{edge}┘", said]


def _cell(share: float) -> str:
    """Of −1 to 1; what is less than an eighth of the strongest is left blank."""
    return SHADES[round(4 * share)] if share >= 0 else AGAINST if share <= -0.125 else SHADES[0]


def _write(seer: "Seer", path: Path, seen: "Seen", out: Path) -> None:
    from clearformer.tasks.heatmap import draw

    waiting = out.with_name(f".{out.stem}.partial{out.suffix}")
    drawing = draw(seer.view(path), seen)
    try:
        with naming("write", out):
            drawing.save(waiting)
            waiting.replace(out)
    finally:
        waiting.unlink(missing_ok=True)
