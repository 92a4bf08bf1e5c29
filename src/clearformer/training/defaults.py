"""What a run is not told, chosen from its data, and of a run of so many minutes from the steps that fit into them: how
large a model, how long, how fast.

The figures are what worked on everyday corpora of a few thousand to a few million pairs; any of them can be set.
`docs/training.md` shows these tables, and a test compares them.
"""

import math

from clearformer.training.settings import Settings, known

#        pairs up to: vocabulary
VOCABULARY = [(10_000, 3_000), (50_000, 5_000), (500_000, 8_000), (5_000_000, 16_000), (math.inf, 32_000)]
#   target tokens up to: width, layers, decoder layers, inner, dropout, epochs
MODELS = [
    (200_000, (128, 3, 3, 512, 0.3, 60.0)),
    (1_000_000, (192, 3, 3, 768, 0.2, 30.0)),
    (5_000_000, (256, 3, 3, 1024, 0.1, 12.0)),
    (50_000_000, (512, 4, 4, 2048, 0.1, 10.0)),
    (math.inf, (512, 6, 6, 2048, 0.1, 5.0)),
]
#  smaller ones for a run of so many minutes, if the data's own gets too few tokens: width, layers of each stack
SMALLER = [(256, 3), (192, 3), (128, 3), (128, 2)]
#       minutes up to: vocabulary at most, since what says the next word is half the work of a small model
BRIEF = [(7, 3_000), (20, 4_000), (60, 8_000), (180, 16_000), (math.inf, 32_000)]
TOKENS_A_WEIGHT = 1.5  # that a model must see to be better than a smaller one that sees more
STEPS_WANTED, LEAST_BATCH = 4_000, 400  # batches are as large as they can be while there are so many steps
MOST_EPOCHS = 2.0  # times those of a run without minutes: more would only learn the data by heart


def vocabulary_for(pairs: int, minutes: float | None = None) -> int:
    """The number of tokens to learn; less in a run of so many minutes."""
    most = math.inf if minutes is None else next(size for limit, size in BRIEF if minutes <= limit)
    return int(min(most, next(size for limit, size in VOCABULARY if pairs <= limit)))


def table() -> str:
    """The choices by the amount of data, as the documents show them."""
    rows = ["| target tokens up to | width | layers | inner | dropout | epochs |", "|---|---|---|---|---|---|"]
    for limit, (width, layers, decoder_layers, inner, dropout, epochs) in MODELS:
        most = "more" if limit == math.inf else f"{limit:,}"
        rows.append(f"| {most} | {width} | {layers} + {decoder_layers} | {inner} | {dropout} | {epochs:g} |")
    rows += ["", "| pairs up to | " + " | ".join(_most(limit) for limit, _ in VOCABULARY) + " |"]
    rows += ["|---" * (len(VOCABULARY) + 1) + "|"]
    rows += ["| vocabulary | " + " | ".join(f"{size:,}" for _, size in VOCABULARY) + " |"]
    rows += ["", "| minutes up to | " + " | ".join(_most(limit) for limit, _ in BRIEF) + " |"]
    rows += ["|---" * (len(BRIEF) + 1) + "|"]
    rows += ["| vocabulary at most | " + " | ".join(f"{size:,}" for _, size in BRIEF) + " |"]
    return "\n".join(rows) + "\n"


def _most(limit: float) -> str:
    return "more" if limit == math.inf else f"{limit:,}"


def choices(asked: Settings, target_tokens: int, pairs: int) -> list[Settings]:
    """What a run of so many minutes may be: the data's own model first, then smaller ones. One, where the user says
    how large it is."""
    model = asked.model
    own = advise(asked, target_tokens, pairs)
    if any(value is not None for value in (model.width, model.layers, model.inner, model.spec, model.start)):
        return [own]
    width, layers = known(own.model.width), known(own.model.layers)
    less = [size for size in SMALLER if size < (width, layers)]
    shaped = ({"model.width": width, "model.layers": layers} for width, layers in less)
    return [own, *(advise(asked.replace(shape), target_tokens, pairs) for shape in shaped)]


def paced(settings: Settings, asked: Settings, tokens: float, epochs: float) -> Settings:
    """The same settings for a run that sees so many tokens in so many epochs: the batch, the dropout and the rate."""
    changes: dict[str, float | int] = {}
    if asked.optimizer.rate is None and asked.model.start is None:  # there is no time for a slow one
        changes["optimizer.rate"] = min(2e-3, 1.4e-3 * math.sqrt(256 / known(settings.model.width)))
    if asked.batch.tokens is None:
        most = known(settings.batch.tokens)
        changes["batch.tokens"] = min(most, max(LEAST_BATCH, round(tokens / STEPS_WANTED / 50) * 50))
    if asked.model.dropout is None:  # what is seen a few times is not learned by heart
        most_dropout = known(settings.model.dropout)
        changes["model.dropout"] = min(most_dropout, 0.0 if epochs < 4 else 0.1 if epochs < 15 else most_dropout)
    return settings.replace(changes)


def advise(asked: Settings, target_tokens: int, pairs: int) -> Settings:
    """The same settings with everything that depends on the amount of data filled in."""
    width, layers, decoder_layers, inner, dropout, epochs = next(m for limit, m in MODELS if target_tokens <= limit)
    model = asked.model
    width = model.width or width
    if model.width is not None:
        inner = 4 * width
    model = model.replace(
        width=width,
        layers=model.layers or layers,
        decoder_layers=model.decoder_layers or model.layers or decoder_layers,
        heads=model.heads or max(1, width // 64) if model.heads or width % 64 == 0 else _divisor(width),
        inner=model.inner or inner,
        dropout=dropout if model.dropout is None else model.dropout,
    )
    optimizer = asked.optimizer
    rate = min(2e-3, 1e-3 * math.sqrt(256 / width))
    if model.start is not None:  # what was learned before is to be kept
        rate, epochs = 1e-3 if model.lora is not None else 1e-4, 5.0
    optimizer = optimizer.replace(rate=optimizer.rate or rate)
    usual = 4_000 if target_tokens > 5_000_000 else min(2_000, max(256, target_tokens // 100))  # ≥ 100 steps an epoch
    batch = asked.batch.replace(tokens=asked.batch.tokens or usual)
    return asked.replace(model=model, optimizer=optimizer, batch=batch, length=asked.length.otherwise(epochs))


def _divisor(width: int) -> int:
    return next(heads for heads in (8, 4, 2, 1) if width % heads == 0)


def lay_out(settings: Settings, steps: int, steps_an_epoch: int, validations: int | None = None) -> Settings:
    """The same settings with everything filled in that depends on the number of steps; `validations` where there is
    time for so many."""
    optimizer = settings.optimizer
    if optimizer.warmup is None:
        optimizer = optimizer.replace(warmup=min(4000, max(1, steps // 12)))
    if optimizer.smoothing is None:
        optimizer = optimizer.replace(smoothing=0.1)
    average = settings.average
    if average.decay is None:  # the mean of about the last twentieth of the run
        average = average.replace(decay=max(0.9, 1 - 20 / max(steps, 200)))
    validation = settings.validation
    if validation.every is None:
        usual = max(1, steps // 20, min(steps_an_epoch, steps // 10))
        validation = validation.replace(every=usual if validations is None else max(1, -(-steps // validations)))
    save = settings.save
    if save.every is None:
        save = save.replace(every=validation.every)
    return settings.replace(
        optimizer=optimizer, average=average, validation=validation, save=save, length={"steps": steps}
    )
