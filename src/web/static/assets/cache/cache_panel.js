// The drawer beside the chat: tree, memory, history and reports, all from the live view.
import { h, button } from '../base/dom.js';
import { iconButton } from '../base/icons.js';
import { count, tokens } from '../base/format.js';
import { postJson } from '../base/api.js';
import { BudgetView } from './budget_view.js';
import { HistoryView } from './history_view.js';
import { Reports } from './reports.js';
import { reportCard } from './report_view.js';
import { TreeView } from './tree_view.js';

const CARDS = 40;  // as many as the history shows

function section(title, id, ...content) {
  return h('section', { 'aria-labelledby': id }, h('h3', { id }, title), ...content);
}

export class CachePanel {
  constructor(feed, close) {
    this.feed = feed;
    this.reports = new Reports();
    this.drawn = new WeakMap();  // the card of an entry
    this.wanted = null;          // the id of a report to show as soon as it is here
    this.tree = new TreeView();
    this.budget = new BudgetView();
    this.history = new HistoryView((id) => this.showReport(id));
    this.stored = h('p', { class: 'hint', id: 'stored' });
    this.problem = h('p', { class: 'error', role: 'alert' });
    this.cards = h('div', { id: 'last-report' });
    this.earlier = h('div', { id: 'earlier-reports' });
    const reset = button('Forget all…', () => this.ask(true), { id: 'reset', title: 'Empties your part of the cache' });
    this.sure = h('p', { class: 'sure', id: 'sure', hidden: true }, 'All that is stored is computed anew when it is needed. ',
      button('Forget it', () => this.reset(), { id: 'reset-yes', class: 'main' }), ' ', button('Keep it', () => this.ask(false)));
    document.getElementById('cache').append(
      h('div', { class: 'row', id: 'cache-head' }, h('h2', {}, 'Cache'), iconButton('close', 'Close', close, { id: 'cache-close' })),
      section('The last request', 'report-title', this.cards),
      h('section', { 'aria-labelledby': 'tree-title' },
        h('div', { class: 'row' }, h('h3', { id: 'tree-title' }, 'What is stored'), reset), this.sure, this.stored, this.problem,
        this.tree.node),
      section('Over time', 'history-title', this.history.node),
      section('Memory for state', 'budget-title', this.budget.node),
      section('Earlier requests', 'earlier-title', this.earlier));
    feed.addEventListener('view', () => this.draw());
    this.history.set(this.reports);
    this.drawCards();
  }

  draw() {
    const { view, freshTree } = this.feed;
    const changed = this.reports.take(view);
    if (freshTree || changed) this.tree.set(view.tree, this.reports.last(), changed);
    if (changed) {
      this.history.set(this.reports);
      this.drawCards();
    }
    this.budget.set(view.server);
    const { nodes, truncated } = view.tree;
    const stored = nodes.reduce((sum, node) => sum + node.tokens, 0);
    this.stored.textContent = nodes.length === 0 ? '' :
      `${tokens(stored)} in ${count(nodes.length)}${truncated ? ' and more' : ''} pieces. Text that begins alike is stored once.`;
  }

  drawCards() {
    const last = this.reports.list.slice(-CARDS).reverse();
    if (last.length === 0) {
      this.earlier.replaceChildren();
      this.cards.replaceChildren(h('p', { class: 'hint' }, 'Each request is explained here: what was reused, what was not, and why.'));
      return;
    }
    const focused = document.activeElement;
    const [newest, ...older] = last.map((entry, place) => this.card(entry, place === 0));
    for (const card of older) {
      if (card.parentNode === this.cards && !card.contains(focused)) card.open = false;
    }
    this.cards.replaceChildren(newest);
    this.earlier.replaceChildren(...older);
    // A node that is moved loses the focus; who was in it goes on in the same place.
    if (document.activeElement !== focused && focused.isConnected) focused.focus({ preventScroll: true });
    if (this.wanted) this.showReport(this.wanted);
  }

  // The same node each time, so that what is open in it stays open.
  card(entry, open) {
    if (!this.drawn.has(entry)) this.drawn.set(entry, reportCard(entry, open));
    return this.drawn.get(entry);
  }

  // At once, or when the report has arrived: the reply may be there before it.
  showReport(id) {
    const entry = this.reports.find(id);
    this.wanted = entry ? null : id;
    const card = entry && this.drawn.get(entry);
    if (!card?.isConnected) return;
    card.open = true;
    card.scrollIntoView({ block: 'nearest' });
    card.querySelector('summary').focus({ preventScroll: true });
  }

  ask(open) {
    this.sure.hidden = !open;
    if (open) this.sure.querySelector('button').focus();
    else document.getElementById('reset').focus();
  }

  async reset() {
    this.ask(false);
    try {
      await postJson('/v1/cache/reset', {});
      this.problem.textContent = '';
    } catch (error) {
      this.problem.textContent = error.message;
    }
  }
}
