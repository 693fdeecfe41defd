// The Vercel AI SDK drives the server through its OpenAI (responses, chat), OpenAI-compatible and Anthropic providers.
// Run by node_test.py:
//   node ai_sdk_test.mjs CLIENTS_FOLDER ADDRESS
import assert from "node:assert/strict";
import { createRequire } from "node:module";

const [folder, address] = process.argv.slice(2);
const require = createRequire(`${folder}/`);
const { generateText, stepCountIs, streamText, tool } = require("ai");
const { createOpenAI } = require("@ai-sdk/openai");
const { createOpenAICompatible } = require("@ai-sdk/openai-compatible");
const { createAnthropic } = require("@ai-sdk/anthropic");
const { z } = require("zod");

const name = (await (await fetch(`${address}/v1/models`)).json()).data[0].id;
const baseURL = `${address}/v1`;
const openai = createOpenAI({ baseURL, apiKey: "key" });
const models = {
  responses: openai.responses(name),
  chat: openai.chat(name),
  compatible: createOpenAICompatible({ name: "reprise", baseURL })(name),
  anthropic: createAnthropic({ baseURL, apiKey: "key" })(name),
};
const tools = {
  get_weather: tool({
    description: "The weather in a city.",
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => `sunny in ${city}`,
  }),
};

for (const [kind, model] of Object.entries(models)) {
  const options = { model, maxRetries: 0, maxOutputTokens: 100 };
  const whole = await generateText({ ...options, prompt: "Hi" });
  assert.equal(whole.text, "Hello there, little parrot friend", kind);
  assert.equal(whole.finishReason, "stop", kind);
  assert.ok(whole.usage.inputTokens > 0, kind);

  const stream = streamText({ ...options, prompt: "Hi", system: "Be kind." });
  let text = "";
  for await (const piece of stream.textStream) text += piece;
  assert.equal(text, "Hello there, little parrot friend", kind);

  for (const run of [generateText, streamText]) {
    const called = run({ ...options, prompt: "Hi", tools, stopWhen: stepCountIs(3) });
    const result = run === generateText ? await called : called;
    assert.equal(await result.text, "It is sunny in Paris today.", kind);
    const steps = await result.steps;
    assert.deepEqual(steps[0].toolCalls[0].input, { city: "Paris" }, kind);
    assert.equal(steps[0].toolResults[0].output, "sunny in Paris", kind);
  }
  console.log(kind, "ok");
}
