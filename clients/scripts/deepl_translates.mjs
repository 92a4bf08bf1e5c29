// deepl-node: one text and several as forms, languages, usage, errors of its own kinds
import assert from "node:assert";
import * as deepl from "deepl-node";

const [address, key] = process.argv.slice(2);
const client = new deepl.DeepLClient(key, { serverUrl: address, maxRetries: 0 });
const one = await client.translateText("How are you?", null, "de");
assert.equal(one.text, "Wie geht es dir?");
assert.equal(one.detectedSourceLang, "en");
const several = await client.translateText(["Good morning!", "Where is the station?"], "en", "de", {
  formality: "prefer_more",
  preserveFormatting: true,
});
assert.equal(several.length, 2);
assert.ok(several.every((each) => each.text));
assert.deepEqual((await client.getTargetLanguages()).map((each) => each.code), ["de", "hi"]);
assert.deepEqual((await client.getSourceLanguages()).map((each) => each.code), ["en"]);
const usage = await client.getUsage();
assert.ok(usage.character.count >= 12);
await assert.rejects(client.translateText("Hi", "en", "fr"), /en→de/);
await assert.rejects(client.translateText("Hi", "en", "de", { glossary: "x" }), /glossary_id/);
const stranger = new deepl.DeepLClient("wrong", { serverUrl: address, maxRetries: 0 });
await assert.rejects(stranger.translateText("Hi", null, "de"), deepl.AuthorizationError);
