// The panel beside the chat: tree, memory, history and reports, all from the live view.
import { h, button } from './dom.js';
import { count, tokens } from './format.js';
import { postJson } from './api.js';
import { BudgetView } from './budget_view.js';
import { HistoryView } from './history_view.js';
import { Reports } from './reports.js';
import { reportCard } from './report_view.js';
import { TreeView } from './tree_view.js';

const CARDS = 20;

function section(title, id, ...content) {
  return h('section', { 'aria-labelledby': id }, h('h2', { id }, title), ...content);
}

export class CachePanel {
  constructor(feed) {
    this.feed = feed;
    this.reports = new Reports();
    this.tree = new TreeView();
    this.budget = new BudgetView();
    this.history = new HistoryView((id) => this.showReport(id));
    this.stored = h('p', { class: 'hint', id: 'stored' });
    this.problem = h('p', { class: 'error', role: 'alert' });
    this.cards = h('div', { id: 'last-report' });
    this.earlier = h('div', { id: 'earlier-reports' });
    const reset = button('Forget all', () => this.reset(), { id: 'reset', title: 'Empties your part of the cache' });
    document.getElementById('cache').append(
      h('section', { 'aria-labelledby': 'tree-title' },
        h('div', { class: 'row' }, h('h2', { id: 'tree-title' }, 'What is stored'), reset), this.stored, this.problem,
        this.tree.node),
      section('The last request', 'report-title', this.cards),
      section('Over time', 'history-title', this.history.node),
      section('Memory for state', 'budget-title', this.budget.node),
      section('Earlier requests', 'earlier-title', this.earlier));
    feed.addEventListener('view', () => this.draw());
    this.history.set(this.reports);
    this.drawCards();
  }

  draw() {
    const { view, fresh } = this.feed;
    const anyReport = fresh.reports && this.reports.take(view);
    if (fresh.tree || anyReport) {
      this.reports.take(view);
      this.tree.set(view.tree, this.reports.last());
    }
    if (anyReport) {
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
    const open = new Set([...this.earlier.querySelectorAll('details.report[open]')].map((card) => card.dataset.id));
    const [newest, ...older] = last;
    this.cards.replaceChildren(reportCard(newest, true));
    this.earlier.replaceChildren(...older.map((entry) => reportCard(entry, open.has(entry.id))));
  }

  showReport(id) {
    const card = [...document.querySelectorAll('#cache details.report')].find((node) => node.dataset.id === id);
    if (!card) return;
    card.open = true;
    card.scrollIntoView({ block: 'nearest' });
    card.querySelector('summary').focus({ preventScroll: true });
  }

  async reset() {
    try {
      await postJson('/v1/cache/reset', {});
      this.problem.textContent = '';
    } catch (error) {
      this.problem.textContent = error.message;
    }
  }
}
