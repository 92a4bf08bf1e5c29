"""What the Transformer is set against in the lecture notes: recurrence, and batch norm.

What the notes claim of them is measured by `python -m clearformer.contrast.measure`.
"""

from clearformer.contrast.batch_norm import Comparison, Entered, compare
from clearformer.contrast.recurrent import Encoded, Recurrent, Step

__all__ = ["Comparison", "Encoded", "Entered", "Recurrent", "Step", "compare"]
