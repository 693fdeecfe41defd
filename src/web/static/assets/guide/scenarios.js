// The guided start: three scenarios that run against this server as a person would run them by hand, and what each
// has saved. Every run begins with its own number, so its first request finds nothing stored.
import { makeStory } from './story.js';
import { count } from '../base/format.js';

const SHORT = { max_tokens: 24, temperature: 0 };
const CHARACTERS_PER_TOKEN = 3;

// A share of the context, in characters.
const share = (context, part) => Math.round(Math.min(context, 6000) * part * CHARACTERS_PER_TOKEN);
const number = () => 1000 + Math.floor(Math.random() * 9000);

function row(label, message) {
  if (!message.report) throw new Error(message.error || 'the run was stopped');
  const { prompt_tokens, used_tokens, first_token_ms } = message.report;
  return { label, computed: prompt_tokens - used_tokens, reused: used_tokens, ms: first_token_ms };
}

export const SCENARIOS = [
  {
    name: 'document', title: 'One long document, two questions',
    about: 'A text of many pages is read once. The second question about it starts from what was kept.',
    async run(app, context) {
      const system = `Chronicle no. ${number()}. ${makeStory(share(context, 0.6))}`;
      app.open({ title: 'Document: first question', system });
      const first = row('First question', await app.send('Who found a red ball?', SHORT));
      app.open({ title: 'Document: second question', system });
      const second = row('Second question', await app.send('Who built a small boat?', SHORT));
      return { rows: [first, second], about: 'The document was not read again: only the new question was.' };
    },
  },
  {
    name: 'edit', title: 'An earlier message, edited',
    about: 'You correct what you wrote. Everything before the change is still known.',
    async run(app, context) {
      app.open({ title: 'An edited message', system: `Notebook no. ${number()}. ${makeStory(share(context, 0.4))}` });
      const first = row('As first written', await app.send('Tell me more about the grey cat.', SHORT));
      const second = row('After the edit', await app.edit(0, 'Tell me more about the small dog.', SHORT));
      return { rows: [first, second], about: 'Reuse goes up to the change; the report of the request marks it.' };
    },
  },
  {
    name: 'shared', title: 'Two conversations, one system prompt',
    about: 'An assistant with long instructions serves many people. The instructions are computed once.',
    async run(app, context) {
      const system = `You are helper no. ${number()}. These are your instructions. ${makeStory(share(context, 0.5))}`;
      app.open({ title: 'Shared prompt: first person', system });
      const first = row('First person', await app.send('Hello! Can you tell me a story about a dog?', SHORT));
      app.open({ title: 'Shared prompt: second person', system });
      const second = row('Second person', await app.send('Good morning. I would like a poem about the sea.', SHORT));
      return { rows: [first, second], about: 'The tree in the cache drawer has one trunk, the system prompt, and two branches.' };
    },
  },
];

// "120 ms saved (14 times faster), 2,900 tokens not computed again."
export function savings({ rows }) {
  const [cold, warm] = rows;
  return { saved_ms: cold.ms - warm.ms, times: cold.ms / Math.max(0.01, warm.ms), tokens: count(warm.reused) };
}
