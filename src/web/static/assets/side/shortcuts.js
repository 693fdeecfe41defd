// Keys for what is done often, and the sheet that lists them.
import { h } from '../base/dom.js';
import { iconButton } from '../base/icons.js';

const MAC = /Mac|iPhone|iPad/.test(navigator.platform);
const named = (key) => key.replace('Mod', MAC ? '⌘' : 'Ctrl').replace('ArrowUp', '↑').replace('Escape', 'Esc');

const inField = (node) => !!node?.closest?.('input, textarea, select, [contenteditable]');

// `keys`: "Mod+Shift+O", "?", "Escape". A key without Mod is left to fields that one writes in.
function matches(keys, event) {
  const parts = keys.split('+');
  const key = parts.pop();
  const mod = MAC ? event.metaKey : event.ctrlKey;
  return event.key.toLowerCase() === key.toLowerCase() && mod === parts.includes('Mod') && !event.altKey &&
    (event.shiftKey === parts.includes('Shift') || key === '?') && (parts.includes('Mod') || key === 'Escape' || !inField(event.target));
}

export class Shortcuts {
  // `list`: [{keys, text, run?}]; one without `run` is only shown. `run` returns false where it does not apply.
  constructor(list) {
    this.list = [...list, { keys: '?', text: 'Show this list', run: () => this.open() }];
    this.dialog = document.getElementById('shortcuts');
    this.dialog.append(h('div', { class: 'row' }, h('h2', { id: 'shortcuts-title' }, 'Keyboard shortcuts'),
      iconButton('close', 'Close', () => this.dialog.close())),
    h('dl', { class: 'keys' }, this.list.map(({ keys, text }) => h('div', {},
      h('dt', {}, named(keys).split('+').map((key) => h('kbd', {}, key))), h('dd', {}, text)))));
    this.dialog.addEventListener('click', (event) => event.target === this.dialog && this.dialog.close());
    document.addEventListener('keydown', (event) => this.onKey(event));
  }

  open() {
    this.dialog.showModal();
  }

  onKey(event) {
    if (event.defaultPrevented || event.isComposing || document.querySelector('dialog[open]')) return;
    const found = this.list.find(({ keys, run }) => run && matches(keys, event));
    if (found && found.run() !== false) event.preventDefault();
  }
}
