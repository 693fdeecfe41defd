// How the memory for state is used: one bar per tier, one part per kind.
import { h } from '../base/dom.js';
import { bytes, percent } from '../base/format.js';

const KINDS = [
  ['running', 'running requests', (b) => b.running_bytes],
  ['kv', 'K/V of stored text', (b) => Math.max(0, b.cached_bytes - b.snapshot_bytes)],
  ['snapshots', 'snapshots', (b) => Math.min(b.snapshot_bytes, b.cached_bytes)],
  ['index', 'the tree itself', (b) => b.metadata_bytes],
];

const RECORDS = [['kv', 'records of state', (b) => b.cached_bytes]];

function bar(budget, i, all) {
  const kinds = budget.tier === 'memory' ? KINDS : RECORDS;
  const used = budget.running_bytes + budget.cached_bytes + budget.metadata_bytes;
  // How much a shared store may hold is its own affair.
  const words = budget.bytes > 0 ? `${bytes(used)} of ${bytes(budget.bytes)} (${percent(used, budget.bytes)})` : bytes(used);
  const parts = kinds.map(([name, , sizeOf]) => {
    const part = h('span', { class: `part ${name}` });
    part.style.width = `${(100 * sizeOf(budget)) / Math.max(1, budget.bytes)}%`;
    return part;
  });
  return h('div', { class: 'budget' },
    h('p', {}, all.length > 1 ? h('strong', {}, `${budget.tier} `) : null, `${words} used`),
    h('div', { class: 'bar', role: 'img', 'aria-label': `${budget.tier}: ${words}` }, parts),
    h('ul', { class: 'legend' }, kinds.map(([name, label, sizeOf]) =>
      h('li', {}, h('i', { class: `key ${name}` }), `${label} ${bytes(sizeOf(budget))}`))));
}

export class BudgetView {
  constructor() {
    this.node = h('div', {});
  }

  set(server) {
    const state = JSON.stringify(server ? server.budget : null);
    if (state === this.state) return;
    this.state = state;
    if (server) this.node.replaceChildren(...server.budget.map(bar));
    else this.node.replaceChildren(h('p', { class: 'hint' }, 'Only an admin’s key may see the memory of the whole server.'));
  }
}
