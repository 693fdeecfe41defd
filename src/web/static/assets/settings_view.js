// System prompt of the conversation, model and sampling for all of them.
import { h } from './dom.js';
import { DEFAULTS } from './settings.js';

function numberField(settings, name, label, min, max, step) {
  const input = h('input', {
    type: 'number', min, max, step, id: `set-${name}`, value: settings.values[name],
    onchange: () => {
      const value = Number(input.value);
      const good = input.value !== '' && Number.isFinite(value) && value >= min && value <= max;
      settings.set(name, good ? value : DEFAULTS[name]);
      input.value = settings.values[name];
    },
  });
  return h('label', {}, label, input);
}

export class SettingsView {
  constructor(conversations, settings) {
    this.conversations = conversations;
    this.settings = settings;
    this.system = h('textarea', {
      rows: '3', id: 'system', placeholder: 'None',
      onchange: () => {
        conversations.current.system = this.system.value;
        conversations.save();
      },
    });
    this.model = h('select', { id: 'set-model', onchange: () => settings.set('model', this.model.value) });
    const thinking = h('select', { id: 'set-thinking', onchange: () => settings.set('thinking', thinking.value) },
      h('option', { value: '' }, 'As the model likes'), h('option', { value: 'on' }, 'Yes'), h('option', { value: 'off' }, 'No'));
    thinking.value = settings.values.thinking;
    this.thinking = h('label', { hidden: true }, 'Think before the answer', thinking);
    document.getElementById('settings').append(h('summary', {}, 'Settings'),
      h('div', { class: 'fields' },
        h('label', { class: 'wide' }, 'System prompt of this conversation', this.system),
        h('label', {}, 'Model', this.model),
        numberField(settings, 'temperature', 'Temperature', 0, 2, 0.1),
        numberField(settings, 'top_p', 'Top p', 0, 1, 0.05),
        numberField(settings, 'max_tokens', 'Tokens of a reply, at most', 1, 1000000, 1),
        this.thinking));
    conversations.addEventListener('change', () => this.draw());
    this.draw();
  }

  draw() {
    if (document.activeElement !== this.system) this.system.value = this.conversations.current.system;
  }

  // `advice`: sampling as the model's makers want it.
  setModels(ids, canThink, advice) {
    this.settings.advise(advice);
    for (const name of ['temperature', 'top_p']) document.getElementById(`set-${name}`).value = this.settings.values[name];
    this.model.replaceChildren(...ids.map((id) => h('option', { value: id }, id)));
    if (!ids.includes(this.settings.values.model)) this.settings.set('model', ids[0] || '');
    this.model.value = this.settings.values.model;
    this.settings.canThink = canThink;
    this.thinking.hidden = !canThink;
  }
}
