// One message: its text and files, its versions, what can be done with it, what its report says in one line.
import { h, button, visible } from '../base/dom.js';
import { icon, iconButton } from '../base/icons.js';
import { bytes, count, milliseconds, percent } from '../base/format.js';
import { MarkdownView } from '../text/markdown.js';
import { copyButton } from '../text/copy_button.js';
import { plainText } from '../text/plain.js';

const SHORT = 4000;  // characters of a message shown at first

// What the user wrote: as it is, but for code, which is shown as such.
function ownText(text) {
  const node = plainText(text.slice(0, SHORT));
  if (text.length > SHORT) {
    node.append('… ', button(`Show all ${count(text.length)} characters`, () => node.replaceWith(plainText(text))));
  }
  return node;
}

// A picture as it was sent; a click shows it as large as there is room.
function pictureCard({ name, image }) {
  const picture = h('img', { src: image, alt: visible(name) });
  const card = h('button', {
    type: 'button', class: 'picture', title: visible(name), 'aria-label': `Picture ${visible(name)}`, 'aria-expanded': 'false',
    onclick: () => card.setAttribute('aria-expanded', String(card.getAttribute('aria-expanded') !== 'true')),
  }, picture);
  return card;
}

function fileCard({ name, text, image }) {
  if (image) return pictureCard({ name, image });
  return h('details', { class: 'file' }, h('summary', {}, icon('file'), h('span', { class: 'name' }, visible(name)), h('span', { class: 'hint' }, bytes(text.length))),
    h('pre', { tabindex: '0' }, h('code', {}, visible(text.slice(0, SHORT)), text.length > SHORT ? '…' : '')));
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;  // not complete
  }
}

// How fast it was written, in tokens per second; null where the report does not say.
function rateOf({ generated_tokens: tokens, total_ms, first_token_ms }) {
  const ms = total_ms - first_token_ms;
  return tokens > 1 && ms > 0 ? (1000 * (tokens - 1)) / ms : null;
}

// Tokens of it that were guessed, rightly, and so came several in a step (docs/speculation.md).
function guessedOf({ speculation }) {
  const accepted = speculation?.accepted;
  return Number.isFinite(accepted) && accepted > 0 ? ` · ${count(accepted)} of them guessed` : '';
}

function reportLine(report, showReport) {
  const { prompt_tokens: all, used_tokens: used, first_token_ms } = report;
  const rate = rateOf(report);
  const speed = rate === null ? '' : ` · ${rate < 10 ? rate.toFixed(1) : count(rate)} tokens/s`;
  const guessed = rate === null ? '' : guessedOf(report);
  const words = used > 0 ? `${count(used)} of ${count(all)} prompt tokens reused` : `all ${count(all)} prompt tokens computed`;
  return h('button', { type: 'button', class: `report-line ${used > 0 ? 'warm' : 'cold'}`, title: 'Show the report of this request', onclick: showReport },
    h('span', { class: 'long' }, `${words} · first token after ${milliseconds(first_token_ms)}${speed}${guessed}`),
    h('span', { class: 'short' }, `${percent(used, all)} reused${speed}`));
}

// ‹ 2/3 ›
function versionRow({ at, of, go }) {
  const step = (picture, label, to) => iconButton(picture, label, () => go(to), { disabled: to < 0 || to >= of });
  return h('span', { class: 'versions', role: 'group', 'aria-label': 'Versions' },
    step('previous', 'Previous version', at - 1), h('span', {}, `${at + 1}/${of}`), step('next', 'Next version', at + 1));
}

export class MessageView {
  // `actions`: {edit(text), regenerate(), continue(), choose(version), showReport(message), askedFile(call)}.
  // `place`: {at, of}, among the versions of the message.
  constructor(message, place, actions) {
    this.message = message;
    this.place = place;
    this.actions = actions;
    this.own = message.role === 'user';
    this.body = h('div', { class: 'body' });
    this.foot = h('div', { class: 'foot' });
    this.node = h('article', { class: `message ${this.own ? 'own' : 'reply'}`, 'aria-label': this.own ? 'You' : 'Reply' },
      h('h2', { class: 'unseen' }, this.own ? 'You' : 'Reply'), this.body, this.foot);
    if (this.own) this.showOwn();
    else this.makeReply();
    this.update(false);
  }

  showOwn() {
    const { content, files = [] } = this.message;
    this.body.replaceChildren(...files.map(fileCard), ...(content || files.length === 0 ? [ownText(content)] : []));
  }

  makeReply() {
    this.thought = h('div', { class: 'text plain', dir: 'auto' });
    this.thoughtTitle = h('summary', {}, 'Thinking');
    this.thinking = h('details', { class: 'thinking', hidden: true }, this.thoughtTitle, this.thought);
    this.markdown = new MarkdownView();
    this.calls = h('div', { class: 'calls' });
    this.body.append(this.thinking, this.markdown.node, this.calls);
  }

  // The message has grown, or `busy` has changed.
  update(busy) {
    const { message } = this;
    this.node.classList.toggle('busy', busy);
    if (!this.own) {
      if (message.reasoning) this.drawThought(busy);
      if (message.content !== this.markdown.text) this.markdown.update(message.content);
      if (!busy) this.markdown.finish();
      this.drawCalls();
    }
    this.drawFoot(busy);
  }

  drawThought(busy) {
    const { reasoning, content, thinking_ms: ms } = this.message;
    const seconds = ms === undefined ? '' : `${(ms / 1000).toFixed(ms < 10000 ? 1 : 0)} s`;
    const going = busy && !content;
    this.thinking.hidden = false;
    this.thinking.classList.toggle('waiting', going);
    this.thoughtTitle.textContent = going ? `Thinking… ${seconds}` : `Thought${seconds && ` for ${seconds}`}`;
    if (this.shownThought !== reasoning) this.thought.textContent = visible(reasoning);
    this.shownThought = reasoning;
  }

  drawCalls() {
    const calls = (this.message.calls || []).filter(Boolean);
    const state = JSON.stringify([calls, calls.map((call) => !!this.actions.askedFile(call))]);
    if (state === this.callState) return;
    this.callState = state;
    this.calls.replaceChildren(...calls.map((call) => this.callCard(call)));
  }

  // A tool call: its name and arguments, which may still be on their way; what the tool answered, or what it asks for.
  callCard(call) {
    const asked = this.actions.askedFile(call);
    return h('figure', { class: 'code call' },
      h('figcaption', {}, h('span', {}, `Tool call: ${visible(call.name)}`), copyButton(() => call.arguments)),
      h('pre', { tabindex: '0' }, h('code', {}, visible(pretty(call.arguments)))),
      call.result === undefined ? null : h('details', {}, h('summary', {}, 'Result'),
        h('pre', { tabindex: '0', class: 'result-text' }, h('code', {}, visible(pretty(call.result).slice(0, SHORT))))),
      asked && h('p', { class: 'asked' }, 'The model asks for a file. ', button('Choose a file…', asked.choose, { class: 'main' }), ' ',
        button('Decline', asked.decline)));
  }

  drawFoot(busy) {
    const { message, actions, place } = this;
    const state = `${busy}${message.error}${message.stopped}${!!message.report}${!!message.content}`;
    if (state === this.footState) return;
    this.footState = state;
    const parts = [];
    const tools = [];
    if (busy) parts.push(h('span', { class: 'waiting' }, 'Answering…'));
    if (!busy && message.report) parts.push(reportLine(message.report, () => actions.showReport(message)));
    if (!busy && place.of > 1) parts.push(versionRow({ ...place, go: actions.choose }));
    if (!busy && this.own) {
      tools.push(copyButton(() => message.content), iconButton('edit', 'Edit', () => this.edit(), { class: 'edit' }));
    }
    if (!busy && !this.own) {
      if (message.error) parts.unshift(h('p', { class: 'error', role: 'alert' }, visible(message.error)));
      if (message.content) tools.push(copyButton(() => message.content));
      tools.push(iconButton('regenerate', message.error ? 'Try again' : 'Regenerate', actions.regenerate, { class: 'regenerate' }));
      if (message.content && !message.calls) tools.push(iconButton('continue', 'Continue', actions.continue, { class: 'continue' }));
    }
    if (tools.length > 0) parts.push(h('span', { class: 'tools' }, tools));
    if (!busy && message.stopped) parts.push(h('span', { class: 'note' }, 'Stopped. What was computed is kept.'));
    if (!busy && message.cut) parts.push(h('span', { class: 'note' }, 'Cut at the maximum of tokens.'));
    this.foot.replaceChildren(...parts);
  }

  edit() {
    const area = h('textarea', { 'aria-label': 'Edit your message', rows: '3', value: this.message.content });
    const done = () => {
      this.showOwn();
      this.foot.hidden = false;
      this.foot.querySelector('.edit')?.focus();
    };
    const save = () => (area.value.trim() ? this.actions.edit(area.value) : done());
    area.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') {
        event.preventDefault();
        done();
      }
      if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) save();
    });
    this.foot.hidden = true;
    this.body.replaceChildren(h('div', { class: 'editing' }, area,
      h('p', { class: 'hint' }, 'The message as it was stays beside it, with its replies.'),
      h('div', { class: 'buttons' }, button('Cancel', done), button('Send', save, { class: 'main' }))));
    area.focus();
  }
}
