// The report of a request: what was reused, what was not and why, and where it left what was stored.
import { compare } from './compare.js';
import { h, visible } from '../base/dom.js';
import { clock, count, milliseconds, tokens } from '../base/format.js';

const MARKS = /<\|[^|>]{1,40}\|>|<\/?(s|think|start_of_turn|end_of_turn)>/;

function reasonOf(r) {
  const at = r.diverged ? count(r.diverged.position) : '';
  switch (r.reason) {
    case 'none': return 'Everything but the last token was stored; that one is always run.';
    case 'new': return `What was stored ended at token ${count(r.known_tokens)}; the rest had never been seen.`;
    case 'cold': return 'Nothing stored begins like this prompt.';
    case 'diverged': return `From token ${at} on, the prompt differs from everything stored.`;
    case 'no_snapshot_here':
      return `The text is known up to token ${count(r.known_tokens)}, but this model can go on only from a snapshot of its state, and ` +
        (r.used_tokens > 0 ? `the last one before it is at token ${count(r.used_tokens)}.` : 'none was taken that early: short prompts are cheaper to compute.');
    case 'evicted': return 'The rest was stored once and had to make room.';
    case 'too_large': return 'A state for this place did not fit the memory.';
    case 'other_namespace': return 'It is stored for another model or other settings of it, which cannot be mixed.';
    case 'too_short': return 'Less was stored than the request wanted at least (min_cache_tokens).';
    case 'cheaper_to_compute': return 'A lower tier has more of it, but computing that was sooner done than loading it.';
    case 'disabled': return 'The request asked not to reuse anything.';
    default: return `Reason: ${r.reason}.`;
  }
}

function bar(r) {
  const all = Math.max(1, r.prompt_tokens);
  const part = (name, from, to) => {
    const node = h('span', { class: `part ${name}` });
    node.style.width = `${(100 * Math.max(0, to - from)) / all}%`;
    return node;
  };
  const known = Math.max(r.used_tokens, Math.min(r.known_tokens, r.prompt_tokens));
  return h('div', { class: 'bar', 'aria-hidden': 'true' }, part('reused', 0, r.used_tokens),
    part('known', r.used_tokens, known), part('computed', known, r.prompt_tokens));
}

// The prompt from its beginning to its end, the stronger the colour the more K/V of that part the reply saw.
function keptAlong(lossy) {
  const parts = lossy.along.map((percent) => {
    const node = h('span', { title: `${percent} % kept` });
    node.style.opacity = percent / 100;
    return node;
  });
  return h('div', { class: 'lossy' },
    h('div', { class: 'bar along', role: 'img', 'aria-label': `K/V kept, from the beginning of the prompt to its end: ${lossy.along.join(', ')} %` }, parts),
    h('p', { class: 'hint' }, `Lossy: the reply saw the K/V of ${count(lossy.kept_tokens)} of ${tokens(lossy.of_tokens)} (SnapKV), ` +
      'the stronger the colour above, the more of that part of the prompt. What is stored is exact.'));
}

// Both texts around the place where they part, what differs marked.
function difference(diverged, stored) {
  const pieces = compare(stored || '', diverged.after);
  const line = (label, tag, list) => h('p', { dir: 'auto' }, h('b', {}, label), '…', visible(diverged.before),
    list.map(({ text, same }) => (same ? visible(text) : h(tag, {}, visible(text)))), '…');
  const marks = MARKS.test(`${diverged.before}${diverged.after}${stored || ''}`);
  return h('div', { class: 'difference' },
    stored ? line('Stored', 'del', pieces.a) : null, line('Asked', 'ins', pieces.b),
    h('p', { class: 'hint' },
      stored ? ['What only one of them has is ', h('del', {}, 'struck through'), ' above and ', h('ins', {}, 'underlined'), ' below. '] : null,
      marks ? 'Marks such as <|im_start|> are the model\'s own: its template puts them between the messages.' : null));
}

// What came of guessed tokens, or why there were none.
const RESTS = {
  nothing_to_draft: 'nothing to guess from', costs_more_than_it_saves: 'would have cost more than it saves',
  no_memory: 'no room for their state', slow_constraint: 'what it must look like takes long to ask for', not_finite: 'given up: a guess led to numbers that are none',
  reply_too_short: 'the reply is too short', off: 'off',
};
const SOURCES = { tree: 'earlier replies', prediction: 'the prediction', ngram: 'prompt and reply', mtp: 'the model itself', draft: 'the draft model' };

function guesses({ drafted, accepted, rests, ...sources }) {
  if (!(drafted > 0)) return RESTS[rests] ?? 'none';
  const from = Object.entries(SOURCES).filter(([name]) => sources[name]).map(([name, words]) => `${count(sources[name].accepted)} from ${words}`);
  return `${count(accepted)} of ${count(drafted)} right${from.length > 0 ? ` (${from.join(', ')})` : ''}`;
}

function numbers(r) {
  const rows = [
    ['Prompt', tokens(r.prompt_tokens)],
    ['Known text', tokens(r.known_tokens)],
    ['K/V found', tokens(r.kv_tokens)],
    ['State found', `up to token ${count(r.state_tokens)}`],
    ['Used', tokens(r.used_tokens)],
    ['Snapshots', `${count(r.snapshots_taken)} taken, ${count(r.snapshots_declined)} not worth it`],
    ['Restored in', milliseconds(r.restore_ms)],
    ...(r.loaded ? [[`From the ${r.tier}`, `${tokens(r.loaded.tokens)} in ${milliseconds(r.loaded.ms)}`]] : []),
    ...(r.lossy?.along ? [['K/V kept (SnapKV)', `${count(r.lossy.kept_tokens)} of ${tokens(r.lossy.of_tokens)}`]] : []),
    ...(r.lossy?.snapshots ? [['Stored states (lossy)', r.lossy.snapshots]] : []),
    ['Waited', milliseconds(r.queue_ms)],
    ['First token', milliseconds(r.first_token_ms)],
    ['Whole reply', `${tokens(r.generated_tokens)} in ${milliseconds(r.total_ms)}`],
    ...(r.speculation ? [['Guessed tokens', guesses(r.speculation)]] : []),
  ];
  return h('details', {}, h('summary', {}, 'All numbers'),
    h('dl', {}, rows.map(([name, value]) => [h('dt', {}, name), h('dd', {}, value)]).flat()));
}

export function reportCard({ id, time_ms, report, stored }, open) {
  const r = report;
  const computed = r.prompt_tokens - r.used_tokens;
  const headline = r.used_tokens > 0
    ? `${count(r.used_tokens)} of ${tokens(r.prompt_tokens)} reused`
    : `All ${tokens(r.prompt_tokens)} computed`;
  return h('details', { class: 'report', open, 'data-id': id },
    h('summary', {}, h('span', { class: r.used_tokens > 0 ? 'warm' : 'cold' }, headline),
      h('span', { class: 'hint' }, `first token ${milliseconds(r.first_token_ms)} · ${clock(time_ms)}`)),
    bar(r),
    h('p', {}, computed > 1 ? `${tokens(computed)} had to be computed. ` : '', reasonOf(r)),
    r.lossy?.along ? keptAlong(r.lossy) : null,
    r.diverged ? difference(r.diverged, stored) : null,
    numbers(r));
}
