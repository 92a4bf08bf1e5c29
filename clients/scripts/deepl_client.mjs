// deepl-node.
import assert from "node:assert";
import * as deepl from "deepl-node";

const client = new deepl.Translator("none", { serverUrl: process.argv[2] });
const found = await client.translateText(["The cat sleeps.", "It rains."], "en", "de");
assert.equal(found.length, 2);
found.forEach((each) => assert(each.text.trim()));
