// The list of conversations.
import { h, button, visible } from './dom.js';
import { titleOf } from './conversations.js';

export class ListView {
  constructor(conversations, show) {
    this.conversations = conversations;
    this.show = show;
    this.items = h('ul', {});
    this.undo = h('p', { class: 'hint', id: 'undo', role: 'status' });
    this.note = h('p', { class: 'hint' });
    this.renaming = null;  // a conversation
    document.getElementById('list').append(
      button('New conversation', () => {
        conversations.add();
        conversations.changed();
        show();
        document.getElementById('input').focus();
      }, { class: 'main', id: 'new' }), this.undo, this.items, this.note);
    conversations.addEventListener('change', () => this.draw());
    this.draw();
  }

  draw() {
    const { list, current, full, removed } = this.conversations;
    const state = JSON.stringify([full, removed?.conversation.id, this.renaming?.id,
      list.map((c) => [c.id, titleOf(c), c === current])]);
    if (state === this.state) return;
    this.state = state;
    this.items.replaceChildren(...list.map((conversation) => (conversation === this.renaming
      ? this.makeField(conversation) : this.makeItem(conversation, conversation === current))));
    this.items.querySelector('input')?.select();
    this.undo.replaceChildren(...(removed
      ? ['Deleted. ', button('Undo', () => this.conversations.restore(), { title: visible(titleOf(removed.conversation)) })] : []));
    this.note.textContent = full ? 'This browser keeps no more: new messages are lost when the page is closed.' : '';
  }

  makeItem(conversation, current) {
    const title = visible(titleOf(conversation));
    const said = conversation.messages.length > 0;
    return h('li', { class: current ? 'current' : '' },
      button(title, () => {
        this.conversations.select(conversation);
        this.show();
      }, { class: 'open', 'aria-current': current ? 'true' : null, dir: 'auto', title }),
      said && button('✎', () => this.rename(conversation), { class: 'rename', 'aria-label': `Rename ${title}`, title: 'Rename' }),
      said && button('×', () => this.conversations.remove(conversation),
        { class: 'remove', 'aria-label': `Delete ${title}`, title: 'Delete' }));
  }

  rename(conversation) {
    this.renaming = conversation;
    this.draw();
  }

  makeField(conversation) {
    const field = h('input', { class: 'name', 'aria-label': 'Name of the conversation', value: titleOf(conversation) });
    const end = (keep) => {
      if (this.renaming !== conversation) return;
      this.renaming = null;
      if (keep && field.value.trim() !== titleOf(conversation)) this.conversations.rename(conversation, field.value);
      this.draw();
    };
    field.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && !event.isComposing) end(true);
      if (event.key === 'Escape') end(false);
    });
    field.addEventListener('blur', () => end(true));
    return h('li', {}, field);
  }
}
