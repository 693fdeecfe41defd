// A block of code: its language, a button to copy it, and colours from Prism, which takes the text apart; the nodes are
// made here.
import { h, visible } from '../base/dom.js';
import { loadScript } from '../base/library.js';
import { copyButton } from './copy_button.js';

const LONG = 20000;  // characters; longer code has no colours
const DEEP = 12;
const PLAIN = new Set(['', 'text', 'txt', 'plain', 'plaintext', 'none', 'console', 'output']);

function grammarOf(language) {
  const { languages } = globalThis.Prism;
  const grammar = Object.hasOwn(languages, language) ? languages[language] : null;
  return typeof grammar === 'object' ? grammar : null;
}

function nodesOf(tokens, depth = 0) {
  if (typeof tokens === 'string') return [visible(tokens)];
  if (!Array.isArray(tokens)) return [nodeOf(tokens, depth)];
  return tokens.map((token) => (typeof token === 'string' ? visible(token) : nodeOf(token, depth)));
}

function nodeOf({ type, alias, content }, depth) {
  const kinds = [type, ...[alias ?? []].flat()].map((kind) => `t-${String(kind).replace(/[^\w-]/g, '')}`);
  return h('span', { class: kinds.join(' ') }, depth < DEEP ? nodesOf(content, depth + 1) : visible(textOf(content)));
}

function textOf(content) {
  if (typeof content === 'string') return content;
  return Array.isArray(content) ? content.map(textOf).join('') : textOf(content.content);
}

function colour(node, text, language) {
  const grammar = grammarOf(language);
  if (grammar) node.replaceChildren(...nodesOf(globalThis.Prism.tokenize(text, grammar)));
}

export function codeBlock(text, name) {
  const language = name.toLowerCase();
  const code = h('code', {}, visible(text));
  if (!PLAIN.has(language) && text.length <= LONG) {
    if (globalThis.Prism) colour(code, text, language);
    else loadScript('/assets/lib/prism.js', { 'data-manual': true }).then(() => colour(code, text, language), () => {});
  }
  return h('figure', { class: 'code' },
    h('figcaption', {}, h('span', {}, visible(name || 'code')), copyButton(() => text)),
    h('pre', { tabindex: '0' }, code));
}
