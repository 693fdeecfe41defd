// The model above the chat: which there are, whether they are loaded, how much they can read.
import { h, visible } from '../base/dom.js';
import { count } from '../base/format.js';
import { getJson } from '../base/api.js';

const LOADING_MS = 1000;  // until the state of a model that loads is asked for again

// As a server with several models says it; one that says nothing has it loaded.
const stateOf = (model) => (typeof model.status === 'string' ? model.status : model.status?.value) || '';

export class ModelPicker extends EventTarget {
  // "change": what is chosen, or what is known of it, may be new.
  constructor(settings) {
    super();
    this.settings = settings;
    this.models = [];
    this.select = h('select', {
      id: 'set-model', 'aria-label': 'Model',
      onchange: () => {
        settings.set('model', this.select.value);
        this.draw();
      },
      onfocus: () => this.load(),
    });
    this.context = h('span', { id: 'context', class: 'hint' });
    document.getElementById('model').append(this.select, this.context);
  }

  chosen() {
    return this.models.find(({ id }) => id === this.settings.values.model) ?? this.models[0];
  }

  // Rejects when the server does not say.
  async load() {
    const { data } = await getJson('/v1/models');
    this.models = data;
    if (!data.some(({ id }) => id === this.settings.values.model)) this.settings.set('model', data[0]?.id ?? '');
    this.draw();
    clearTimeout(this.timer);
    if (data.some((model) => stateOf(model) === 'loading')) this.timer = setTimeout(() => this.load().catch(() => {}), LOADING_MS);
  }

  draw() {
    const state = JSON.stringify(this.models.map((model) => [model.id, stateOf(model)]));
    if (state !== this.state) {
      this.state = state;
      this.select.replaceChildren(...this.models.map((model) => h('option', { value: model.id },
        visible(model.id), ['', 'loaded'].includes(stateOf(model)) ? '' : ` (${visible(stateOf(model))})`)));
    }
    this.select.value = this.chosen()?.id ?? '';
    const context = this.chosen()?.max_model_len;
    this.context.textContent = context ? `${count(context)} tokens of context` : '';
    this.dispatchEvent(new Event('change'));
  }
}
