// The model above the chat: which there are, whether they are loaded, how much they can read.
import { h, visible } from '../base/dom.js';
import { count } from '../base/format.js';
import { events, getJson } from '../base/api.js';

const LOADING_MS = 1000;  // until the state of a model that loads is asked for again

// As a server with several models says it; one that says nothing has it loaded.
const stateOf = (model) => (typeof model.status === 'string' ? model.status : model.status?.value) || '';
const isLoading = (model) => stateOf(model) === 'loading';

// What stands behind the name of a model that is not loaded: " (sleeping)", " (loading 42 %)".
function noteOf(model) {
  if (['', 'loaded'].includes(stateOf(model))) return '';
  const progress = model.status?.progress;
  return ` (${visible(stateOf(model))}${progress > 0 ? ` ${Math.round(100 * progress)} %` : ''})`;
}

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
    if (data.some(isLoading)) this.watch();
  }

  // How much of a model is read, as the server says it, until none is being read any more.
  async watch() {
    if (this.watching) return;
    this.watching = new AbortController();
    try {
      for await (const { models } of events('/models/sse', { signal: this.watching.signal })) {
        if (!models) continue;  // of a download
        const states = new Map(models.map(({ id, status }) => [id, status]));
        this.models = this.models.map((model) => ({ ...model, status: states.get(model.id) ?? model.status }));
        this.draw();
        if (!models.some(isLoading)) break;
      }
    } catch {
      // A server that does not say is asked again.
    }
    this.watching.abort();
    this.watching = null;
    // What is known of a model that was loaded is more than its state.
    setTimeout(() => this.load().catch(() => {}), this.models.some(isLoading) ? LOADING_MS : 0);
  }

  draw() {
    const state = JSON.stringify(this.models.map((model) => [model.id, noteOf(model)]));
    if (state !== this.state) {
      this.state = state;
      this.select.replaceChildren(...this.models.map((model) => h('option', { value: model.id },
        visible(model.id), noteOf(model))));
    }
    this.select.value = this.chosen()?.id ?? '';
    const context = this.chosen()?.max_model_len;
    this.context.textContent = context ? `${count(context)} tokens of context` : '';
    this.dispatchEvent(new Event('change'));
  }
}
