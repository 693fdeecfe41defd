// One message: its text, what can be done with it, what its report says in one line.
import { h, button, visible } from './dom.js';
import { count, milliseconds } from './format.js';
import { MarkdownView, copyButton } from './markdown.js';

const SHORT = 4000;  // characters of a message shown at first

// What the user wrote: as it is, but for code, which is shown as such.
function ownText(text) {
  const view = new MarkdownView({ only: 'code' });
  view.node.classList.add('plain');
  view.update(text.slice(0, SHORT));
  if (text.length > SHORT) {
    view.node.append('… ', button(`Show all ${count(text.length)} characters`, () => view.node.replaceWith(whole(text))));
  }
  return view.node;
}

function whole(text) {
  const view = new MarkdownView({ only: 'code' });
  view.node.classList.add('plain');
  view.update(text);
  return view.node;
}

// A tool call: its name and arguments, which may still be on their way.
function callCard({ name, arguments: text }) {
  let shown = text;
  try {
    shown = JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    // Not complete: as it is.
  }
  return h('figure', { class: 'code call' }, h('figcaption', {}, h('span', {}, `Tool call: ${visible(name)}`), copyButton(() => text)),
    h('pre', { tabindex: '0' }, h('code', {}, visible(shown))));
}

function reportLine(report, showReport) {
  const all = report.prompt_tokens;
  const text = report.used_tokens > 0
    ? `${count(report.used_tokens)} of ${count(all)} prompt tokens reused`
    : `all ${count(all)} prompt tokens computed`;
  return button(`${text} · first token after ${milliseconds(report.first_token_ms)}`, showReport,
    { class: `report-line ${report.used_tokens > 0 ? 'warm' : 'cold'}`, title: 'Show the report of this request' });
}

export class MessageView {
  // `actions`: {edit(text), regenerate(), showReport(message)}.
  constructor(message, actions) {
    this.message = message;
    this.actions = actions;
    this.own = message.role === 'user';
    this.body = h('div', { class: 'body' });
    this.foot = h('div', { class: 'foot' });
    this.node = h('article', { class: `message ${this.own ? 'own' : 'reply'}`, 'aria-label': this.own ? 'You' : 'Reply' },
      h('h2', {}, this.own ? 'You' : 'Reply'), this.body, this.foot);
    if (this.own) this.body.append(ownText(message.content));
    else this.makeReply();
    this.update(false);
  }

  makeReply() {
    this.thought = h('div', { class: 'text plain', dir: 'auto' });
    this.thinking = h('details', { class: 'thinking', hidden: true }, h('summary', {}, 'Thinking'), this.thought);
    this.markdown = new MarkdownView();
    this.calls = h('div', { class: 'calls' });
    this.body.append(this.thinking, this.markdown.node, this.calls);
  }

  // The message has grown, or `busy` has changed.
  update(busy) {
    const { message } = this;
    this.node.classList.toggle('busy', busy);
    if (!this.own) {
      if (message.reasoning) {
        this.thinking.hidden = false;
        this.thought.textContent = visible(message.reasoning);
      }
      if (message.content !== this.markdown.text) this.markdown.update(message.content);
      const calls = JSON.stringify(message.calls || []);
      if (calls !== this.callState) this.calls.replaceChildren(...(message.calls || []).filter(Boolean).map(callCard));
      this.callState = calls;
    }
    this.drawFoot(busy);
  }

  drawFoot(busy) {
    const { message, actions } = this;
    const state = `${busy}${message.error}${message.stopped}${!!message.report}`;
    if (state === this.footState) return;
    this.footState = state;
    const parts = [];
    if (busy) parts.push(h('span', { class: 'waiting' }, 'Answering…'));
    else if (this.own) parts.push(button('Edit', () => this.edit()), copyButton(() => message.content));
    else {
      if (message.error) parts.push(h('p', { class: 'error', role: 'alert' }, visible(message.error)));
      if (message.stopped) parts.push(h('span', {}, 'Stopped. What was computed is kept.'));
      if (message.cut) parts.push(h('span', {}, 'Cut at the number of tokens that the settings allow.'));
      if (message.report) parts.push(reportLine(message.report, () => actions.showReport(message)));
      if (message.content) parts.push(copyButton(() => message.content));
      parts.push(button(message.error ? 'Try again' : 'Regenerate', actions.regenerate));
    }
    this.foot.replaceChildren(...parts);
  }

  edit() {
    const area = h('textarea', { 'aria-label': 'Edit your message', rows: '4', value: this.message.content });
    const done = () => {
      this.body.replaceChildren(ownText(this.message.content));
      this.foot.hidden = false;
      this.foot.querySelector('button')?.focus();
    };
    const save = () => (area.value.trim() ? this.actions.edit(area.value) : done());
    area.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') done();
      if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) save();
    });
    this.foot.hidden = true;
    this.body.replaceChildren(h('div', { class: 'editing' }, area,
      h('p', { class: 'hint' }, 'What follows this message is dropped and asked anew.'),
      h('div', { class: 'foot' }, button('Send', save, { class: 'main' }), button('Cancel', done))));
    area.focus();
  }
}
