"""The worked examples of the lecture notes, computed by the package's own core.

    from clearformer import notes

    for section in notes.get("numerical").run(): ...

Torch is imported when an example runs, not here.
"""

from clearformer.errors import DataError, nearest
from clearformer.notes.parts import Example, Section

__all__ = ["EXAMPLES", "Example", "Section", "get"]

_ROWS = (
    ("words", "From words to numbers: one-hot, TF-IDF, static vectors, context", "N1, N3", "words:words"),
    ("bank", "Self-attention without parameters, then with Q, K and V", "N3", "bank:bank"),
    ("softmax", "Scaled scores, softmax and the weighted sum", "N1, sections 4.3 and 4.4", "attention:softmax_and_sum"),
    ("numerical", "Self-attention on three inputs, every step", "N2, self-attention numerical", "attention:numerical"),
    ("scaling", "Why the scores are divided by √d_k", "N0, N1, N3", "scaling:scaling"),
    ("hash-table", "Attention as a soft hash table", "N2, intuition", "attention:hash_table"),
    ("heads", "Multi-head attention: 8 × 64 = 512", "N0, N1, N2, N3", "heads:heads"),
    ("positions", "Sinusoidal positions, the binary counter, the heat map", "N1, N2, N3, N4", "positions:positions"),
    ("order", "Without positions, attention does not know the order", "N2, N3", "order:order"),
    ("norms", "Residual connections; layer norm against batch norm", "N1, N2, N3, N4", "norms:norms"),
    ("feed-forward", "The position-wise feed-forward layer: local against global", "N2, N3, N4", "feedforward:local"),
    ("mask", "The look-ahead mask and its softmax", "N2, N3, N4", "masks:mask"),
    ("columns", "N4's column convention: Z = V softmax(KᵀQ/√p)", "N4, matrix form", "columns:columns"),
    ("cross", "Cross-attention and the alignment grid", "N0, N2, N3, N4", "cross:cross"),
    ("teacher-forcing", "Training in one pass, inference word by word", "N3", "decoding:teacher_forcing"),
    ("vocabulary", "Linear and softmax: from a state to the next word", "N1, N2, N3, N4", "decoding:vocabulary"),
    ("families", "Encoder, decoder, both, and images", "N0, N1", "families:families"),
    ("cost", "Quadratic cost; BigBird and Linformer", "N2, what to fix", "cost:cost"),
    ("relative", "Relative and dependency-syntax positions", "N2, what to fix", "relative:relative"),
    ("recurrence", "Recurrence against attention: steps in sequence", "N2, N3", "recurrence:recurrence"),
    ("quiz", "The quizzes, checked on a running model", "N0", "quiz:quiz"),
    ("apple", "apple drifts with its data: Word2Vec, trained live", "N3, problem with word embedding", "apple:apple"),
)

EXAMPLES: tuple[Example, ...] = tuple(Example(number, *row) for number, row in enumerate(_ROWS, 1))


def get(key: str | int) -> Example:
    """An example by its number or its name."""
    wanted = str(key).strip().lower()
    for example in EXAMPLES:
        if wanted in (example.name, str(example.number)):
            return example
    near = nearest(wanted, [example.name for example in EXAMPLES])
    raise DataError(
        f"no example {str(key)!r}: give a name or a number from 1 to {len(EXAMPLES)}{near};"
        " `clearformer notes` lists them all"
    )
