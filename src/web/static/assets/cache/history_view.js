// Request after request: prompt tokens reused against computed, and the time to the first token for each token of the
// prompt: prompts of different lengths can be compared then.
import { h, svg } from '../base/dom.js';
import { count, milliseconds, percent, tokens } from '../base/format.js';
import { COMPARABLE, isWarm } from './reports.js';

const SHOWN = 40;
const ROOM = 16;  // for so many at least
const WIDTH = 440;
const BARS = 70;
const DOTS = 60;
const GAP = 12;
const LEFT = 44;

function words(total) {
  const lines = [`${count(total.reused)} of ${tokens(total.prompt)} in prompts reused (${percent(total.reused, total.prompt)}).`];
  const each = (key) => [['warm', total.warm[key]], ['cold', total.cold[key]]].filter(([, sum]) => sum.tokens > 0)
    .map(([name, sum]) => `${name} ${milliseconds((1000 * sum.ms) / sum.tokens)}`).join(', ');
  const prompt = each('prompt');
  const computed = each('computed');
  if (prompt) lines.push(`To the first token, for 1,000 tokens of the prompt: ${prompt}${computed ? `; for 1,000 tokens computed: ${computed}` : ''}.`);
  return lines.join(' ');
}

// For 1,000 tokens of its prompt.
const perPrompt = (report) => (1000 * report.first_token_ms) / Math.max(COMPARABLE, report.prompt_tokens);

export class HistoryView {
  constructor(choose) {
    this.choose = choose;
    this.words = h('p', {});
    this.focused = null;  // id of the request that the keyboard is at
    this.picture = svg('svg', {
      viewBox: `0 0 ${WIDTH} ${BARS + GAP + DOTS + 4}`, class: 'history', role: 'group', onkeydown: (event) => this.onKey(event),
    });
    this.node = h('div', {}, this.words, this.picture,
      h('ul', { class: 'legend' },
        h('li', {}, h('i', { class: 'key reused' }), 'reused, ● warm: time for 1,000 prompt tokens'),
        h('li', {}, h('i', { class: 'key computed' }), 'computed, ■ cold (less than half reused)')));
  }

  set(reports) {
    const text = reports.list.length > 0 ? words(reports.totals()) : 'No request has been answered yet.';
    this.words.textContent = text;
    this.node.classList.toggle('empty', reports.list.length === 0);
    this.picture.setAttribute('aria-label', `Tokens and time to first token of the last requests. ${text}`);
    this.list = reports.list.slice(-SHOWN);
    if (!this.list.some(({ id }) => id === this.focused)) this.focused = this.list.at(-1)?.id ?? null;
    const hadFocus = this.picture.contains(document.activeElement);
    this.picture.replaceChildren(...this.draw(this.list));
    if (hadFocus) this.focusOn(this.focused);
  }

  focusOn(id) {
    this.focused = id;
    for (const node of this.picture.querySelectorAll('.request')) {
      const here = node.dataset.id === id;
      node.setAttribute('tabindex', here ? '0' : '-1');
      if (here) node.focus({ preventScroll: true });
    }
  }

  onKey(event) {
    const at = this.list.findIndex(({ id }) => id === this.focused);
    const target = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: this.list.length - 1 }[event.key];
    if (event.key === 'Enter' || event.key === ' ') this.choose(this.focused);
    else if (target === undefined) return;
    else if (this.list[target]) this.focusOn(this.list[target].id);
    event.preventDefault();
  }

  draw(list) {
    const most = Math.max(1, ...list.map(({ report }) => report.prompt_tokens));
    const times = list.map(({ report }) => Math.max(0.1, perPrompt(report)));
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
      const cy = yOf(perPrompt(report));
      const center = x + step / 2 - 1;
      parts.push(svg('g', {
        class: 'request', role: 'button', tabindex: id === this.focused ? '0' : '-1', 'data-id': id, onclick: () => this.choose(id),
        'aria-label': `${tokens(report.prompt_tokens)}, ${count(report.used_tokens)} reused, first token after ${milliseconds(report.first_token_ms)}`,
      },
        svg('rect', { class: 'touch', x, y: 0, width: step - 2, height: bottom }),
        svg('rect', { class: 'computed', x, y: BARS - all, width: step - 2, height: Math.max(0, all - used) }),
        svg('rect', { class: 'reused', x, y: BARS - used, width: step - 2, height: used }),
        isWarm(report) ? svg('circle', { class: 'reused', cx: center, cy, r: 3 })
          : svg('rect', { class: 'computed', x: center - 3, y: cy - 3, width: 6, height: 6 })));
    });
    return parts;
  }
}
