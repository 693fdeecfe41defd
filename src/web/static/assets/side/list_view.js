// The list of conversations: search, folders, groups by date, export and import.
import { h, button, visible } from '../base/dom.js';
import { icon, iconButton } from '../base/icons.js';
import { find, titleOf } from './conversations.js';
import { download } from './download.js';
import { IMPORT_MAX, exportText, importText } from './stored.js';

const DAY = 86400e3;
const SHOWN = 200;  // conversations, until more are asked for

// The name of the time in which a conversation was changed last.
function groupOf(changed, now = new Date()) {
  const today = new Date(now.getFullYear(), now.getMonth(), now.getDate()).getTime();
  if (changed >= today) return 'Today';
  if (changed >= today - DAY) return 'Yesterday';
  if (changed >= today - 7 * DAY) return 'Last 7 days';
  if (changed >= today - 30 * DAY) return 'Last 30 days';
  return 'Older';
}

export class ListView {
  // `show()`: brings the chat into view.
  constructor(conversations, show) {
    this.conversations = conversations;
    this.show = show;
    this.items = h('div', { id: 'conversations' });
    this.undo = h('p', { class: 'hint', id: 'undo', role: 'status' });
    this.note = h('p', { class: 'hint', id: 'list-note', role: 'status' });
    this.renaming = null;  // a conversation
    this.moving = null;    // a conversation
    this.limit = SHOWN;
    this.search = h('input', {
      type: 'search', id: 'search', placeholder: 'Search', 'aria-label': 'Search the conversations', maxlength: '200',
      oninput: () => this.draw(),
      onkeydown: (event) => event.key === 'Escape' && this.clear(event),
    });
    document.getElementById('list').append(
      h('button', { type: 'button', id: 'new', onclick: () => this.begin() }, icon('new'), 'New conversation'),
      this.search, this.undo, this.items, this.note, this.makeTransfer());
    conversations.addEventListener('change', () => this.draw());
    this.draw();
  }

  begin() {
    this.search.value = '';
    this.conversations.add();
    this.show();
    document.getElementById('input').focus();
  }

  clear(event) {
    if (!this.search.value) return;
    event.stopPropagation();
    this.search.value = '';
    this.draw();
  }

  makeTransfer() {
    this.picker = h('input', { type: 'file', accept: '.json,application/json', hidden: true, id: 'import-file', onchange: () => this.import() });
    return h('div', { class: 'row transfer' },
      button('Export all', () => download('conversations.json', exportText(this.conversations.list)), { id: 'export-all' }),
      button('Import…', () => this.picker.click(), { id: 'import' }), this.picker);
  }

  async import() {
    const [file] = this.picker.files;
    if (!file) return;
    this.say('');
    try {
      if (file.size > IMPORT_MAX) throw new Error(`A file to import has at most ${IMPORT_MAX >> 20} MiB: nothing was imported.`);
      const count = this.conversations.take(importText(await file.text()));
      this.say(count === 1 ? '1 conversation imported.' : `${count} conversations imported.`);
    } catch (error) {
      this.say(error.message);
    }
    this.picker.value = '';
  }

  say(text) {
    this.said = text;
    this.draw();
  }

  found() {
    const words = this.search.value.trim().toLowerCase();
    return this.conversations.list.filter(({ messages }) => messages.length > 0).map((conversation) => ({ conversation, piece: words ? find(conversation, words) : '' }))
      .filter(({ piece }) => piece !== null);
  }

  draw() {
    const { current, full, removed } = this.conversations;
    const found = this.found();
    const state = JSON.stringify([full, removed?.conversation.id, this.renaming?.id, this.moving?.id, this.said, this.search.value, this.limit,
      found.map(({ conversation: c, piece }) => [c.id, titleOf(c), c.folder, groupOf(c.changed), piece, c === current])]);
    if (state === this.state) return;
    this.state = state;
    this.items.replaceChildren(...this.makeGroups(found.slice(0, this.limit)));
    if (found.length === 0) this.items.append(h('p', { class: 'hint none' }, this.search.value ? 'No conversation has this.' : 'Conversations appear here.'));
    if (found.length > this.limit) {
      this.items.append(button('Show more', () => {
        this.limit += SHOWN;
        this.draw();
      }));
    }
    const field = this.items.querySelector('input');
    if (field && !field.contains(document.activeElement)) field.select();
    this.undo.replaceChildren(...(removed
      ? ['Deleted. ', button('Undo', () => this.conversations.restore(), { title: visible(titleOf(removed.conversation)) })] : []));
    this.note.textContent = full ? 'This browser keeps no more: new messages are lost when the page is closed. Export what you need, then delete some.'
      : this.said ?? '';
  }

  makeGroups(found) {
    const groups = new Map(this.conversations.folders().map((folder) => [`f${folder}`, []]));
    for (const entry of found) {
      const { folder, changed } = entry.conversation;
      const key = folder ? `f${folder}` : `d${groupOf(changed)}`;
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(entry);
    }
    return [...groups].filter(([, entries]) => entries.length > 0).map(([key, entries]) => h('section', { class: 'group' },
      h('h2', {}, key[0] === 'f' ? icon('folder') : null, visible(key.slice(1))),
      h('ul', {}, entries.map(({ conversation, piece }) => this.makeItem(conversation, piece)))));
  }

  makeItem(conversation, piece) {
    if (conversation === this.renaming) return this.makeField(conversation, 'Name of the conversation', titleOf(conversation), (name) => {
      if (name !== titleOf(conversation)) this.conversations.rename(conversation, name);
    });
    if (conversation === this.moving) return this.makeField(conversation, 'Folder of the conversation; empty: none', conversation.folder ?? '', (folder) => {
      this.conversations.move(conversation, folder.slice(0, 100));
    });
    const { current } = this.conversations;
    const title = visible(titleOf(conversation));
    const tool = (name, label, run, className = '') => iconButton(name, `${label} ${title}`, run, { class: className });
    return h('li', { class: conversation === current ? 'current' : null },
      h('button', {
        type: 'button', class: 'open', 'aria-current': conversation === current ? 'true' : null, dir: 'auto', title,
        onclick: () => {
          this.conversations.select(conversation);
          this.show();
        },
      }, h('span', { class: 'title' }, title), piece ? h('span', { class: 'hint piece' }, visible(piece)) : null),
      conversation.messages.length > 0 && h('span', { class: 'tools' },
        tool('edit', 'Rename', () => this.ask('renaming', conversation), 'rename'),
        tool('folder', 'Move to a folder:', () => this.ask('moving', conversation), 'move'),
        tool('export', 'Export', () => download('conversation.json', exportText([conversation])), 'export'),
        tool('delete', 'Delete', () => this.conversations.remove(conversation), 'remove')));
  }

  ask(what, conversation) {
    this[what] = conversation;
    this.draw();
    this.items.querySelector('input')?.select();
  }

  makeField(conversation, label, value, keep) {
    const field = h('input', { class: 'name', 'aria-label': label, placeholder: this.moving ? 'Folder' : '', value, list: this.moving ? 'folders' : null });
    const end = (wanted) => {
      if (this.renaming !== conversation && this.moving !== conversation) return;
      this.renaming = this.moving = null;
      if (wanted) keep(field.value.trim());
      this.draw();
    };
    field.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && !event.isComposing) end(true);
      if (event.key !== 'Escape') return;
      event.stopPropagation();
      end(false);
    });
    field.addEventListener('blur', () => end(true));
    return h('li', {}, field, this.moving && h('datalist', { id: 'folders' }, this.conversations.folders().map((value) => h('option', { value }))));
  }
}
