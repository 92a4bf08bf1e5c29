"""What every spec is: frozen, validated, written and read as JSON, changed by dotted paths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from clearformer.errors import SpecError
from clearformer.spec import paths

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)

Fraction = Annotated[float, Field(ge=0.0, lt=1.0)]
Positive = Annotated[float, Field(gt=0.0)]
Size = Annotated[int, Field(gt=0, le=2**24)]  # of anything countable: beyond it lies a slip, not a model
Activation = Literal["relu", "gelu", "gelu_tanh", "silu", "tanh"]


class _Raising(ModelMetaclass):
    """Direct construction reports a `SpecError`; pydantic's own nested validation is left to collect paths."""

    def __call__(cls, *args: Any, **fields: Any) -> Any:  # noqa: N805
        try:
            return super().__call__(*args, **fields)
        except ValidationError as error:
            raise SpecError(paths.explain(error, cls, fields)) from None


class Part(BaseModel, metaclass=_Raising):
    """The base of every spec: frozen, without unknown fields, written and read as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def replace(self, changes: Mapping[str, Any] | None = None, /, **fields: Any) -> Self:
        """The same spec with some parts changed, validated anew.

        Paths are dotted; `*` means every item and a branch goes by its name: `encoder.blocks.*.self.heads`.
        """
        data = paths.plain(self)
        for path, value in {**(changes or {}), **fields}.items():
            paths.assign(data, path, value)
        return self._from(data)

    def at(self, path: str) -> Any:
        """The value at a dotted path, as `replace` takes them (without `*`)."""
        return paths.find(self, path)

    def to_json(self) -> str:
        return self.model_dump_json(indent=1, exclude_none=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise SpecError(paths.explain(error, cls, text)) from None

    @classmethod
    def _from(cls, data: Any) -> Self:
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise SpecError(paths.explain(error, cls, data)) from None

    def __str__(self) -> str:
        return paths.tree(self)
