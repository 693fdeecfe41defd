// Where the nodes of the radix tree go in the picture: along x the token positions, one row for each leaf. A node
// stands in the row of its first child, so a trunk runs straight on and the others branch off below it.

const OTHERS = 4;  // branches beside the way of the last request that are shown before older ones are folded

// The nodes to show, parents before children, and how many branches are left out. The way of the last request stands
// first at every fork. Branches that leave it, and texts that have nothing in common with it, follow in the order in which
// they were used; all but a few of them only if `all`.
export function choose(nodes, all) {
  const items = new Map(nodes.map((node) => [node.id, { node, children: [], lit: node.lit_end > node.begin, idle: Infinity }]));
  const roots = [];
  for (const item of items.values()) (items.get(item.node.parent)?.children || roots).push(item);
  for (const item of [...items.values()].reverse()) {
    if (item.node.idle_ms >= 0) item.idle = Math.min(item.idle, item.node.idle_ms);
    const parent = items.get(item.node.parent);
    if (parent) parent.idle = Math.min(parent.idle, item.idle);
  }
  const branches = [...items.values()].filter((item) => !item.lit && (items.get(item.node.parent)?.lit ?? true));
  branches.sort((a, b) => a.idle - b.idle);
  const folded = new Set(all ? [] : branches.slice(OTHERS));
  const shown = [];
  const walk = (list) => {
    list.sort((a, b) => b.lit - a.lit || a.idle - b.idle);
    for (const item of list.filter((one) => !folded.has(one))) {
      shown.push(item.node);
      walk(item.children);
    }
  };
  walk(roots);
  return { nodes: shown, folded: folded.size };
}

// [{node, row, parent: item or null, children}], parents before children, and the number of rows.
export function layOut(nodes) {
  const items = new Map();
  const order = [];
  for (const node of nodes) {
    const parent = items.get(node.parent) || null;
    const item = { node, parent, children: [], row: 0 };
    parent?.children.push(item);
    items.set(node.id, item);
    order.push(item);
  }
  let rows = 0;
  for (const item of order) {  // depth first: a first child continues its parent's row
    if (item.parent && item.parent.children[0] === item) item.row = item.parent.row;
    else item.row = rows++;
  }
  return { order, rows };
}

const POWER = 0.4;       // a piece of 1,000 tokens is 6 times as wide as one of 10
const TICK_PIXELS = 48;  // between the numbers on the axis

// Token position -> x. The places where pieces begin or end divide the axis; each part gets its share of the width, long
// ones less than in proportion: a question of ten tokens stays visible behind a document of thousands.
export function makeScale(nodes, width) {
  const places = [...new Set([0, ...nodes.flatMap((n) => [n.begin, n.end])])].sort((a, b) => a - b);
  const at = [0];
  for (let i = 1; i < places.length; ++i) at.push(at[i - 1] + (places[i] - places[i - 1]) ** POWER);
  const unit = width / at.at(-1);
  const x = (position) => {
    let low = 0;
    let high = places.length - 1;
    while (low + 1 < high) {
      const middle = (low + high) >> 1;
      if (places[middle] <= position) low = middle;
      else high = middle;
    }
    const part = (position - places[low]) / (places[high] - places[low]);
    return unit * (at[low] + part * (at[high] - at[low]));
  };
  return { x, ticks: chooseTicks(places, x) };
}

// Some of the places, not too close to each other; the first and the last always.
function chooseTicks(places, x) {
  const last = places.at(-1);
  const ticks = [0];
  for (const place of places) {
    if (x(place) - x(ticks.at(-1)) >= TICK_PIXELS && x(last) - x(place) >= 2 * TICK_PIXELS) ticks.push(place);
  }
  return [...ticks, last];
}
