// The radix tree as a picture. Only the rows in view are drawn, so thousands of nodes cost what some dozens do.
import { h, button, svg, visible, framed } from '../base/dom.js';
import { ago, count, tokens } from '../base/format.js';
import { choose, layOut, makeScale } from './tree_layout.js';

const ROW = 30;
const BAR = 18;
const TOP = 20;  // room for the axis
const LETTER = 6.1;  // pixels, of the text in the bars

// Of a piece, the text without the marks of the template. The picture shows its beginning, and so must the name.
const LABEL_LETTERS = 200;
const cleaned = (text) => visible(text.replace(/<\|[^|>]{1,40}\|>/g, ' ').replace(/\s+/g, ' ').trim());

const HELP = 'Point at a piece, or move with the arrow keys, to read it.';

function makeLegend() {
  const key = (name, text) => h('li', {}, h('i', { class: `key ${name}` }), text);
  return h('ul', { class: 'legend' }, key('reused', 'reused by the last request'), key('computed', 'computed by it'),
    key('stored', 'other stored text'), key('snapshot', 'snapshot: the model can go on from here'),
    key('leased', 'in use now'));
}

export class TreeView {
  constructor() {
    this.picture = svg('svg', { role: 'tree', 'aria-label': 'What is stored, as a tree of shared beginnings' });
    this.scroller = h('div', { class: 'tree' }, this.picture);
    this.detail = h('div', { class: 'tree-detail', 'aria-live': 'polite' }, h('p', {}, HELP));
    this.legend = makeLegend();
    this.empty = h('p', { class: 'hint' }, 'Nothing is stored yet. Send a message, and its state stays here for the next one.');
    this.all = false;  // older branches, too
    this.more = button('', () => {
      this.all = !this.all;
      this.set(this.tree, this.lastReport, false);
    }, { id: 'more-tree', hidden: true });
    this.node = h('div', {}, this.empty, this.scroller, this.more, this.detail, this.legend);
    this.order = [];
    this.rows = 0;
    this.focused = null;  // node id
    this.draw = framed(() => this.drawNow());
    this.scroller.addEventListener('scroll', this.draw, { passive: true });
    new ResizeObserver(this.draw).observe(this.scroller);
    this.picture.addEventListener('keydown', (event) => this.onKey(event));
    for (const name of ['pointerover', 'focusin']) {
      this.picture.addEventListener(name, (event) => {
        const item = this.itemOf(event.target.closest?.('[data-id]')?.dataset.id);
        if (item) this.describe(item);
      });
    }
  }

  // `follow`: the way of the last request comes into view.
  set(tree, lastReport, follow) {
    const { nodes, folded } = choose(tree.nodes, this.all);
    const { order, rows } = layOut(nodes);
    this.tree = tree;
    this.lastReport = lastReport;
    this.nodes = nodes;
    this.more.hidden = folded === 0 && !this.all;
    this.more.textContent = this.all ? 'Fold older branches' : `Show ${count(folded)} older ${folded === 1 ? 'branch' : 'branches'}`;
    this.lit = order.filter(({ node }) => node.lit_end > node.begin).at(-1);
    this.order = order;
    this.rows = rows;
    this.used = lastReport ? lastReport.report.used_tokens : 0;
    this.truncated = tree.truncated;
    if (!this.itemOf(this.focused)) this.focused = order[0]?.node.id ?? null;
    this.empty.hidden = order.length > 0;
    this.scroller.hidden = this.detail.hidden = this.legend.hidden = order.length === 0;
    if (follow) this.follow();
    this.draw();
  }

  // From where it branches off to its end.
  follow() {
    if (!this.lit) return;
    const from = TOP + (this.lit.parent ?? this.lit).row * ROW;
    const to = TOP + (this.lit.row + 1) * ROW + 4;
    const { clientHeight } = this.scroller;
    this.scroller.scrollTop = Math.max(0, Math.min(from - TOP, to - clientHeight));
    if (to > this.scroller.scrollTop + clientHeight) this.scroller.scrollTop = to - clientHeight;
  }

  itemOf(id) {
    return this.order.find((item) => String(item.node.id) === String(id));
  }

  drawNow() {
    const width = this.scroller.clientWidth - 4;
    if (this.order.length === 0 || width < 40) return;
    const height = TOP + this.rows * ROW + 4;
    const first = Math.floor((this.scroller.scrollTop - TOP) / ROW) - 2;
    const last = first + Math.ceil(this.scroller.clientHeight / ROW) + 4;
    const { x, ticks } = makeScale(this.nodes, width - 12);
    const y = (row) => TOP + row * ROW;
    const parts = [this.makeAxis(x, ticks, height)];
    const bars = [];
    for (const item of this.order) {
      const from = item.parent ? item.parent.row : item.row;
      if (item.row < first || from > last) continue;
      if (item.parent && item.row !== from) {
        const at = x(item.node.begin) + 1.5;
        const lit = item.node.lit_end > item.node.begin ? ' lit' : '';
        parts.push(svg('path', { class: `branch${lit}`, d: `M${at} ${y(from) + BAR}V${y(item.row) + BAR / 2}h3` }));
      }
      if (item.row <= last) bars.push(this.makeBar(item, x, y(item.row)));
    }
    if (this.lit) bars.push(this.makeLabel(x, y(this.lit.row), width));
    this.picture.setAttribute('width', width);
    this.picture.setAttribute('height', height);
    const hadFocus = this.picture.contains(document.activeElement);
    this.picture.replaceChildren(...parts, ...bars);
    if (hadFocus) this.picture.querySelector('[tabindex="0"]')?.focus({ preventScroll: true });
  }

  makeAxis(x, ticks, height) {
    return svg('g', { class: 'axis', 'aria-hidden': 'true' }, ticks.map((position, i) => {
      const end = i === ticks.length - 1;
      return [svg('path', { d: `M${x(position) + 0.5} ${TOP - 4}V${height}` }),
        svg('text', { x: x(position) + (end ? -2 : 2), y: 11, 'text-anchor': end ? 'end' : 'start' },
          position === 0 ? 'token 0' : count(position))];
    }).flat());
  }

  makeBar(item, x, y) {
    const { node } = item;
    const left = x(node.begin) + 1;
    const right = Math.max(left + 3, x(node.end) - 1);
    const part = (from, to, name) => (to > from
      ? svg('rect', { class: name, x: x(from) + 1, y, width: Math.max(1, x(to) - x(from) - 2), height: BAR, rx: 3 }) : null);
    const reused = Math.min(node.lit_end, this.used);
    return svg('g', {
      class: `node${node.leased ? ' leased' : ''}${node.lit_end > node.begin ? ' lit' : ''}`,
      role: 'treeitem', 'data-id': node.id, 'aria-level': node.depth + 1,
      'aria-label': this.sentence(node), tabindex: node.id === this.focused ? '0' : '-1',
    },
    svg('rect', { class: 'run', x: left, y, width: right - left, height: BAR, rx: 3 }),
    part(node.begin, reused, 'reused'), part(Math.max(node.begin, this.used), node.lit_end, 'computed'),
    this.makeText(node, left, right, x, y),
    node.snapshots.map((position) => {
      const at = Math.max(left + 2, x(position) - 2);
      return svg('path', { class: 'snapshot', d: `M${at} ${y + BAR - 4}l4 4l-4 4l-4 -4z` });
    }),
    svg('rect', { class: 'ring', x: left, y, width: right - left, height: BAR, rx: 3 }));
  }

  // Says which of the ways is that of the last request, below its end.
  makeLabel(x, y, width) {
    const end = x(this.lit.node.lit_end);
    const right = end > width / 2;
    return svg('text', { class: 'label', x: right ? end - 2 : end + 2, y: y + BAR + 9, 'text-anchor': right ? 'end' : 'start', 'aria-hidden': 'true' },
      right ? 'the last request ▴' : '▴ the last request');
  }

  // The beginning of its text, on the lit part or, where that is too short, behind it.
  makeText(node, left, right, x, y) {
    const edge = node.lit_end > node.begin ? x(node.lit_end) - 1 : left;
    const on = edge - left > 40;
    const from = on ? left : edge;
    const letters = Math.floor(((on ? edge : right) - from - 8) / LETTER);
    if (letters < 3) return null;
    return svg('text', { class: on ? 'on' : '', x: from + 5, y: y + 13 }, cleaned(node.text).slice(0, Math.min(letters, LABEL_LETTERS)));
  }

  sentence(node) {
    const parts = [`${tokens(node.tokens)}, positions ${count(node.begin)} to ${count(node.end)}`];
    if (node.snapshots.length > 0) parts.push(`snapshots at ${node.snapshots.map(count).join(', ')}`);
    if (node.leased) parts.push('in use now');
    if (node.lit_end > node.begin) {
      const reused = Math.max(0, Math.min(node.lit_end, this.used) - node.begin);
      const rest = node.lit_end - node.begin - reused;
      const words = [reused && `${count(reused)} reused`, rest && `${count(rest)} computed`];
      parts.push(`last request: ${words.filter(Boolean).join(', ')}`);
    }
    if (node.idle_ms >= 0) parts.push(`used ${ago(node.idle_ms)}`);
    return `${parts.join('; ')}. Text: ${cleaned(node.text).slice(0, LABEL_LETTERS)}`;
  }

  describe(item) {
    const { node } = item;
    const [facts] = this.sentence(node).split('. Text: ');
    const hidden = node.tokens - node.text_tokens;
    const more = hidden > 0 ? h('span', { class: 'hint' }, ` … ${tokens(hidden)} more`) : null;
    this.detail.replaceChildren(h('p', {}, facts, '.'), h('p', { class: 'stored', dir: 'auto' }, visible(node.text), more));
  }

  onKey(event) {
    const item = this.itemOf(this.focused);
    if (!item) return;
    const index = this.order.indexOf(item);
    const target = {
      ArrowDown: this.order[index + 1], ArrowUp: this.order[index - 1], ArrowLeft: item.parent,
      ArrowRight: item.children[0], Home: this.order[0], End: this.order.at(-1),
    }[event.key];
    if (!target) return;
    event.preventDefault();
    this.focused = target.node.id;
    const y = TOP + target.row * ROW;
    const { scrollTop, clientHeight } = this.scroller;
    if (y < scrollTop + TOP) this.scroller.scrollTop = y - TOP;
    if (y + ROW > scrollTop + clientHeight) this.scroller.scrollTop = y + ROW - clientHeight;
    this.drawNow();
    this.picture.querySelector('[tabindex="0"]')?.focus({ preventScroll: true });
  }
}
