// The Vercel AI SDK's generateObject gets an object of the type it asks for, whatever the model would rather say.
// Run by node_test.py:
//   node ai_sdk_typed_test.mjs CLIENTS_FOLDER ADDRESS
import assert from "node:assert/strict";
import { createRequire } from "node:module";

const [folder, address] = process.argv.slice(2);
const require = createRequire(`${folder}/`);
const { generateObject } = require("ai");
const { createOpenAI } = require("@ai-sdk/openai");
const { createOpenAICompatible } = require("@ai-sdk/openai-compatible");
const { z } = require("zod");

const name = (await (await fetch(`${address}/v1/models`)).json()).data[0].id;
const baseURL = `${address}/v1`;
const openai = createOpenAI({ baseURL, apiKey: "key" });
const models = {
  chat: openai.chat(name),
  responses: openai.responses(name),
  compatible: createOpenAICompatible({ name: "reprise", baseURL, supportsStructuredOutputs: true })(name),
};
const schema = z.object({
  kind: z.enum(["sun", "rain"]),
  place: z.object({ city: z.enum(["Oslo", "Rome"]), height: z.number().int().min(-10).max(3000) }),
});

// The model takes anything of what is allowed. It may begin to think, and never end: then it is asked again.
for (const [kind, model] of Object.entries(models)) {
  let objects = 0;
  for (let seed = 0; seed < 20 && objects < 2; ++seed) {
    try {
      const { object } = await generateObject({
        model, schema, prompt: "Hi", temperature: 2, seed, maxRetries: 0, maxOutputTokens: 600,
      });
      schema.parse(object);
      ++objects;
    } catch (error) {
      assert.equal(error.finishReason, "length", `${kind}: ${error}`);
    }
  }
  assert.ok(objects > 0, kind);
}
