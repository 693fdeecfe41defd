// The reports of all requests seen since the page was opened, oldest first: those the server still had, and all since.

const KEPT = 200;
export const COMPARABLE = 64;  // tokens: the time of a shorter prompt is that of the request, not of its tokens

export class Reports {
  constructor() {
    this.list = [];  // {id, time_ms, report, stored?}
    this.known = new Map();
  }

  // Takes what is new in a view. True if anything was. The way that is lit in the view's tree is that of its last report.
  take(view) {
    let any = false;
    for (const { request_id, time_ms, reprise } of view.reports) {
      if (this.known.has(request_id)) continue;
      const entry = { id: request_id, time_ms, report: reprise };
      this.known.set(request_id, entry);
      this.list.push(entry);
      any = true;
    }
    while (this.list.length > KEPT) this.known.delete(this.list.shift().id);
    if (any) this.last().stored = storedInstead(this.last().report, view.tree.nodes);
    return any;
  }

  last() {
    return this.list.at(-1);
  }

  find(id) {
    return this.known.get(id);
  }

  totals() {
    const sum = () => ({ ms: 0, tokens: 0 });
    const kind = () => ({ prompt: sum(), computed: sum() });
    const add = (to, ms, tokens) => {
      if (tokens < COMPARABLE) return;
      to.ms += ms;
      to.tokens += tokens;
    };
    const total = { prompt: 0, reused: 0, warm: kind(), cold: kind() };
    for (const { report } of this.list) {
      total.prompt += report.prompt_tokens;
      total.reused += report.used_tokens;
      const one = isWarm(report) ? total.warm : total.cold;
      add(one.prompt, report.first_token_ms, report.prompt_tokens);
      add(one.computed, report.first_token_ms, report.prompt_tokens - report.used_tokens);
    }
    return total;
  }
}

// At least half of the prompt did not have to be computed.
export function isWarm(report) {
  return 2 * report.used_tokens >= report.prompt_tokens;
}

// What the cache has at the place where the last request left it: the branch beside the lit one that was used last.
function storedInstead(report, nodes) {
  if (!report.diverged) return undefined;
  const { position } = report.diverged;
  const lit = new Set(nodes.filter((n) => n.lit_end > n.begin).map((n) => n.id));
  const beside = nodes.filter((n) => n.begin === position && n.lit_end === n.begin && (n.parent === null || lit.has(n.parent)));
  const age = (n) => (n.idle_ms < 0 ? Infinity : n.idle_ms);
  beside.sort((a, b) => age(a) - age(b));
  return beside[0]?.text;
}
