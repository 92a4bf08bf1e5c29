"""One batch of texts being continued: the model, the state of its caches, and the logits of the next token."""

from torch import Tensor

from clearformer.core.model import EncoderDecoder, Transformer, Trees
from clearformer.errors import DataError


class Stepper:
    """Call it with the new tokens of every row and get the logits that follow the last of them."""

    def __init__(
        self,
        model: Transformer | EncoderDecoder,
        source: Tensor | None = None,
        source_mask: Tensor | None = None,
        source_trees: Trees | None = None,
    ):
        if model.training:
            raise DataError(
                "the model is in training mode, so dropout would blur what it says; call model.eval() first"
            )
        self.model = model
        if isinstance(model, EncoderDecoder):
            if source is None:
                raise DataError("an encoder–decoder needs a source to decode from; pass source=")
            self.context = model.context(model.encode(source, source_mask, trees=source_trees))
        else:
            if source is not None:
                raise DataError("this model has one stack and takes no source; put the text in the prompt")
            self.context = model.context()

    def __call__(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """b v; a row whose tokens are all padding gives the logits of its last column, for the caller to ignore."""
        return self.model.step(tokens, self.context, mask)

    def best(self, tokens: Tensor, count: int, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """b count: the largest log-probabilities that follow, best first, and their tokens."""
        return self.context.best(self.model, tokens, count, mask)

    def select(self, rows: Tensor) -> None:
        """Keep these rows, in this order, repeats allowed."""
        self.context.select(rows)
