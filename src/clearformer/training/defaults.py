"""What a run is not told, chosen from its data: how large a model, how long, how fast.

The figures are what worked on everyday corpora of a few thousand to a few million pairs; any of them can be set.
"""

import math

from clearformer.training.settings import Settings

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


def vocabulary_for(pairs: int) -> int:
    return next(size for limit, size in VOCABULARY if pairs <= limit)


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
    optimizer = optimizer.replace(rate=optimizer.rate or min(2e-3, 1e-3 * math.sqrt(256 / width)))
    usual = 4_000 if target_tokens > 5_000_000 else min(2_000, max(256, target_tokens // 100))  # ≥ 100 steps an epoch
    batch = asked.batch.replace(tokens=asked.batch.tokens or usual)
    return asked.replace(model=model, optimizer=optimizer, batch=batch, length=asked.length.otherwise(epochs))


def _divisor(width: int) -> int:
    return next(heads for heads in (8, 4, 2, 1) if width % heads == 0)


def lay_out(settings: Settings, steps: int, steps_an_epoch: int) -> Settings:
    """The same settings with everything filled in that depends on the number of steps."""
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
        validation = validation.replace(every=max(1, steps // 20, min(steps_an_epoch, steps // 10)))
    save = settings.save
    if save.every is None:
        save = save.replace(every=validation.every)
    return settings.replace(
        optimizer=optimizer, average=average, validation=validation, save=save, length={"steps": steps}
    )
