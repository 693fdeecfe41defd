// Where an API key is entered.
import { h, button } from './dom.js';
import { apiKey } from './api.js';

export class KeyDialog {
  constructor(changed) {
    this.dialog = document.getElementById('key-dialog');
    this.why = h('p', { class: 'error', role: 'alert', id: 'key-why' });
    this.input = h('input', { type: 'password', id: 'key-input', autocomplete: 'off', 'aria-describedby': 'key-why' });
    const form = h('form', { method: 'dialog' },
      h('h2', { id: 'key-title' }, 'API key'), this.why,
      h('label', {}, 'Key', this.input),
      h('p', { class: 'hint' }, 'Kept in this tab until it is closed, and sent to this server only.'),
      h('div', { class: 'foot' }, h('button', { class: 'main', id: 'key-save' }, 'Use this key'),
        button('Cancel', () => this.dialog.close())));
    form.addEventListener('submit', () => {
      apiKey.set(this.input.value.trim());
      changed();
    });
    this.dialog.append(form);
    document.getElementById('key-button').addEventListener('click', () => this.open(''));
  }

  open(why) {
    this.why.textContent = why;
    this.input.value = apiKey.get();
    if (!this.dialog.open) this.dialog.showModal();
    this.input.focus();
  }
}
