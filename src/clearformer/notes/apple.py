"""apple drifting (N3): its static vector is an average of what its sentences are about, learned before your eyes."""

from dataclasses import dataclass
from random import Random

import torch.nn.functional as F

from clearformer.notes.parts import Check, Curves, Heading, Ours, Prose, Section, Table
from clearformer.static import Word2Vec

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
FRUIT = ("pear", "plum", "cherry", "peach")
PHONES = ("nokia", "samsung", "motorola", "pixel")
ABOUT_FRUIT = (
    "she ate a ripe {} from the garden",
    "a sweet juicy {} fell from the tree",
    "we baked a {} pie with sugar",
    "the {} tastes sour and fresh today",
)
ABOUT_PHONES = (
    "the new {} phone has a bright screen",
    "her {} rings and the battery is low",
    "they sell the {} with a better camera",
    "update the {} software and call me",
)
OTHERS, APPLES = 1_600, 400  # sentences about the other words, and about apple


@dataclass(frozen=True)
class Drift:
    """With so large a share of phones among the sentences about apple: its mean cosine to either group."""

    share: float
    fruit: float
    phones: float


def corpus(share: float, seed: int = 0) -> list[str]:
    """Half of the other sentences are about fruit, whatever `share` is: only apple's own company changes."""
    random = Random(seed)
    made = []
    for n in range(OTHERS):
        kinds, names = ((ABOUT_FRUIT, FRUIT), (ABOUT_PHONES, PHONES))[n % 2]
        made.append(random.choice(kinds).format(random.choice(names)))
    for n in range(APPLES):
        made.append(random.choice(ABOUT_PHONES if n < share * APPLES else ABOUT_FRUIT).format("apple"))
    random.shuffle(made)
    return made


def drift(share: float, seed: int = 0) -> Drift:
    model = Word2Vec.train(
        corpus(share, seed), width=24, window=5, min_count=1, subsample=0.02, epochs=15, rate=0.05, seed=seed
    )
    fruit, phones = (
        sum(float(F.cosine_similarity(model["apple"], model[word], dim=0)) for word in group) / len(group)
        for group in (FRUIT, PHONES)
    )
    return Drift(share, fruit, phones)


def apple() -> list[Section]:
    found = [drift(share) for share in SHARES]
    fruit, phones = [each.fruit for each in found], [each.phones for each in found]
    rows = tuple((f"{each.share:.0%}", f"{each.fruit:.3f}", f"{each.phones:.3f}") for each in found)
    return [
        Heading("Five trainings, one change"),
        Prose(
            "«Word embedding captures the average meaning of a word, depending on the data set.» Here is the data set:"
        ),
        Ours(
            f"{OTHERS:,} sentences, half about {', '.join(FRUIT)} and half about {', '.join(PHONES)}, and {APPLES}"
            " about apple, of which a growing share is about the phone. Each row below is a Word2Vec model, trained"
            " just now on its own sentences."
        ),
        Table(
            "apple's mean cosine",
            ("sentences about the phone", "to the fruit words", "to the phone words"),
            rows,
        ),
        Curves(
            "apple drifts",
            SHARES,
            (("fruit", tuple(fruit)), ("phones", tuple(phones))),
            "share of phone sentences",
            "mean cosine",
        ),
        Check(
            "more phones, less fruit", fruit == sorted(fruit, reverse=True), f"{fruit[0]:.2f} down to {fruit[-1]:.2f}"
        ),
        Check("and nearer to the phones", phones == sorted(phones), f"{phones[0]:.2f} up to {phones[-1]:.2f}"),
        Prose(
            "At a half it is near to both and at home in neither, and no sentence can change that: the word has one"
            " vector. Attention gives it another in every sentence (example 2)."
        ),
        Ours("your own text: clearformer train words --train text.txt --out words; clearformer neighbours apple"),
    ]
