// Markdown -> DOM nodes, for replies as they stream in: what is finished stays as it is, only the last block is made
// anew. Links are kept only to http, https and mailto; images are never loaded.
import { h, visible } from './dom.js';

const LONG = 20000;  // a longer block is shown as it is

// Blocks of [from, ...): {begin, kind, ...}, in order. Each line is looked at once.
function splitBlocks(text, from) {
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
      block = addLine(blocks, block, line, at);
    }
    at = end + 1;
  }
  return blocks;
}

function addLine(blocks, block, line, begin) {
  const start = (kind, more) => {
    blocks.push({ begin, kind, lines: [], ...more });
    return blocks[blocks.length - 1];
  };
  const fence = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)/.exec(line);
  if (fence) {
    const close = new RegExp(`^ {0,3}\\${fence[1][0]}{${fence[1].length},}\\s*$`);
    return start('code', { open: true, fence: close, language: fence[2] });
  }
  if (!line.trim()) return null;
  const heading = /^(#{1,6})\s+(.*)$/.exec(line);
  if (heading) {
    start('heading', { level: heading[1].length, lines: [heading[2]] });
    return null;
  }
  if (/^ {0,3}([-*_])( *\1){2,} *$/.test(line)) {
    start('rule');
    return null;
  }
  const item = /^(\s{0,8})([-*+]|\d{1,9}[.)])\s+(.*)$/.exec(line);
  if (item) {
    const ordered = /\d/.test(item[2]);
    if (!block || block.kind !== 'list' || block.ordered !== ordered) {
      block = start('list', { ordered, first: parseInt(item[2], 10) });
    }
    block.lines.push(item[3]);
    return block;
  }
  const quote = /^ {0,3}> ?(.*)$/.exec(line);
  if (quote) {
    if (!block || block.kind !== 'quote') block = start('quote');
    block.lines.push(quote[1]);
    return block;
  }
  if (block && block.kind === 'list') block.lines[block.lines.length - 1] += `\n${line.trim()}`;
  else if (block && (block.kind === 'text' || block.kind === 'quote')) block.lines.push(line);
  else {
    block = start('text');
    block.lines.push(line);
  }
  return block;
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

function codeBlock(block) {
  const text = block.lines.join('\n');
  const copy = h('button', { type: 'button', class: 'copy' }, 'Copy');
  copy.addEventListener('click', async () => {
    await navigator.clipboard?.writeText(text);
    copy.textContent = 'Copied';
  });
  return h('figure', { class: 'code' },
    h('figcaption', {}, h('span', {}, visible(block.language || 'code')), copy),
    h('pre', { tabindex: '0' }, h('code', {}, visible(text))));
}

function build(block) {
  const text = block.lines.join('\n');
  switch (block.kind) {
    case 'code': return codeBlock(block);
    case 'rule': return h('hr');
    case 'heading': return h(`h${Math.min(6, block.level + 2)}`, {}, inline(text));
    case 'quote': return h('blockquote', {}, inline(text));
    case 'list': {
      const items = block.lines.map((line) => h('li', {}, inline(line)));
      return block.ordered ? h('ol', { start: block.first }, items) : h('ul', {}, items);
    }
    default: return h('p', {}, inline(text));
  }
}

// A node that shows a text that only grows (or is set anew).
export class MarkdownView {
  constructor() {
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
    const blocks = splitBlocks(text, this.stable);
    const nodes = blocks.map(build);
    this.node.append(...nodes);
    this.loose = nodes.slice(-1);
    if (blocks.length > 0) this.stable = blocks[blocks.length - 1].begin;
  }
}
