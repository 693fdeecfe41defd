// The conversations of this browser, newest first. Each is kept by itself (shelf.js); what another tab has changed is taken
// over when it says so.
import { textOf } from '../chat/attachments.js';
import { conversationOf, parseConversation } from './stored.js';

const TITLE_LENGTH = 60;

function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(9)), (b) => b.toString(36).padStart(2, '0')).join('');
}

export class Conversations extends EventTarget {
  static async open(shelf) {
    const list = (await shelf.all()).map(parseConversation).filter(Boolean);
    return new Conversations(shelf, list.sort((a, b) => b.changed - a.changed));
  }

  constructor(shelf, list) {
    super();
    this.shelf = shelf;
    this.list = list;
    this.current = this.list[0] || this.add();
    this.full = false;     // the browser keeps no more
    this.removed = null;   // the last one that was deleted, to bring it back
    this.busy = () => false;  // whether a conversation is being written to here
    shelf.heard = (other) => this.onOther(other);
  }

  changed() {
    this.dispatchEvent(new Event('change'));
  }

  // A new conversation, with the system prompt of the last one written by hand. One that is still empty serves again.
  add(more = {}) {
    const system = this.list.find((c) => !c.title)?.system || '';
    const conversation = { id: newId(), title: '', system, messages: [], changed: Date.now(), ...more };
    this.list = [conversation, ...this.list.filter((c) => c.messages.length > 0)];
    this.current = conversation;
    this.changed();
    return conversation;
  }

  select(conversation) {
    this.current = conversation;
    this.changed();
  }

  rename(conversation, name) {
    conversation.name = name.trim();
    this.save(conversation);
    this.changed();
  }

  // '': in no folder.
  move(conversation, folder) {
    if (folder) conversation.folder = folder;
    else delete conversation.folder;
    this.write(conversation);
    this.changed();
  }

  folders() {
    return [...new Set(this.list.map((c) => c.folder).filter(Boolean))].sort((a, b) => a.localeCompare(b));
  }

  // Takes imported conversations. One that is here already, word for word, is not taken twice; the number of those taken.
  take(imported) {
    const here = new Map(this.list.map((c) => [c.id, c]));
    const words = (c) => c && JSON.stringify(conversationOf(c)?.messages);
    const fresh = imported.filter((c) => words(here.get(c.id)) !== words(c));
    for (const conversation of fresh) {
      if (here.has(conversation.id)) conversation.id = newId();
      here.set(conversation.id, conversation);
      this.write(conversation);
    }
    this.list = [...this.list, ...fresh].sort((a, b) => b.changed - a.changed);
    if (this.current.messages.length === 0) this.current = this.list.find((c) => c.messages.length > 0) ?? this.current;
    this.changed();
    return fresh.length;
  }

  // Can be undone until the next one is removed.
  remove(conversation) {
    this.removed = { conversation, place: this.list.indexOf(conversation) };
    this.drop(conversation);
    this.keep(this.shelf.remove(conversation.id));
    this.changed();
  }

  restore() {
    const { conversation, place } = this.removed;
    this.removed = null;
    this.list.splice(place, 0, conversation);
    this.current = conversation;
    this.save(conversation);
    this.changed();
  }

  drop(conversation) {
    this.list = this.list.filter((c) => c !== conversation);
    if (this.current !== conversation) return;
    this.current = this.list[0] || null;
    if (!this.current) this.add();
  }

  save(conversation = this.current) {
    if (conversation.messages.length === 0) return;
    conversation.changed = Date.now();
    this.write(conversation);
  }

  write(conversation) {
    this.keep(this.shelf.write(conversation.id, JSON.stringify(conversation)));
  }

  // `kept`: a promise that what was written is safe.
  async keep(kept) {
    const before = this.full;
    this.full = await kept.then(() => false, () => true);
    if (this.full !== before) this.changed();
  }

  // Another tab has written a conversation, or deleted it (no json).
  onOther({ id, json }) {
    const mine = this.list.find((c) => c.id === id);
    if (mine && this.busy(mine)) return;
    const theirs = json && parseConversation(json);
    if (!theirs) {
      if (mine) this.drop(mine);
    } else if (mine) {
      for (const name of Object.keys(mine)) delete mine[name];
      Object.assign(mine, theirs);
    } else {
      const after = this.list.findIndex((c) => c.messages.length > 0 && c.changed < theirs.changed);
      this.list.splice(after < 0 ? this.list.length : after, 0, theirs);
    }
    this.changed();
  }
}

export function titleOf(conversation) {
  if (conversation.name) return conversation.name;
  if (conversation.title) return conversation.title;
  const first = conversation.messages.find((m) => m.role === 'user');
  const line = first ? first.content.trim().slice(0, 4 * TITLE_LENGTH).replace(/\s+/g, ' ') : '';
  if (!line) return first?.files?.[0]?.name ?? 'New conversation';
  return line.length > TITLE_LENGTH ? `${line.slice(0, TITLE_LENGTH - 1)}…` : line;
}

// Where `words` (in lower case) are: a piece of the text around them, or null. '' is found in the title.
export function find(conversation, words) {
  if (titleOf(conversation).toLowerCase().includes(words)) return '';
  for (const message of conversation.messages) {
    const text = textOf(message);
    const at = text.toLowerCase().indexOf(words);
    if (at >= 0) return text.slice(Math.max(0, at - 30), at + words.length + 60).replace(/\s+/g, ' ');
  }
  return null;
}
