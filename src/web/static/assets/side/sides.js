// What stands beside the chat: the conversations to the left, the cache to the right. Where there is no room for both,
// they lie over it.
import { iconButton } from '../base/icons.js';

const PLACE = 'reprise.list';  // whether the list is open, where there is room for it
const narrow = matchMedia('(max-width: 900px)');

export class Sides {
  constructor() {
    this.root = document.documentElement;
    this.buttons = {
      list: iconButton('sidebar', 'Conversations', () => this.toggle('list'), { id: 'list-button', 'aria-controls': 'list' }),
      cache: iconButton('cache', 'Cache', () => this.toggle('cache'), { id: 'cache-button', 'aria-controls': 'cache' }),
    };
    document.getElementById('shade').addEventListener('click', () => this.close());
    const fit = () => this.set('list', !narrow.matches && localStorage.getItem(PLACE) !== 'closed');
    narrow.addEventListener('change', fit);
    this.set('cache', false);
    fit();
  }

  isOpen(side) {
    return this.root.dataset[side] === 'open';
  }

  set(side, open) {
    this.root.dataset[side] = open ? 'open' : 'closed';
    this.buttons[side].setAttribute('aria-expanded', String(open));
  }

  show(side, open) {
    if (open && narrow.matches) this.set(side === 'list' ? 'cache' : 'list', false);
    const inside = document.getElementById(side).contains(document.activeElement);
    this.set(side, open);
    if (!open && inside) this.buttons[side].focus();
    if (side === 'list' && !narrow.matches) {
      try {
        localStorage.setItem(PLACE, open ? 'open' : 'closed');
      } catch {
        // The storage is full.
      }
    }
  }

  toggle(side) {
    this.show(side, !this.isOpen(side));
  }

  // The chat is to be seen: nothing lies over it.
  showChat() {
    if (narrow.matches) for (const side of ['list', 'cache']) this.show(side, false);
  }

  // What was opened last over the chat; false if there is nothing.
  close() {
    const side = ['cache', 'list'].find((one) => this.isOpen(one) && (one === 'cache' || narrow.matches));
    if (!side) return false;
    this.show(side, false);
    return true;
  }
}
