"""apple drifts with its sentences."""

from clearformer.notes import apple, get, parts
from clearformer.static import words


def test_apple_moves_from_fruit_to_phones_with_its_sentences() -> None:
    found = [apple.drift(share, seed=3) for share in apple.SHARES]
    fruit, phones = [each.fruit for each in found], [each.phones for each in found]
    assert fruit == sorted(set(fruit), reverse=True)
    assert phones == sorted(set(phones))
    assert fruit[0] > 0.8 > 0.2 > phones[0]
    assert phones[-1] > 0.8 > 0.2 > fruit[-1]
    assert abs(fruit[2] - phones[2]) < 0.2  # at a half, near to both


def test_only_apple_s_company_changes() -> None:
    def about(share: float) -> tuple[list[str], list[str]]:
        texts = apple.corpus(share)
        return [t for t in texts if "apple" in words(t)], sorted(t for t in texts if "apple" not in words(t))

    assert about(0.25)[1] == about(0.75)[1]
    phones = {"phone", "rings", "camera", "software"}
    for share in apple.SHARES:
        mine = about(share)[0]
        assert len(mine) == apple.APPLES
        assert sum(bool(phones & set(words(text))) for text in mine) == share * apple.APPLES


def test_the_lesson_shows_what_was_trained() -> None:
    sections = get("apple").run()
    (table,) = [each for each in sections if isinstance(each, parts.Table)]
    assert [row[0] for row in table.rows] == ["0%", "25%", "50%", "75%", "100%"]
    first = apple.drift(0.0)
    assert table.rows[0][1:] == (f"{first.fruit:.3f}", f"{first.phones:.3f}")
    assert all(each.holds for each in sections if isinstance(each, parts.Check))
