"""What goes wrong with a request, as a status and fields, and how each protocol says it."""

from collections.abc import Callable
from typing import Any

from clearformer.errors import CancelledError, CheckpointError, ClearformerError, DataError, KernelError, TraceError


class ApiError(ClearformerError):
    """An answer that is an error: its status, and what the client can do."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ):
        super().__init__(message, param=param)
        self.status, self.kind, self.code, self.headers = status, kind, code, headers or {}


class Overloaded(ApiError):  # noqa: N818 it is an answer, not a fault
    """The queue is full; `seconds` is when it will have room again, as far as one can tell. `left` is how many had left
    it by then; None where this one was so large that others may still fit."""

    def __init__(self, seconds: float, left: int | None = None):
        self.left = left
        hint = {"retry-after": str(max(1, round(seconds))), "retry-after-ms": str(max(1, round(1000 * seconds)))}
        super().__init__(
            429,
            f"the server has as much to do as its queue holds; try again in {max(1, round(seconds))} s",
            kind="overloaded_error",
            code="rate_limit_exceeded",
            headers=hint,
        )


def stopped() -> ApiError:
    """What requests are told that come when the server is about to end, or run longer than it waits for them."""
    return ApiError(
        503, "the server is stopping; another one may answer", kind="server_error", code="stopping",
        headers={"retry-after": "5", "connection": "close"},
    )  # fmt: skip


def as_api_error(error: BaseException) -> ApiError:
    """Any error as one that a client is told. What is not the client's to know stays in the log."""
    match error:
        case ApiError():
            return error
        case CancelledError():
            return ApiError(503, "the request was cancelled by the server", kind="server_error", code="cancelled")
        case TraceError():
            return ApiError(404, error.message, param=error.param, code="no_such_address")
        case DataError() | CheckpointError() | KernelError() | ClearformerError():
            return ApiError(400, error.message, param=error.param)
    return ApiError(500, "an error of the server; its log has more under this request's id", kind="server_error")


Shape = Callable[[ApiError], dict[str, Any]]  # how a protocol says an error


def openai_shape(error: ApiError) -> dict[str, Any]:
    return {"error": {"message": error.message, "type": error.kind, "param": error.param, "code": error.code}}


def plain_shape(error: ApiError) -> dict[str, Any]:
    """LibreTranslate's, text-embeddings-inference's, Ollama's and ours: the message, and its kind."""
    return {"error": error.message, "error_type": error.kind}


def deepl_shape(error: ApiError) -> dict[str, Any]:
    return {"message": error.message}
