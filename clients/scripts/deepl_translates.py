"""deepl for Python: one text and several, detected and told languages, languages, usage, errors of its own kinds."""

import sys

import deepl

client = deepl.DeepLClient(sys.argv[2], server_url=sys.argv[1], send_platform_info=False)
one = client.translate_text("How are you?", target_lang="DE")
assert one.text == "Wie geht es dir?"
assert one.detected_source_lang == "EN"
assert one.billed_characters == len("How are you?")
several = client.translate_text(
    ["Good morning!", "Where is the station?"],
    source_lang="EN",
    target_lang="DE",
    split_sentences=deepl.SplitSentences.ALL,
    preserve_formatting=True,
    formality=deepl.Formality.PREFER_MORE,
    model_type=deepl.ModelType.LATENCY_OPTIMIZED,
)
assert len(several) == 2
assert all(each.text for each in several)
assert [language.code for language in client.get_source_languages()] == ["EN"]
assert [language.code for language in client.get_target_languages()] == ["DE", "HI"]
usage = client.get_usage()
assert usage.character.count >= len("How are you?")
assert not usage.any_limit_reached


def refused(ask, kind=deepl.DeepLException):
    try:
        ask()
    except kind as error:
        return str(error)
    raise AssertionError("this was not refused")


assert "en→de" in refused(lambda: client.translate_text("Hi", source_lang="EN", target_lang="FR"))
assert "tag_handling" in refused(lambda: client.translate_text("<b>Hi</b>", target_lang="DE", tag_handling="xml"))
stranger = deepl.DeepLClient("wrong", server_url=sys.argv[1], send_platform_info=False)
assert refused(lambda: stranger.translate_text("Hi", target_lang="DE"), deepl.AuthorizationException)
