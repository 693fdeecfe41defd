// The messages of a conversation are a tree: an edited message, or another reply, stands beside the first one, and
// nothing is lost. What is shown is one way through it.
//
// conversation.messages holds all of them, in the order in which they came. Each has an `id` (from 1 upwards) and a
// `parent` (the id of the message before it, or 0); `next` is the id of the one that is shown behind it.
// conversation.next is the first one shown.

function isTree(messages) {
  let last = 0;
  const seen = new Set([0]);
  return messages.every((m) => {
    const good = Number.isSafeInteger(m.id) && m.id > last && seen.has(m.parent);
    last = m.id;
    seen.add(m.id);
    return good;
  });
}

// Conversations that were kept before there were versions, or that somebody wrote by hand, become one way.
export function prepare(conversation) {
  if (isTree(conversation.messages)) return;
  delete conversation.next;
  conversation.messages.forEach((m, i) => {
    m.id = i + 1;
    m.parent = i;
    delete m.next;
  });
}

const childrenOf = (conversation, id) => conversation.messages.filter((m) => m.parent === id);

// The messages that are shown, first to last.
export function path(conversation) {
  const children = new Map();
  for (const m of conversation.messages) {
    if (!children.has(m.parent)) children.set(m.parent, []);
    children.get(m.parent).push(m);
  }
  const way = [];
  for (let at = conversation, id = 0; children.has(id);) {
    const among = children.get(id);
    at = among.find((m) => m.id === at.next) ?? among.at(-1);
    id = at.id;
    way.push(at);
  }
  return way;
}

// The message and those that stand beside it.
export function versions(conversation, message) {
  return childrenOf(conversation, message.parent);
}

// Shows this version, and behind it what was shown there last.
export function choose(conversation, message) {
  const before = message.parent === 0 ? conversation : conversation.messages.find((m) => m.id === message.parent);
  before.next = message.id;
}

// Adds a message behind the one with the id `parent`, and shows it.
export function add(conversation, parent, message) {
  Object.assign(message, { id: (conversation.messages.at(-1)?.id ?? 0) + 1, parent });
  conversation.messages.push(message);
  choose(conversation, message);
  return message;
}

// Behind the last one that is shown.
export function append(conversation, message) {
  return add(conversation, path(conversation).at(-1)?.id ?? 0, message);
}

// Takes a message out, and all that follows it.
export function remove(conversation, message) {
  const gone = new Set([message.id]);
  for (const m of conversation.messages) {
    if (gone.has(m.parent)) gone.add(m.id);
  }
  conversation.messages = conversation.messages.filter((m) => !gone.has(m.id));
}
