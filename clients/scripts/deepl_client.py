"""deepl for Python."""

import sys

import deepl

client = deepl.DeepLClient("none", server_url=sys.argv[1])
found = client.translate_text(["The cat sleeps.", "It rains."], source_lang="EN", target_lang="DE")
assert all(each.text.strip() for each in found)
assert len(found) == 2
assert client.get_usage() is not None
assert any(language.code.upper().startswith("DE") for language in client.get_target_languages())
