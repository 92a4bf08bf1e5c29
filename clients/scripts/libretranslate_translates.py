"""libretranslatepy: translates, detects, lists languages, with the key in the body; errors are HTTP errors."""

import json
import sys
from urllib.error import HTTPError

from libretranslatepy import LibreTranslateAPI

client = LibreTranslateAPI(sys.argv[1], api_key=sys.argv[2])
assert client.translate("How are you?", "en", "de") == "Wie geht es dir?"
assert client.translate("Good morning!", "auto", "hi").strip()
best = client.detect("Wo ist der Bahnhof?")[0]
assert best["language"] == "de"
assert 50 < best["confidence"] <= 100
languages = {each["code"]: each for each in client.languages()}
assert languages["en"]["name"] == "English"
assert languages["en"]["targets"] == ["de", "hi"]


def refused(ask):
    try:
        ask()
    except HTTPError as error:
        return error.code, json.loads(error.read())["error"]
    raise AssertionError("this was not refused")


status, message = refused(lambda: client.translate("Bonjour", "fr", "de"))
assert status == 400
assert "en→de" in message
status, message = refused(lambda: LibreTranslateAPI(sys.argv[1], api_key="wrong").translate("Hi", "en", "de"))
assert status == 403
assert "key" in message
