// Markdown -> DOM nodes, for replies as they stream in: what is finished stays as it is, only the last block is made
// anew. The text is taken apart by marked's lexer; the nodes are made here, so nothing is ever parsed as HTML: tags are
// shown as text. Links are kept only to http, https and mailto; images are never loaded.
import '../lib/marked.js';
import { h, visible } from '../base/dom.js';
import { codeBlock } from './code.js';
import { MATHS, formula } from './maths.js';

const LONG = 20000;   // characters of a paragraph; a longer one is shown as it is
const HUGE = 300000;  // of all that is looked at at once
const DEEP = 12;      // blocks inside blocks
const TAB = '\ue009';  // stands for a tab in code while marked, which knows only spaces, reads it

const { Lexer, Tokenizer, marked } = globalThis.marked;
marked.use({ mangle: false, headerIds: false, extensions: MATHS });

// marked keeps no token for the definition of a link, such as "[1]: https://x.example".
class NotingTokenizer extends Tokenizer {
  def(src) {
    const token = super.def(src);
    if (token) this.lexer.note(token);
    return token;
  }
}

class BoundedLexer extends Lexer {
  constructor() {
    super({ ...marked.defaults, tokenizer: new NotingTokenizer() });
    this.definitions = [];  // {before, raw}: before the so many-th block
  }

  note({ raw }) {
    const open = ['paragraph', 'text'].includes(this.tokens.at(-1)?.type);  // it is a part of that, then
    if (this.depth === 1 && !open) this.definitions.push({ before: this.tokens.length, raw });
  }

  // With the definitions.
  blocks(src) {
    const tokens = this.lex(src);
    if (this.definitions.length === 0) return tokens;
    const all = [];
    let next = 0;
    for (let i = 0; i <= tokens.length; ++i) {
      for (; this.definitions[next]?.before === i; ++next) all.push({ type: 'def', raw: this.definitions[next].raw });
      if (i < tokens.length) all.push(tokens[i]);
    }
    return all;
  }

  inlineTokens(src, tokens = []) {
    if (src.length <= LONG) return super.inlineTokens(src, tokens);
    tokens.push({ type: 'text', raw: src, text: src });
    return tokens;
  }

  blockTokens(src, tokens = []) {
    this.depth = (this.depth ?? 0) + 1;
    if (this.depth <= DEEP) super.blockTokens(src, tokens);
    else tokens.push({ type: 'paragraph', raw: src, text: src, tokens: [{ type: 'text', raw: src, text: src }] });
    --this.depth;
    return tokens;
  }
}

// Leading tabs as marked would make them, except in code.
function untab(text) {
  if (!text.includes('\t')) return text;
  let fence = null;
  return text.split('\n').map((line) => {
    const mark = /^ {0,3}(`{3,}|~{3,})/.exec(line)?.[1];
    const inside = fence;
    if (!fence && mark) fence = mark;
    else if (fence && mark?.startsWith(fence) && line.trim() === mark) fence = null;
    return line.replace(/^[ \t]+/, (space) => space.replaceAll('\t', inside ? TAB : '    '));
  }).join('\n');
}

// The blocks of a text that begins with one: each has `raw`, and together they are the text.
function lex(text) {
  const plain = [{ type: 'paragraph', raw: text, tokens: [{ type: 'text', raw: text }] }];
  if (text.length > HUGE) return plain;
  try {
    const tokens = new BoundedLexer().blocks(text);
    return tokens.reduce((sum, token) => sum + token.raw.length, 0) === text.length ? tokens : plain;
  } catch {
    return plain;
  }
}

const ENTITIES = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'", nbsp: '\u00a0', copy: '©', mdash: '—', ndash: '–', hellip: '…', times: '×' };

function decoded(text) {
  return text.replace(/&(?:#(\d{1,7})|#x([\da-f]{1,6})|([a-z]{2,8}));/gi, (whole, decimal, hex, name) => {
    if (name) return Object.hasOwn(ENTITIES, name) ? ENTITIES[name] : whole;
    const code = decimal ? Number(decimal) : parseInt(hex, 16);
    return code > 0 && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff) ? String.fromCodePoint(code) : whole;
  });
}

const text = (raw) => visible(decoded(raw.replaceAll(TAB, '\t')));
const SAFE = /^(?:https?:\/\/|mailto:)[^\s<>"]{1,2000}$/i;

function link(token, depth) {
  if (!SAFE.test(token.href)) return text(token.raw);
  return h('a', { href: token.href, target: '_blank', rel: 'noopener noreferrer', title: visible(token.href) }, inline(token.tokens, depth));
}

function inline(tokens, depth = 0) {
  if (depth > DEEP) return tokens.map(({ raw }) => text(raw));
  return tokens.map((token) => {
    switch (token.type) {
      case 'strong': return h('strong', {}, inline(token.tokens, depth + 1));
      case 'em': return h('em', {}, inline(token.tokens, depth + 1));
      case 'del': return h('s', {}, inline(token.tokens, depth + 1));
      case 'codespan': return h('code', {}, visible(/^(`+) ?([^]*?) ?\1$/.exec(token.raw)?.[2] ?? token.raw));
      case 'br': return h('br');
      case 'escape': return visible(token.raw.slice(1));
      case 'link': return link(token, depth + 1);
      case 'maths': return formula(token.tex, token.display, token.raw);
      default: return text(token.raw);  // text, tags, images
    }
  });
}

function listOf(token, depth, outline) {
  const items = token.items.map((item) => h('li', { class: item.task ? 'task' : null },
    item.task ? h('input', { type: 'checkbox', checked: item.checked, disabled: true, 'aria-label': item.checked ? 'Done' : 'To do' }) : null,
    item.tokens.flatMap((inner) => (inner.type === 'text' && !item.loose && !token.loose ? inline(inner.tokens ?? [inner]) : build(inner, depth + 1, outline)))));
  return token.ordered ? h('ol', { start: token.start === 1 ? null : token.start }, items) : h('ul', {}, items);
}

function tableOf({ align, header, rows }) {
  const row = (cells, tag) => h('tr', {}, cells.slice(0, 64).map((cell, i) => h(tag, {
    scope: tag === 'th' ? 'col' : null, 'data-align': { right: 'end', center: 'center' }[align[i]],
  }, inline(cell.tokens))));
  return h('div', { class: 'table', tabindex: '0' }, h('table', {}, h('thead', {}, row(header, 'th')),
    h('tbody', {}, rows.map((cells) => row(cells, 'td')))));
}

// No level is left out, whatever the text does: the headings of a page are its outline.
function headingOf(token, outline) {
  outline.level = Math.min(6, token.depth + 2, outline.level + 1);
  return h(`h${outline.level}`, { class: `depth-${token.depth}` }, inline(token.tokens));
}

// The nodes of a block. `outline.level`: of the last heading before it.
function build(token, depth, outline) {
  switch (token.type) {
    case 'space': case 'def': return [];
    case 'code': return [codeBlock(token.text.replaceAll(TAB, '\t'), /^[\w+#.-]{1,40}/.exec(token.lang ?? '')?.[0] ?? '')];
    case 'hr': return [h('hr')];
    case 'heading': return [headingOf(token, outline)];
    case 'blockquote': return [h('blockquote', {}, token.tokens.flatMap((inner) => build(inner, depth + 1, outline)))];
    case 'list': return [listOf(token, depth, outline)];
    case 'table': return [tableOf(token)];
    case 'mathsBlock': return [h('p', { class: 'formula' }, formula(token.tex, true, token.raw.trim()))];
    case 'html': return [h('p', {}, visible(token.raw.replaceAll(TAB, '\t').trimEnd()))];
    default: return [h('p', {}, inline(token.tokens ?? [token]))];
  }
}

// What may change how an earlier part of a text is read.
const REACHES_BACK = /<!--|^ {0,3}\[[^\]\n]{1,200}\]:/m;

// A node that shows a text that only grows (or is set anew).
export class MarkdownView {
  constructor() {
    this.node = h('div', { class: 'text', dir: 'auto' });
    this.text = '';
    this.clear();
  }

  clear() {
    this.node.replaceChildren();
    this.read = '';   // what is shown
    this.stable = 0;  // all blocks that begin before are finished
    this.loose = [];  // nodes behind it
  }

  update(whole) {
    this.text = whole;
    const read = untab(whole.replace(/\r\n?/g, '\n'));
    if (!read.startsWith(this.read)) this.clear();
    this.read = read;
    for (const node of this.loose) node.remove();
    const blocks = [];  // {begin, nodes}
    let begin = this.stable;
    const outline = { level: Number([...this.node.querySelectorAll('h3, h4, h5, h6')].at(-1)?.tagName[1] ?? 2) };
    // marked takes an open fence for one only behind the end of a line.
    for (const token of lex(`${read.slice(begin)}\n`)) {
      if (token.type !== 'space' && token.type !== 'def') blocks.push({ begin, nodes: build(token, 0, outline) });
      begin += token.raw.length;
    }
    this.node.append(...blocks.flatMap(({ nodes }) => nodes));
    // As long as the first line of the last block is not finished, it may still turn out to belong to the one before.
    const begun = blocks.length > 1 && read.indexOf('\n', blocks.at(-1).begin) < 0;
    const kept = blocks.slice(begun ? -2 : -1);
    this.loose = kept.flatMap(({ nodes }) => nodes);
    if (kept.length > 0) this.stable = kept[0].begin;
  }

  // The text is complete.
  finish() {
    if (!REACHES_BACK.test(this.read)) return;
    this.clear();
    this.update(this.text);
  }
}
