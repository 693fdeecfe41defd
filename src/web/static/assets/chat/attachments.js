// Files that go with a message: texts, and pictures for a model that sees. They stand before what is asked, so that a second
// question about the same file finds the state for it.
import { bytes } from '../base/format.js';
import { shrunk } from './picture.js';

export const FILES_MAX = 8;
export const BYTES_MAX = 1 << 20;  // of a text
const PICTURE_BYTES_MAX = 64 << 20;  // before it is made smaller

function checkSize(file, most) {
  if (file.size > most) throw new Error(`${file.name} has ${bytes(file.size)}; at most ${bytes(most)} can be attached.`);
}

const nameOf = (file) => file.name.slice(0, 200) || 'file';

// {name, text}, or throws an Error with a sentence for a person.
export async function readText(file) {
  checkSize(file, BYTES_MAX);
  let text;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    text = '\0';
  }
  if (text.includes('\0')) throw new Error(`${file.name} is not a text file. Only text can be attached.`);
  return { name: nameOf(file), text };
}

// {name, text}, or {name, image: a data URL}. `sees`: whether the model looks at pictures.
export async function readFile(file, sees) {
  if (!file.type.startsWith('image/') || file.type === 'image/svg+xml') return readText(file);
  if (!sees) throw new Error(`${file.name} is a picture, and this model reads text only.`);
  checkSize(file, PICTURE_BYTES_MAX);
  return { name: nameOf(file), image: await shrunk(file) };
}

// Of a text, or of the file that a data URL stands for.
export const sizeOf = ({ text, image }) => (image ? Math.floor((image.length - image.indexOf(',') - 1) * 3 / 4) : text.length);

function fenced({ name, text }) {
  const longest = Math.max(2, ...(text.match(/`{3,}/g) || []).map((ticks) => ticks.length));
  const fence = '`'.repeat(longest + 1);
  return `File ${name}:\n${fence}\n${text.replace(/\n$/, '')}\n${fence}\n\n`;
}

// What the model reads of a message, as text: pictures are left out.
export function textOf(message) {
  return (message.files || []).filter(({ text }) => text !== undefined).map(fenced).join('') + message.content;
}

// The same with its pictures: a string, or the parts that OpenAI's API has for them.
export function contentOf(message) {
  const text = textOf(message);
  const pictures = (message.files || []).filter(({ image }) => image);
  if (pictures.length === 0) return text;
  const parts = pictures.map(({ image }) => ({ type: 'image_url', image_url: { url: image } }));
  return text ? [...parts, { type: 'text', text }] : parts;
}
