// openai for Node.
import assert from "node:assert";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: `${process.argv[2]}/v1`, apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: "one two" }];

const ids = [];
for await (const model of client.models.list()) ids.push(model.id);
assert.deepEqual(ids, ["chat", "vectors", "en-de"]);

const whole = await client.chat.completions.create({ model: "chat", messages, max_tokens: 12 });
let text = "";
const stream = await client.chat.completions.create({ model: "chat", messages, max_tokens: 12, stream: true });
for await (const chunk of stream) text += chunk.choices[0]?.delta?.content ?? "";
assert.equal(text, whole.choices[0].message.content);

const tools = [{
  type: "function",
  function: { name: "clock", parameters: { type: "object", properties: { zone: { enum: ["UTC"] } }, required: ["zone"], additionalProperties: false } },
}];
const called = await client.chat.completions.create({ model: "chat", messages, tools, tool_choice: "required", max_tokens: 100 });
assert.deepEqual(JSON.parse(called.choices[0].message.tool_calls[0].function.arguments), { zone: "UTC" });

const vectors = await client.embeddings.create({ model: "vectors", input: ["one", "two"] });
const plain = await client.embeddings.create({ model: "vectors", input: ["one", "two"], encoding_format: "float" });
vectors.data.forEach((each, n) => each.embedding.forEach((x, i) => assert(Math.abs(x - plain.data[n].embedding[i]) < 1e-6)));

await assert.rejects(client.chat.completions.create({ model: "none", messages }), OpenAI.NotFoundError);
