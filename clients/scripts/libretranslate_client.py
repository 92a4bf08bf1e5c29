"""libretranslatepy."""

import sys

from libretranslatepy import LibreTranslateAPI

client = LibreTranslateAPI(f"{sys.argv[1]}/")
assert client.translate("The cat sleeps.", "en", "de").strip()
assert any(language["code"] == "en" for language in client.languages())
