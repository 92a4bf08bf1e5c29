"""How good the weights of a run are on what it does not learn from."""

from collections.abc import Mapping

from torch import Tensor

from clearformer.assemble import assemble
from clearformer.training.goals.base import Scores
from clearformer.training.prepare import Prepared


def validate(run: Prepared, weights: Mapping[str, Tensor]) -> Scores:
    model = assemble(run.spec)
    for name, parameter in model.named_parameters():
        parameter.data = weights[name]
    return run.goal.validate(model.eval())
