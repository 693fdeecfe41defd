// Text files that go with a message. They stand before what is asked, so that a second question about the same file
// finds the state for it.
import { bytes } from '../base/format.js';

export const FILES_MAX = 8;
export const BYTES_MAX = 1 << 20;  // of one file

// {name, text}, or throws an Error with a sentence for a person.
export async function readText(file) {
  if (file.size > BYTES_MAX) throw new Error(`${file.name} has ${bytes(file.size)}; at most ${bytes(BYTES_MAX)} can be attached.`);
  let text;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    text = '\0';
  }
  if (text.includes('\0')) throw new Error(`${file.name} is not a text file. Only text can be attached.`);
  return { name: file.name.slice(0, 200) || 'file', text };
}

function fenced({ name, text }) {
  const longest = Math.max(2, ...(text.match(/`{3,}/g) || []).map((ticks) => ticks.length));
  const fence = '`'.repeat(longest + 1);
  return `File ${name}:\n${fence}\n${text.replace(/\n$/, '')}\n${fence}\n\n`;
}

// What the model reads of a message.
export function contentOf(message) {
  return (message.files || []).map(fenced).join('') + message.content;
}
