// Ollama's JavaScript client drives the server unchanged. Run by node_test.py:
//   node ollama_test.mjs CLIENTS_FOLDER ADDRESS
import assert from "node:assert/strict";
import { createRequire } from "node:module";

const [folder, host] = process.argv.slice(2);
const { Ollama } = createRequire(`${folder}/`)("ollama");
const client = new Ollama({ host });
const model = (await client.list()).models[0].name;
const messages = [{ role: "user", content: "Hi" }];
const said = "Hello there, little parrot friend";

assert.match((await client.version()).version, /^\d+\.\d+\.\d+$/);
assert.equal((await client.chat({ model, messages })).message.content, said);

let text = "";
let last;
for await (const part of await client.chat({ model, messages, stream: true })) {
  text += part.message.content;
  last = part;
}
assert.equal(text, said);
assert.equal(last.done, true);
assert.equal(last.eval_count, 5);

const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tools = [{ type: "function", function: { name: "get_weather", description: "The weather in a city.", parameters } }];
const { message } = await client.chat({ model, messages, tools });
assert.deepEqual(message.tool_calls[0].function, { name: "get_weather", arguments: { city: "Paris" } });
const result = { role: "tool", tool_name: "get_weather", content: "sunny" };
const answer = await client.chat({ model, messages: [...messages, message, result], tools });
assert.equal(answer.message.content, "It is sunny in Paris today.");

assert.equal((await client.generate({ model, prompt: "Hi" })).response, said);
assert.ok((await client.show({ model })).capabilities.includes("tools"));
await assert.rejects(client.chat({ model: "none", messages }), /does not exist here/);
console.log("ok");
