// The current conversation: messages, the field to write in, the reply on its way.
import { h, button, framed } from './dom.js';
import { MessageView } from './message_view.js';
import { Reply } from './reply.js';
import { GuideView, resultCard } from './guide_view.js';

const NEAR_END = 80;  // pixels: closer than this to the end, the end stays in view

export class ChatView {
  // `shown(message)` is called to show the report of a message, `failed(message)` when a reply has failed.
  constructor({ conversations, settings, runScenario, showReport, failed }) {
    Object.assign(this, { conversations, settings, showReport, failed });
    this.messages = document.getElementById('messages');
    this.status = document.getElementById('status');
    this.guide = new GuideView(runScenario);
    this.views = [];
    this.replies = new Map();  // on their way, by conversation
    this.drawReply = framed(() => this.updateReply());
    this.makeForm();
    conversations.addEventListener('change', () => this.draw());
    this.draw();
  }

  makeForm() {
    this.input = h('textarea', {
      id: 'input', rows: '3', placeholder: 'Write a message', 'aria-label': 'Message',
      onkeydown: (event) => {
        if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
        event.preventDefault();
        this.submit();
      },
    });
    this.sendButton = h('button', { type: 'submit', class: 'main' }, 'Send');
    this.stopButton = button('Stop', () => this.stop(), { id: 'stop', hidden: true });
    const form = document.getElementById('compose');
    form.append(this.input, h('div', { class: 'buttons' }, this.sendButton, this.stopButton));
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      this.submit();
    });
  }

  submit() {
    const text = this.input.value;
    if (!text.trim() || this.reply()) return;
    this.input.value = '';
    this.send(text);
  }

  // The one on its way in the current conversation.
  reply() {
    return this.replies.get(this.conversations.current);
  }

  stop() {
    this.reply()?.stop();
  }

  // Sends `text` as the next message of the current conversation; the reply's message when it has ended.
  send(text, options = {}) {
    this.conversations.current.messages.push({ role: 'user', content: text });
    return this.answer(options);
  }

  // Replaces a message of the user's and drops what followed.
  edit(index, text, options = {}) {
    this.conversations.current.messages.splice(index);
    delete this.conversations.current.guide;
    return this.send(text, options);
  }

  // Drops a reply, and what followed it, and asks anew.
  regenerate(index) {
    this.conversations.current.messages.splice(index);
    delete this.conversations.current.guide;
    this.answer();
  }

  async answer(options = {}) {
    this.stop();
    const conversation = this.conversations.current;
    const reply = new Reply(conversation, { ...this.settings.request(), ...options }, this.drawReply);
    this.replies.set(conversation, reply);
    this.status.textContent = 'Answering.';
    this.conversations.changed();
    this.scrollToEnd();
    const message = await reply.run();
    if (this.replies.get(conversation) === reply) this.replies.delete(conversation);
    this.conversations.save();
    this.status.textContent = message.error ? 'The answer has failed.' : 'The answer is complete.';
    this.conversations.changed();
    if (message.error) this.failed(message);
    return message;
  }

  updateReply() {
    const view = this.views.at(-1);
    if (!view || view.message !== this.reply()?.message) return;
    const { scrollHeight, scrollTop, clientHeight } = this.messages;
    const follow = scrollHeight - scrollTop - clientHeight < NEAR_END;
    view.update(true);
    if (follow) this.scrollToEnd();
  }

  scrollToEnd() {
    this.messages.scrollTop = this.messages.scrollHeight;
  }

  draw() {
    const { current } = this.conversations;
    const busy = this.replies.has(current);
    this.sendButton.hidden = busy;
    this.stopButton.hidden = !busy;
    const last = current.messages.length - 1;
    const same = this.drawn === current;
    this.drawn = current;
    this.views = current.messages.map((message, index) => {
      const old = same && this.views[index]?.message === message && index < last - 1 ? this.views[index] : null;
      return old || new MessageView(message, {
        edit: (text) => this.edit(index, text),
        regenerate: () => this.regenerate(index),
        showReport: this.showReport,
      });
    });
    if (busy) this.views.at(-1).update(true);
    const nodes = this.views.map((view) => view.node);
    if (current.guide) nodes.push(resultCard(current.guide, this.guide));
    if (nodes.length === 0) nodes.push(this.guide.node);
    const { scrollTop } = this.messages;
    this.messages.replaceChildren(...nodes);
    this.messages.scrollTop = same ? scrollTop : this.messages.scrollHeight;
    if (current.guide?.done || (same && busy)) this.scrollToEnd();
  }
}
