// What a model may ask this page to do: tell the time, calculate, read a file that the person chooses. Each is offered
// only when it was switched on under Settings.
import { calculate } from './calculator.js';

const CHARACTERS_MAX = 200000;  // of a file

function timeNow({ timezone }) {
  const now = new Date();
  const zone = timezone || Intl.DateTimeFormat().resolvedOptions().timeZone;
  const text = new Intl.DateTimeFormat('en-GB', { dateStyle: 'full', timeStyle: 'long', timeZone: zone }).format(now);
  return { time: text, timezone: zone, utc: now.toISOString() };
}

const TOOLS = {
  current_time: {
    title: 'Clock', about: 'tells the date and the time',
    description: 'The current date and time.',
    properties: { timezone: { type: 'string', description: 'An IANA time zone such as Europe/Paris. Without it: that of the person.' } },
    required: [], run: timeNow,
  },
  calculate: {
    title: 'Calculator', about: 'works out expressions',
    description: 'Works out an arithmetic expression: numbers, + - * / % ^, brackets, pi, e, sqrt, sin, cos, tan, ln, log10, exp, abs, min, max.',
    properties: { expression: { type: 'string', description: 'For example (3 + 4) * sqrt(2)' } },
    required: ['expression'], run: ({ expression }) => ({ result: calculate(String(expression)) }),
  },
  read_file: {
    title: 'Read a file', about: 'a file of yours; you choose it each time, or decline',
    description: 'Asks the person to choose a text file on their computer, and returns its text. The person may decline.',
    properties: { reason: { type: 'string', description: 'What the file is needed for, in a few words.' } },
    required: [],
    async run(args, askForFile) {
      const file = await askForFile();
      return file ? { name: file.name, text: file.text.slice(0, CHARACTERS_MAX) } : { declined: 'The person did not choose a file.' };
    },
  },
};

export const CHOICES = Object.entries(TOOLS).map(([name, { title, about }]) => ({ name, title, about }));

// As a request names them.
export function definitions(names) {
  return names.filter((name) => Object.hasOwn(TOOLS, name)).map((name) => {
    const { description, properties, required } = TOOLS[name];
    return { type: 'function', function: { name, description, parameters: { type: 'object', properties, required, additionalProperties: false } } };
  });
}

// The result of a call as text for the model; never throws. `askForFile`: -> Promise of {name, text} or null.
export async function run(call, names, askForFile) {
  try {
    if (!names.includes(call.name) || !Object.hasOwn(TOOLS, call.name)) throw new Error(`there is no tool “${call.name}”`);
    const args = JSON.parse(call.arguments || '{}');
    if (args === null || typeof args !== 'object') throw new Error('the arguments are not an object');
    return JSON.stringify(await TOOLS[call.name].run(args, askForFile));
  } catch (error) {
    return JSON.stringify({ error: error.message });
  }
}
