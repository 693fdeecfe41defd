// What a first visit sees: what this is about, and three scenarios to watch; and what one of them has shown.
import { h, button, visible } from '../base/dom.js';
import { count, milliseconds } from '../base/format.js';
import { SCENARIOS, savings } from './scenarios.js';

export class GuideView {
  constructor(run) {
    this.run = run;
    this.node = h('section', { class: 'guide', 'aria-labelledby': 'guide-title' },
      h('h2', { id: 'guide-title' }, 'What shall we talk about?'),
      h('p', {}, 'Write a message below. The line under each reply says how much of the prompt did not have to be computed again; ' +
        'click it to see the cache.'),
      h('h3', {}, 'Or watch the cache at work'),
      this.choices(),
      h('p', { class: 'hint' }, 'Each of these sends real requests to this server and shows the time saved.'));
  }

  choices() {
    return h('ul', { class: 'scenarios' }, SCENARIOS.map((scenario) => h('li', {},
      button(scenario.title, () => this.run(scenario), { 'data-scenario': scenario.name }),
      h('p', {}, scenario.about))));
  }
}

// `guide`: {title, rows, about} or {title, error}, as a scenario has left it.
export function resultCard(guide, view) {
  const card = h('section', { class: 'result', 'aria-label': 'Result' }, h('h2', {}, visible(guide.title)));
  if (guide.error) card.append(h('p', { class: 'error' }, visible(guide.error)));
  if (guide.rows) {
    const saved = savings(guide);
    const head = saved.saved_ms > 0
      ? `${milliseconds(saved.saved_ms)} saved: the first token came ${saved.times.toFixed(saved.times < 10 ? 1 : 0)} times sooner.`
      : 'No time saved this time; the machine was busy with something else.';
    const cells = (tag, list) => h('tr', {}, list.map((text, i) => h(i ? tag : 'th', i ? {} : { scope: tag === 'th' ? 'col' : 'row' }, text)));
    card.append(h('p', { class: 'headline' }, head),
      h('table', {}, h('thead', {}, cells('th', ['', 'Tokens computed', 'Tokens reused', 'First token'])),
        h('tbody', {}, guide.rows.map((r) => cells('td', [visible(r.label), count(r.computed), count(r.reused), milliseconds(r.ms)])))),
      h('p', {}, visible(guide.about)));
  }
  card.append(h('h3', {}, 'Watch another'), view.choices());
  return card;
}
