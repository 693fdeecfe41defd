// OpenAI's JavaScript client drives the server unchanged. Run by openai_js_test.py, which validates what it was sent:
//   node openai_test.mjs CLIENTS_FOLDER BASE_URL
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [folder, baseURL] = process.argv.slice(2);
const require = createRequire(pathToFileURL(path.resolve(folder, "node_modules/")) + "/");
const { OpenAI, NotFoundError, BadRequestError } = require("openai");

const said = "Hello there, little parrot friend";
const messages = [{ role: "user", content: "Hi" }];
const tools = [{
  type: "function",
  function: { name: "get_weather", parameters: { type: "object", properties: { city: { type: "string" } } } },
}];
const client = new OpenAI({ baseURL, apiKey: "key", maxRetries: 0 });
const model = (await client.models.list()).data[0].id;

async function chat(more = {}) {
  return client.chat.completions.create({ model, messages, ...more });
}

// A chat, whole and streamed.
const reply = await chat();
assert.equal(reply.choices[0].message.content, said);
assert.equal(reply.choices[0].finish_reason, "stop");
let text = "";
let usage = null;
for await (const chunk of await chat({ stream: true, stream_options: { include_usage: true } })) {
  text += chunk.choices[0]?.delta.content ?? "";
  usage = chunk.usage ?? usage;
}
assert.equal(text, said);
assert.equal(usage.prompt_tokens, reply.usage.prompt_tokens);

// A tool call, put together by the client's own helper, and its result.
const streamed = await client.chat.completions.stream({ model, messages, tools }).finalChatCompletion();
const call = streamed.choices[0].message.tool_calls[0];
assert.equal(streamed.choices[0].finish_reason, "tool_calls");
assert.equal(call.function.name, "get_weather");
assert.deepEqual(JSON.parse(call.function.arguments), { city: "Paris" });
const answered = await chat({
  tools,
  messages: [...messages, streamed.choices[0].message, { role: "tool", tool_call_id: call.id, content: "sunny" }],
});
assert.equal(answered.choices[0].message.content, "It is sunny in Paris today.");

// Logprobs, completions, errors.
const logprobs = (await chat({ logprobs: true, top_logprobs: 1 })).choices[0].logprobs.content;
assert.equal(logprobs.slice(0, 5).map((entry) => entry.token).join(""), said);
const completion = await client.completions.create({ model, prompt: "<|say|>", max_tokens: 8 });
assert.equal(completion.choices[0].text, said);
await assert.rejects(chat({ model: "no-such-model" }), NotFoundError);
const refused = (error) => error instanceof BadRequestError && error.param === "temperature";
await assert.rejects(chat({ temperature: 3 }), refused);
console.log("ok");
