// Where an API key is entered.
import { h, button } from '../base/dom.js';
import { apiKey } from '../base/api.js';

export class KeyDialog {
  constructor(changed) {
    this.dialog = document.getElementById('key-dialog');
    this.why = h('p', { class: 'error', role: 'alert', id: 'key-why' });
    this.input = h('input', { type: 'password', id: 'key-input', autocomplete: 'off', 'aria-describedby': 'key-why' });
    const form = h('form', { method: 'dialog' },
      h('h2', { id: 'key-title' }, 'API key'), this.why,
      h('label', {}, 'Key', this.input),
      h('p', { class: 'hint' }, 'Kept in this tab until it is closed, and sent to this server only.'),
      h('div', { class: 'buttons' }, button('Cancel', () => this.dialog.close()),
        h('button', { class: 'main', id: 'key-save' }, 'Use this key')));
    form.addEventListener('submit', () => {
      apiKey.set(this.input.value.trim());
      changed();
    });
    this.dialog.append(form);
  }

  open(why) {
    this.why.textContent = why;
    this.input.value = apiKey.get();
    if (!this.dialog.open) this.dialog.showModal();
    this.input.focus();
  }
}
