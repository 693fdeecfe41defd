// The conversations of this browser, newest first, kept in its local storage.
//
// A conversation: {id, title, system, messages: [{role, content, reasoning?, report?, error?, stopped?}], guide?}

const PLACE = 'reprise.conversations';
const TITLE_LENGTH = 60;

function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(9)), (b) => b.toString(36).padStart(2, '0')).join('');
}

function load() {
  try {
    const list = JSON.parse(localStorage.getItem(PLACE) || '[]');
    const good = (c) => c && typeof c.id === 'string' && Array.isArray(c.messages) &&
      c.messages.every((m) => m && typeof m.role === 'string' && typeof m.content === 'string');
    return Array.isArray(list) ? list.filter(good) : [];
  } catch {
    return [];
  }
}

export class Conversations extends EventTarget {
  constructor() {
    super();
    this.list = load();
    this.current = this.list[0] || this.add();
    this.full = false;  // the browser keeps no more
  }

  changed() {
    this.dispatchEvent(new Event('change'));
  }

  // A new conversation, with the system prompt of the last one written by hand. One that is still empty serves again.
  add(more = {}) {
    const system = this.list.find((c) => !c.title)?.system || '';
    const conversation = { id: newId(), title: '', system, messages: [], ...more };
    this.list = [conversation, ...this.list.filter((c) => c.messages.length > 0)];
    this.current = conversation;
    this.changed();
    return conversation;
  }

  select(conversation) {
    this.current = conversation;
    this.changed();
  }

  remove(conversation) {
    this.list = this.list.filter((c) => c !== conversation);
    if (this.current === conversation) {
      this.current = this.list[0] || null;
      if (!this.current) this.add();
    }
    this.save();
    this.changed();
  }

  save() {
    const kept = this.list.filter((c) => c.messages.length > 0);
    try {
      localStorage.setItem(PLACE, JSON.stringify(kept));
      this.full = false;
    } catch {
      this.full = true;
    }
  }
}

export function titleOf(conversation) {
  if (conversation.title) return conversation.title;
  const first = conversation.messages.find((m) => m.role === 'user');
  const line = first ? first.content.trim().slice(0, 4 * TITLE_LENGTH).replace(/\s+/g, ' ') : '';
  if (!line) return 'New conversation';
  return line.length > TITLE_LENGTH ? `${line.slice(0, TITLE_LENGTH - 1)}…` : line;
}
