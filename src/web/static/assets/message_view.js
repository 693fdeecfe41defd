// One message: its text, what can be done with it, what its report says in one line.
import { h, button, visible } from './dom.js';
import { count, milliseconds } from './format.js';
import { MarkdownView } from './markdown.js';

const SHORT = 4000;  // characters of a message shown at first

function plainText(text) {
  const node = h('div', { class: 'text plain', dir: 'auto' }, visible(text.slice(0, SHORT)));
  if (text.length <= SHORT) return node;
  const more = button(`Show all ${count(text.length)} characters`, () => node.replaceChildren(visible(text)));
  node.append('… ', more);
  return node;
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
    if (this.own) this.body.append(plainText(message.content));
    else this.makeReply();
    this.update(false);
  }

  makeReply() {
    this.thought = h('div', { class: 'text plain', dir: 'auto' });
    this.thinking = h('details', { class: 'thinking', hidden: true }, h('summary', {}, 'Thinking'), this.thought);
    this.markdown = new MarkdownView();
    this.body.append(this.thinking, this.markdown.node);
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
    else if (this.own) parts.push(button('Edit', () => this.edit()));
    else {
      if (message.error) parts.push(h('p', { class: 'error', role: 'alert' }, visible(message.error)));
      if (message.stopped) parts.push(h('span', {}, 'Stopped. What was computed is kept.'));
      if (message.cut) parts.push(h('span', {}, 'Cut at the number of tokens asked for.'));
      if (message.report) parts.push(reportLine(message.report, () => actions.showReport(message)));
      parts.push(button(message.error ? 'Try again' : 'Regenerate', actions.regenerate));
    }
    this.foot.replaceChildren(...parts);
  }

  edit() {
    const area = h('textarea', { 'aria-label': 'Edit your message', rows: '4', value: this.message.content });
    const done = () => {
      this.body.replaceChildren(plainText(this.message.content));
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
