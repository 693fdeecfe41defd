// Markdown -> DOM nodes, for replies as they stream in: what is finished stays as it is, only the last block is made
// anew. Links are kept only to http, https and mailto; images are never loaded.
import { h, visible } from './dom.js';

const LONG = 20000;  // a longer block is shown as it is

// Blocks of [from, ...): {begin, kind, ...}, in order. Each line is looked at once. `only`: 'code', or all kinds.
function splitBlocks(text, from, only) {
  const blocks = [];
  let block = null;
  let at = from;
  while (at < text.length) {
    let end = text.indexOf('\n', at);
    if (end < 0) end = text.length;
    const line = text.slice(at, end);
    if (block && block.kind === 'code' && block.open) {
      if (block.fence.test(line)) block.open = false;
      else block.lines.push(line);
    } else {
      block = addLine(blocks, block, line, at, only);
    }
    at = end + 1;
  }
  if (only === 'code' && block?.kind === 'text' && text.endsWith('\n')) block.lines.push('');
  return blocks;
}

const SEPARATOR = /^ {0,3}\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*){0,63}\|?\s*$/;

function addLine(blocks, block, line, begin, only) {
  const start = (kind, more) => {
    blocks.push({ begin, kind, lines: [], ...more });
    return blocks[blocks.length - 1];
  };
  const fence = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)/.exec(line);
  if (fence) {
    const close = new RegExp(`^ {0,3}\\${fence[1][0]}{${fence[1].length},}\\s*$`);
    return start('code', { open: true, fence: close, language: fence[2] });
  }
  if (only === 'code') {
    block = block && block.kind === 'text' ? block : start('text');
    block.lines.push(line);
    return block;
  }
  if (!line.trim()) {
    if (block?.kind !== 'list') return null;
    block.gap = true;  // the list may go on
    return block;
  }
  if (block?.kind === 'table' && line.includes('|')) {
    block.lines.push(line);
    return block;
  }
  if (block?.kind === 'text' && line.includes('|') && SEPARATOR.test(line) && block.lines.at(-1).includes('|')) {
    return startTable(blocks, block, line);
  }
  const heading = /^(#{1,6})\s+(.*)$/.exec(line);
  if (heading) {
    start('heading', { level: heading[1].length, lines: [heading[2]] });
    return null;
  }
  if (/^ {0,3}([-*_])( *\1){2,} *$/.test(line)) {
    start('rule');
    return null;
  }
  const item = /^(\s{0,40})([-*+]|\d{1,9}[.)])\s+(.*)$/.exec(line);
  if (item) {
    const ordered = /\d/.test(item[2]);
    const indent = item[1].replaceAll('\t', '    ').length;
    const inside = block?.kind === 'list' && indent >= block.items[0].indent + 2;
    if (block?.kind !== 'list' || (!inside && block.items[0].ordered !== ordered)) block = start('list', { items: [] });
    block.items.push({ indent, ordered, first: parseInt(item[2], 10), text: item[3] });
    block.gap = false;
    return block;
  }
  if (block?.kind === 'list' && block.gap && !/^\s{2}/.test(line)) block = null;
  const quote = /^ {0,3}> ?(.*)$/.exec(line);
  if (quote) {
    if (!block || block.kind !== 'quote') block = start('quote');
    block.lines.push(quote[1]);
    return block;
  }
  if (block && block.kind === 'list') block.items.at(-1).text += `\n${line.trim()}`;
  else if (block && (block.kind === 'text' || block.kind === 'quote')) {
    block.last = begin;
    block.lines.push(line);
  } else {
    block = start('text', { last: begin });
    block.lines.push(line);
  }
  return block;
}

// The last line of a text was the head of a table: `line` is what stands below it.
function startTable(blocks, text, line) {
  const head = text.lines.pop();
  const table = { begin: text.last, kind: 'table', lines: [head], aligns: cells(line).map(alignOf) };
  if (text.lines.length === 0) blocks.pop();
  blocks.push(table);
  return table;
}

function cells(line) {
  const inner = line.trim().replace(/^\|/, '').replace(/(?<!\\)\|$/, '');
  return inner.split(/(?<!\\)\|/).slice(0, 64).map((cell) => cell.trim().replaceAll('\\|', '|'));
}

function alignOf(cell) {
  if (!cell.endsWith(':')) return null;
  return cell.startsWith(':') ? 'center' : 'end';
}

// Inline marks, none of which nest in themselves; every alternative is bounded, so the time is linear.
const INLINE = new RegExp([
  '(`{1,3})([^`]{1,2000})\\1',
  '\\*\\*([^*\\n]{1,2000})\\*\\*',
  '~~([^~\\n]{1,2000})~~',
  '\\*([^*\\s][^*\\n]{0,1000})\\*',
  '(?<![\\w])_([^_\\s][^_\\n]{0,1000})_(?![\\w])',
  '\\[([^\\]\\[\\n]{1,500})\\]\\(((?:https?://|mailto:)[^)\\s<>"]{1,2000})\\)',
].join('|'), 'g');

function inline(text, depth = 0) {
  if (text.length > LONG || depth > 4) return [visible(text)];
  const out = [];
  let at = 0;
  for (const match of text.matchAll(INLINE)) {
    if (match.index > at) out.push(visible(text.slice(at, match.index)));
    at = match.index + match[0].length;
    const [, , code, strong, deleted, star, line, label, url] = match;
    if (code !== undefined) out.push(h('code', {}, visible(code)));
    else if (strong !== undefined) out.push(h('strong', {}, inline(strong, depth + 1)));
    else if (deleted !== undefined) out.push(h('s', {}, inline(deleted, depth + 1)));
    else if (label !== undefined) {
      out.push(h('a', { href: url, target: '_blank', rel: 'noopener noreferrer', title: visible(url) }, visible(label)));
    } else out.push(h('em', {}, inline(star ?? line, depth + 1)));
  }
  if (at < text.length) out.push(visible(text.slice(at)));
  return out;
}

// `text`: called when it is needed.
export function copyButton(text) {
  const copy = h('button', { type: 'button', class: 'copy' }, 'Copy');
  copy.addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(text());
      copy.textContent = 'Copied';
    } catch {
      copy.textContent = 'Not allowed here';  // by the browser: the page is not served securely
    }
    setTimeout(() => { copy.textContent = 'Copy'; }, 2000);
  });
  return copy;
}

function codeBlock(block) {
  const text = block.lines.join('\n');
  return h('figure', { class: 'code' },
    h('figcaption', {}, h('span', {}, visible(block.language || 'code')), copyButton(() => text)),
    h('pre', { tabindex: '0' }, h('code', {}, visible(text))));
}

// Items that stand further to the right belong to the one before them.
function listOf(items, depth = 0) {
  const { indent, ordered, first } = items[0];
  const nodes = [];
  for (let i = 0; i < items.length;) {
    let end = i + 1;
    while (end < items.length && items[end].indent >= indent + 2) ++end;
    const below = items.slice(i + 1, end);
    nodes.push(h('li', {}, inline(items[i].text), below.length > 0 ? (depth < 8 ? runs(below, depth + 1) : listOf(flat(below))) : null));
    i = end;
  }
  return ordered ? h('ol', { start: first }, nodes) : h('ul', {}, nodes);
}

const flat = (items) => items.map((item) => ({ ...item, indent: 0 }));

// Lists of bullets and of numbers that follow each other at one level.
function runs(items, depth) {
  const lists = [];
  for (const item of items) {
    const last = lists.at(-1);
    const inside = last && item.indent >= last[0].indent + 2;
    if (last && (inside || last[0].ordered === item.ordered)) last.push(item);
    else lists.push([item]);
  }
  return lists.map((list) => listOf(list, depth));
}

function tableOf({ lines, aligns }) {
  const row = (line, tag) => h('tr', {}, cells(line).map((cell, i) => h(tag, { 'data-align': aligns[i] }, inline(cell))));
  return h('div', { class: 'table', tabindex: '0' }, h('table', {}, h('thead', {}, row(lines[0], 'th')),
    h('tbody', {}, lines.slice(1).map((line) => row(line, 'td')))));
}

function build(block) {
  const text = block.lines.join('\n');
  switch (block.kind) {
    case 'code': return codeBlock(block);
    case 'rule': return h('hr');
    case 'heading': return h(`h${Math.min(6, block.level + 2)}`, {}, inline(text));
    case 'quote': return h('blockquote', {}, inline(text));
    case 'list': return listOf(block.items);
    case 'table': return tableOf(block);
    default: return h('p', {}, inline(text));
  }
}

// As it is, but for code.
function buildPlain(block) {
  return block.kind === 'code' ? codeBlock(block) : h('p', {}, visible(block.lines.join('\n')));
}

// A node that shows a text that only grows (or is set anew).
export class MarkdownView {
  // `only: 'code'`: everything else is shown as it is.
  constructor({ only } = {}) {
    this.only = only;
    this.node = h('div', { class: 'text', dir: 'auto' });
    this.text = '';
    this.stable = 0;  // all blocks that begin before are finished
    this.loose = [];  // nodes behind it
  }

  update(text) {
    if (!text.startsWith(this.text)) {
      this.node.replaceChildren();
      this.stable = 0;
      this.loose = [];
    }
    this.text = text;
    for (const node of this.loose) node.remove();
    const blocks = splitBlocks(text, this.stable, this.only);
    const nodes = blocks.map(this.only === 'code' ? buildPlain : build);
    this.node.append(...nodes);
    // As long as the first line of the last block is not finished, it may still turn out to belong to the one before.
    const begun = blocks.length > 1 && text.indexOf('\n', blocks.at(-1).begin) < 0;
    this.loose = nodes.slice(begun ? -2 : -1);
    if (blocks.length > 0) this.stable = blocks.at(begun ? -2 : -1).begin;
  }
}
