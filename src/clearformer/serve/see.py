"""Images: uploaded, checked before they are decoded, and seen."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

from pydantic import BaseModel, Field
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from clearformer.data.pixels import decode
from clearformer.serve.endpoint import Body, Call, Endpoint
from clearformer.serve.errors import ApiError, plain_shape
from clearformer.serve.runs import Part
from clearformer.tasks.see import Captioner, load

FIELDS = 10  # of a form


class SeeQuery(Body):
    model: str | None = None
    top: Annotated[int, Field(ge=1, le=1_000)] | None = None
    patches: bool = False


class Label(BaseModel):
    label: str
    probability: float


class Seen(BaseModel):
    """Labels, best first, and what each patch was worth where asked for; or a caption."""

    labels: list[Label] | None = None
    patches: list[list[float]] | None = None
    square: int | None = None
    text: str | None = None
    score: float | None = None
    tokens: list[str] | None = None
    finish: str | None = None


class _InMemory(MultiPartParser):
    """The body is in memory already, and bounded: nothing of it goes to files."""

    spool_max_size = 2**31


async def see(call: Call, body: None) -> dict[str, Any]:
    asked: SeeQuery = call.asked(SeeQuery)
    model = call.server.registry.get(asked.model, "see")
    call.told["model"] = model.name
    content, task = await _uploaded(call), model.task
    options: dict[str, Any] = {}
    if isinstance(task, Captioner):
        if asked.top is not None or asked.patches:
            raise ApiError(400, "top and patches are for models with labels; this one writes captions", param="top")
    else:
        options = {"top": asked.top or 5, "patches": asked.patches}
    most = call.server.settings.max_pixels

    def compute() -> Any:
        return task.see([decode(content, most)], **options)[0]

    found = await call.run(task.patches.count, compute)
    if isinstance(task, Captioner):
        call.server.record(call, model, "see")
    else:
        call.server.record(call, model, "see", size=len(content),
                           parts=lambda: [Part(load([decode(content, most)], task.how, 0)[0])])  # fmt: skip
    return found.to_dict()


async def _uploaded(call: Call) -> bytes:
    """The bytes of the image: the whole body, or the one file of a form."""
    kind = call.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        return await _from_form(call)
    if kind and kind != "application/octet-stream" and not kind.startswith("image/"):
        raise ApiError(415, "send the image itself as the body, or as the one file of a form (multipart/form-data); the"
                       f" content-type says {kind[:80]!r}")  # fmt: skip
    if not call.raw:
        raise ApiError(400, "the body is empty; send an image as the body, or as the one file of a form")
    return call.raw


async def _from_form(call: Call) -> bytes:
    async def stream() -> AsyncIterator[bytes]:
        yield call.raw

    given = Headers({"content-type": call.headers["content-type"]})
    try:
        form = await _InMemory(given, stream(), max_files=1, max_fields=FIELDS).parse()  # type: ignore[arg-type]
    except (MultiPartException, KeyError, ValueError, AssertionError) as error:
        said = getattr(error, "message", "") or "it has no boundary, or ends too soon"
        raise ApiError(400, f"the body is no form with one file: {said[:200]}") from None
    files = [value for _, value in form.multi_items() if isinstance(value, UploadFile)]
    others = [name for name, value in form.multi_items() if not isinstance(value, UploadFile)]
    if len(files) != 1 or others:
        more = f" and the fields {', '.join(others)[:100]}; options go behind a question mark" if others else ""
        raise ApiError(400, f"the form has {len(files)} files{more}; send one, with the image")
    content = await files[0].read()
    await form.close()
    return content


def endpoints() -> list[Endpoint]:
    return [
        Endpoint("POST", "/see", see, shape=plain_shape, raw=True, query=SeeQuery, answer=Seen,
                 summary="What an image shows: labels, or a caption. The body is the image, or a form with one file.")
    ]  # fmt: skip
