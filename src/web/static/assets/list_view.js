// The list of conversations.
import { h, button, visible } from './dom.js';
import { titleOf } from './conversations.js';

export class ListView {
  constructor(conversations, show) {
    this.conversations = conversations;
    this.show = show;
    this.items = h('ul', {});
    this.note = h('p', { class: 'hint' });
    document.getElementById('list').append(
      button('New conversation', () => {
        conversations.add();
        conversations.changed();
        show();
        document.getElementById('input').focus();
      }, { class: 'main', id: 'new' }), this.items, this.note);
    conversations.addEventListener('change', () => this.draw());
    this.draw();
  }

  draw() {
    const { list, current, full } = this.conversations;
    const state = JSON.stringify([full, list.map((c) => [c.id, titleOf(c), c === current])]);
    if (state === this.state) return;
    this.state = state;
    this.items.replaceChildren(...list.map((conversation) => this.makeItem(conversation, conversation === current)));
    this.note.textContent = full ? 'This browser keeps no more: new messages are lost when the page is closed.' : '';
  }

  makeItem(conversation, current) {
    const title = visible(titleOf(conversation));
    return h('li', { class: current ? 'current' : '' },
      button(title, () => {
        this.conversations.select(conversation);
        this.show();
      }, { class: 'open', 'aria-current': current ? 'true' : null, dir: 'auto' }),
      button('×', () => this.conversations.remove(conversation),
        { class: 'remove', 'aria-label': `Delete ${title}`, title: 'Delete' }));
  }
}
