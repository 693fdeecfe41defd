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
    conversations.busy = (conversation) => this.replies.has(conversation);
    this.makeForm();
    conversations.addEventListener('change', () => this.draw());
    this.draw();
  }

  makeForm() {
    this.input = h('textarea', {
      id: 'input', rows: '2', placeholder: 'Write a message', 'aria-label': 'Message',
      onkeydown: (event) => {
        if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
        event.preventDefault();
        this.submit();
      },
    });
    this.sendButton = h('button', { type: 'submit', class: 'main' }, 'Send');
    this.stopButton = button('Stop', () => this.stop(), { id: 'stop', hidden: true });
    this.problem = h('p', { class: 'error', role: 'alert', id: 'problem' });
    const form = document.getElementById('compose');
    form.append(this.problem, this.input, h('div', { class: 'buttons' }, this.sendButton, this.stopButton));
    // The last lines stay in view when the field grows, the window shrinks or the chat is shown again.
    this.following = true;
    this.messages.addEventListener('scroll', () => {
      if (this.messages.clientHeight > 0) this.following = this.nearEnd();
    }, { passive: true });
    new ResizeObserver(() => this.following && this.scrollToEnd()).observe(this.messages);
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      this.submit();
    });
  }

  submit() {
    const text = this.input.value;
    if (!text.trim() || this.reply()) return;
    this.input.value = '';
    this.problem.textContent = '';
    this.send(text).then((message) => this.takeBack(text, message));
  }

  // A message that was refused, such as one that is too long, is the user's to change.
  takeBack(text, message) {
    if (![400, 413].includes(message.status) || message.content || this.input.value) return;
    const { current } = this.conversations;
    const index = current.messages.indexOf(message);
    if (index < 1 || index !== current.messages.length - 1) return;
    current.messages.splice(index - 1);
    this.input.value = text;
    this.problem.textContent = message.error;
    this.conversations.save();
    this.conversations.changed();
    this.input.focus();
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
    this.conversations.save(conversation);
    this.conversations.changed();
    this.scrollToEnd();
    const message = await reply.run();
    if (this.replies.get(conversation) === reply) this.replies.delete(conversation);
    this.conversations.save(conversation);
    this.status.textContent = message.error ? 'The answer has failed.' : 'The answer is complete.';
    this.conversations.changed();
    if (message.error) this.failed(message);
    return message;
  }

  updateReply() {
    const view = this.views.at(-1);
    if (!view || view.message !== this.reply()?.message) return;
    const follow = this.nearEnd();
    view.update(true);
    if (follow) this.scrollToEnd();
  }

  nearEnd() {
    const { scrollHeight, scrollTop, clientHeight } = this.messages;
    return scrollHeight - scrollTop - clientHeight < NEAR_END;
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
    const follow = this.nearEnd();
    this.messages.replaceChildren(...nodes);
    this.messages.scrollTop = same && !follow && !busy ? scrollTop : this.messages.scrollHeight;
    this.following = this.nearEnd();
    if (nodes[0] !== this.guide.node) return;
    this.messages.scrollTop = 0;
    this.following = false;
  }
}
