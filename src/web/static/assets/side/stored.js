// What a conversation looks like when it is kept, exported or imported; and the check that it does. What comes from a file
// or from the browser's storage may be anything: only known fields of the right kind pass.
//
// A conversation: {id, title, name?, folder?, system, schema?, changed, next?, guide?, messages: [{id, parent, next?, role,
// content, files?: [{name, text or image}], reasoning?, thinking_ms?, calls?, report?, request_id?, error?, stopped?, cut?}]}
// `title` is given by a scenario, `name` by the user.
import { prepare } from '../chat/thread.js';

const MESSAGES_MAX = 10000;
const TEXT_MAX = 32 << 20;  // characters of one text
const FORMAT = 'reprise-conversations';
export const IMPORT_MAX = 64 << 20;  // bytes
const CONVERSATIONS_MAX = 5000;

const text = (v) => typeof v === 'string' && v.length <= TEXT_MAX;
const short = (v) => typeof v === 'string' && v.length <= 1000;
const number = (v) => typeof v === 'number' && Number.isFinite(v);
const truth = (v) => typeof v === 'boolean';
const object = (v) => v !== null && typeof v === 'object' && !Array.isArray(v);
const list = (most, check) => (v) => Array.isArray(v) && v.length <= most && v.every(check);

const CALL = { id: short, name: text, arguments: text, result: text };
// Pictures are data URLs: nothing is fetched when one is shown.
const PICTURE = /^data:image\/(png|jpeg|webp|gif);base64,[A-Za-z0-9+/]+={0,2}$/;
const FILE = { name: short, text, image: (v) => text(v) && PICTURE.test(v) };
const file = (v) => object(v) && has(v, FILE, ['name']) && text(v.text) !== text(v.image);
const REPORT_NUMBERS = ['prompt_tokens', 'used_tokens', 'first_token_ms'];
const REPORT_OTHERS = ['generated_tokens', 'total_ms'];
const report = (v) => object(v) && REPORT_NUMBERS.every((name) => number(v[name])) &&
  REPORT_OTHERS.every((name) => v[name] === undefined || number(v[name]));
const row = (v) => object(v) && text(v.label) && ['computed', 'reused', 'ms'].every((name) => number(v[name]));
const guide = (v) => object(v) && [v.title, v.error, v.about].every((part) => part === undefined || text(part)) &&
  (v.rows === undefined || (list(2, row)(v.rows) && v.rows.length === 2));
const MESSAGE = {
  id: number, parent: number, next: number, role: (v) => v === 'user' || v === 'assistant', content: text,
  files: list(8, file), reasoning: text, thinking_ms: number,
  calls: list(128, (v) => object(v) && has(v, CALL, ['name', 'arguments'])), report, request_id: short, error: text,
  status: number, stopped: truth, cut: truth,
};
const CONVERSATION = {
  id: (v) => short(v) && v !== '', title: text, name: text, folder: short, system: text, schema: text, changed: number, next: number, guide,
  messages: list(MESSAGES_MAX, (v) => object(v) && has(v, MESSAGE, ['role', 'content'])),
};

function has(value, shape, needed) {
  return needed.every((name) => value[name] !== undefined) &&
    Object.entries(shape).every(([name, check]) => value[name] === undefined || value[name] === null || check(value[name]));
}

const only = (value, shape) => Object.fromEntries(Object.keys(shape).filter((name) => value[name] !== undefined && value[name] !== null)
  .map((name) => [name, value[name]]));

// The conversation that `value` is, or null.
export function conversationOf(value) {
  if (!object(value) || !has(value, CONVERSATION, ['id', 'messages'])) return null;
  const conversation = { title: '', system: '', changed: 0, ...only(value, CONVERSATION) };
  conversation.messages = value.messages.map((m) => ({
    ...only(m, MESSAGE), ...(m.calls && { calls: m.calls.map((call) => only(call, CALL)) }),
    ...(m.files && { files: m.files.map((file) => only(file, FILE)) }),
  }));
  prepare(conversation);
  return conversation;
}

export function parseConversation(json) {
  try {
    return conversationOf(JSON.parse(json));
  } catch {
    return null;
  }
}

export function exportText(conversations) {
  return JSON.stringify({ format: FORMAT, version: 1, conversations: conversations.filter((c) => c.messages.length > 0) }, null, 1);
}

// The conversations of an exported file; throws an Error with a sentence for a person. All of them, or none.
export function importText(json) {
  let file;
  try {
    file = JSON.parse(json);
  } catch {
    throw new Error('This file is not JSON: nothing was imported.');
  }
  if (!object(file) || file.format !== FORMAT || !Array.isArray(file.conversations)) {
    throw new Error('This file was not exported from this page: nothing was imported.');
  }
  if (file.version !== 1) throw new Error('This file comes from a newer version of this page: nothing was imported.');
  if (file.conversations.length > CONVERSATIONS_MAX) throw new Error(`A file has at most ${CONVERSATIONS_MAX} conversations: nothing was imported.`);
  return file.conversations.map((value, i) => {
    const conversation = conversationOf(value);
    if (!conversation) throw new Error(`Conversation ${i + 1} of this file is damaged: nothing was imported.`);
    return conversation;
  });
}
