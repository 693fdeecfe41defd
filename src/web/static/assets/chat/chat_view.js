// The current conversation: its messages, and the reply on its way.
import { h, framed } from '../base/dom.js';
import { GuideView, resultCard } from '../guide/guide_view.js';
import { readText } from './attachments.js';
import { Composer } from './composer.js';
import { MessageView } from './message_view.js';
import { ReadingPlace } from './reading_place.js';
import { Reply } from './reply.js';
import * as thread from './thread.js';
import * as tools from './tools.js';

const ROUNDS = 8;  // of tool calls in one answer
const TICK_MS = 500;  // the timer of what is being thought

// null: replies are free.
function schemaOf({ schema }) {
  try {
    return schema ? JSON.parse(schema) : null;
  } catch {
    return null;
  }
}

export class ChatView {
  // `showReport(message)` is called to show the report of a message, `failed(message)` when a reply has failed,
  // `openSettings()` to change what holds for replies.
  constructor({ conversations, settings, runScenario, showReport, failed, openSettings }) {
    Object.assign(this, { conversations, settings, showReport, failed, openSettings });
    this.messages = document.getElementById('messages');
    this.status = document.getElementById('status');
    this.guide = new GuideView(runScenario);
    this.views = [];
    this.replies = new Map();  // on their way, by conversation
    this.asked = new Map();    // {choose, decline}, by the tool call that asks for a file
    this.drawReply = framed(() => this.updateReply());
    this.place = new ReadingPlace(this.messages, document.getElementById('chat-end'));
    this.composer = new Composer({ send: (message) => this.submit(message), stop: () => this.stop(), editLast: () => this.editLast() });
    conversations.busy = (conversation) => this.replies.has(conversation);
    conversations.addEventListener('change', () => this.draw());
    setInterval(() => this.reply() && this.drawReply(), TICK_MS);
    this.draw();
  }

  async submit(message) {
    if (this.reply()) return;
    const answer = await this.say(message);
    // A message that was refused, such as one that is too long, is the person's to change.
    if (![400, 413].includes(answer.status) || answer.content) return;
    const { current } = this.conversations;
    const own = current.messages.find(({ id }) => id === answer.parent);
    if (!own || thread.path(current).at(-1) !== answer) return;
    thread.remove(current, own);
    this.composer.takeBack(own, answer.error);
    this.conversations.save();
    this.conversations.changed();
  }

  // The one on its way in the current conversation.
  reply() {
    return this.replies.get(this.conversations.current);
  }

  stop() {
    if (!this.reply()) return false;
    for (const { decline } of this.asked.values()) decline();
    this.reply().stop();
    return true;
  }

  // Adds a message of the person's and answers it; the reply's message when it has ended.
  say(message, options) {
    const { current } = this.conversations;
    return this.answerTo(thread.append(current, { role: 'user', ...message }), options);
  }

  send(text, options) {
    return this.say({ content: text }, options);
  }

  // Another version of a message of the person's. `index`: on the way that is shown.
  edit(index, text, options) {
    const { current } = this.conversations;
    const old = thread.path(current)[index];
    delete current.guide;
    return this.answerTo(thread.add(current, old.parent, { role: 'user', content: text, ...(old.files && { files: old.files }) }), options);
  }

  editLast() {
    const view = this.views.findLast(({ own }) => own);
    if (!view || this.reply()) return false;
    view.edit();
    return true;
  }

  // Another version of a reply.
  regenerate(message) {
    const { current } = this.conversations;
    delete current.guide;
    return this.answer(thread.add(current, message.parent, { role: 'assistant', content: '' }));
  }

  regenerateLast() {
    const view = this.views.at(-1);
    if (!view || view.own || this.reply()) return false;
    this.regenerate(view.message);
    return true;
  }

  answerTo(message, options) {
    return this.answer(thread.add(this.conversations.current, message.id, { role: 'assistant', content: '' }), options);
  }

  request(conversation) {
    const names = this.settings.tools();
    const request = this.settings.request();
    if (names.length > 0) request.tools = tools.definitions(names);
    const schema = schemaOf(conversation);
    if (schema) request.response_format = { type: 'json_schema', json_schema: { name: 'reply', strict: true, schema } };
    return request;
  }

  // Fills this message, or goes on with it; then with what follows the tools that it calls.
  async answer(message, options = {}) {
    this.stop();
    const conversation = this.conversations.current;
    this.status.textContent = 'Answering.';
    this.place.following = true;
    for (let round = 0; ; ++round) {
      const reply = new Reply(conversation, message, { ...this.request(conversation), ...options }, this.drawReply);
      this.replies.set(conversation, reply);
      this.conversations.save(conversation);
      this.conversations.changed();
      this.place.keep();
      await reply.run();
      const goesOn = round < ROUNDS && await this.runTools(conversation, message);
      if (this.replies.get(conversation) === reply) this.replies.delete(conversation);
      if (!goesOn || reply.abort.signal.aborted) break;
      message = thread.add(conversation, message.id, { role: 'assistant', content: '' });
    }
    this.conversations.save(conversation);
    this.status.textContent = message.error ? 'The answer has failed.' : 'The answer is complete.';
    this.conversations.changed();
    if (message.error) this.failed(message);
    return message;
  }

  // True if the reply called tools of this page and all have answered.
  async runTools(conversation, message) {
    const names = this.settings.tools();
    const calls = (message.calls || []).filter((call) => call?.id);
    if (calls.length === 0 || names.length === 0 || message.error || message.stopped) return false;
    message.calls = calls;
    for (const call of calls) {
      call.result = await tools.run(call, names, () => this.askForFile(call));
      this.drawReply();
    }
    return true;
  }

  // A file may be chosen only by a person's own click: the card of the call has a button for it.
  askForFile(call) {
    return new Promise((done) => {
      const end = (file) => {
        this.asked.delete(call);
        done(file);
      };
      const picker = h('input', {
        type: 'file', class: 'asked-file', hidden: true, oncancel: () => end(null),
        onchange: async () => {
          try {
            end(await readText(picker.files[0]));
          } catch (error) {
            this.composer.problem.textContent = error.message;
            end(null);
          }
        },
      });
      this.asked.set(call, { choose: () => picker.click(), decline: () => end(null), picker });
      document.getElementById('chat').append(picker);
      this.drawReply();
    }).finally(() => document.querySelector('.asked-file')?.remove());
  }

  updateReply() {
    const message = this.reply()?.message;
    const view = message && this.views.findLast((one) => one.message === message);
    if (!view) return;
    view.update(true);
    this.place.keep();
  }

  choose(message, version) {
    const { current } = this.conversations;
    if (this.reply()) return;
    const chosen = thread.versions(current, message)[version];
    thread.choose(current, chosen);
    this.conversations.write(current);
    this.conversations.changed();
    this.views.find((view) => view.message === chosen)?.foot.querySelector('.versions button:enabled')?.focus();
  }

  viewOf(message, index) {
    const { current } = this.conversations;
    const among = thread.versions(current, message);
    const place = { at: among.indexOf(message), of: among.length };
    const old = this.views[index];
    if (old?.message === message && old.place.at === place.at && old.place.of === place.of) return old;
    return new MessageView(message, place, {
      edit: (text) => this.edit(index, text),
      regenerate: () => this.regenerate(message),
      continue: () => this.answer(message),
      choose: (version) => this.choose(message, version),
      showReport: this.showReport,
      askedFile: (call) => this.asked.get(call),
    });
  }

  draw() {
    const { current } = this.conversations;
    const reply = this.reply();
    const same = this.drawn === current;
    if (!same) this.views = [];
    this.drawn = current;
    this.composer.setBusy(!!reply);
    this.drawNotes();
    this.views = thread.path(current).map((message, index) => this.viewOf(message, index));
    for (const view of this.views.slice(-3)) view.update(reply?.message === view.message);
    const nodes = this.views.map((view) => view.node);
    if (current.guide) nodes.push(resultCard(current.guide, this.guide));
    const empty = nodes.length === 0;
    if (empty) nodes.push(this.guide.node);
    const { scrollTop } = this.messages;
    const shown = this.messages.children;
    if (nodes.length !== shown.length || nodes.some((node, i) => node !== shown[i])) this.messages.replaceChildren(...nodes);
    if (empty) this.place.stayAt(0);
    else if (!same) this.place.toEnd();
    else if (this.place.following) this.place.keep();
    else this.place.stayAt(scrollTop);
  }

  // Whether the model looks at pictures.
  setSees(sees) {
    this.composer.setSees(sees);
  }

  drawNotes() {
    const names = this.settings.tools();
    const titles = tools.CHOICES.filter(({ name }) => names.includes(name)).map(({ title }) => title);
    this.composer.setNotes([
      ...(titles.length > 0 ? [{ text: `Tools: ${titles.join(', ')}`, open: this.openSettings }] : []),
      ...(schemaOf(this.conversations.current) ? [{ text: 'Replies as JSON', open: this.openSettings }] : []),
    ]);
  }

  scrollToEnd() {
    this.place.toEnd();
  }
}
