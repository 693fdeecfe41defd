// Request after request: prompt tokens reused against computed, and the time to the first token.
import { h, svg } from './dom.js';
import { count, median, milliseconds, percent, tokens } from './format.js';
import { isWarm } from './reports.js';

const SHOWN = 40;
const ROOM = 16;  // for so many at least
const WIDTH = 440;
const BARS = 70;
const DOTS = 60;
const GAP = 12;
const LEFT = 44;

function words(total) {
  const lines = [`${count(total.reused)} of ${tokens(total.prompt)} in prompts reused (${percent(total.reused, total.prompt)}).`];
  const times = [['warm', total.warm], ['cold', total.cold]].filter(([, list]) => list.length > 0)
    .map(([name, list]) => `${name} ${milliseconds(median(list))} (${count(list.length)})`);
  if (times.length > 0) lines.push(`First token, median: ${times.join(', ')}.`);
  return lines.join(' ');
}

export class HistoryView {
  constructor(choose) {
    this.choose = choose;
    this.words = h('p', {});
    this.picture = svg('svg', { viewBox: `0 0 ${WIDTH} ${BARS + GAP + DOTS + 4}`, class: 'history', role: 'img' });
    this.node = h('div', {}, this.words, this.picture,
      h('ul', { class: 'legend' },
        h('li', {}, h('i', { class: 'key reused' }), 'reused, ● warm'),
        h('li', {}, h('i', { class: 'key computed' }), 'computed, ■ cold (less than half reused)')));
  }

  set(reports) {
    const text = reports.list.length > 0 ? words(reports.totals()) : 'No request has been answered yet.';
    this.words.textContent = text;
    this.node.classList.toggle('empty', reports.list.length === 0);
    this.picture.setAttribute('aria-label', `Tokens and time to first token of the last requests. ${text}`);
    this.picture.replaceChildren(...this.draw(reports.list.slice(-SHOWN)));
  }

  draw(list) {
    const most = Math.max(1, ...list.map(({ report }) => report.prompt_tokens));
    const times = list.map(({ report }) => Math.max(0.1, report.first_token_ms));
    const low = Math.log(Math.min(1, ...times));
    const high = Math.log(Math.max(10, ...times) * 1.3);
    const step = (WIDTH - LEFT) / Math.max(ROOM, list.length);
    const bottom = BARS + GAP + DOTS;
    const yOf = (ms) => bottom - (DOTS * (Math.log(Math.max(0.1, ms)) - low)) / (high - low);
    const parts = [
      svg('text', { x: LEFT - 4, y: 10, 'text-anchor': 'end' }, count(most)),
      svg('text', { x: LEFT - 4, y: BARS, 'text-anchor': 'end' }, 'tokens'),
    ];
    for (const ms of [1, 10, 100, 1000, 10000, 100000]) {
      const y = yOf(ms);
      if (y > bottom + 1 || y < BARS + GAP - 1) continue;
      parts.push(svg('path', { class: 'grid', d: `M${LEFT} ${y}H${WIDTH}` }),
        svg('text', { x: LEFT - 4, y: y + 3, 'text-anchor': 'end' }, ms < 1000 ? `${ms} ms` : `${ms / 1000} s`));
    }
    list.forEach(({ id, report }, i) => {
      const x = LEFT + i * step + 1;
      const all = (BARS * report.prompt_tokens) / most;
      const used = (BARS * report.used_tokens) / most;
      const cy = yOf(report.first_token_ms);
      const center = x + step / 2 - 1;
      parts.push(svg('g', { class: 'request', onclick: () => this.choose(id) },
        svg('rect', { class: 'computed', x, y: BARS - all, width: step - 2, height: Math.max(0, all - used) }),
        svg('rect', { class: 'reused', x, y: BARS - used, width: step - 2, height: used }),
        isWarm(report) ? svg('circle', { class: 'reused', cx: center, cy, r: 3 })
          : svg('rect', { class: 'computed', x: center - 3, y: cy - 3, width: 6, height: 6 })));
    });
    return parts;
  }
}
