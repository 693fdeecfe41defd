// How replies are made: sampling, model and tools, for all conversations; and presets of them. Kept in the browser.

const PLACE = 'reprise.settings';
const PRESETS = 'reprise.presets';
const PRESETS_MAX = 50;

// thinking: '' as the model likes, 'on', 'off'. tools: names, separated by commas.
export const DEFAULTS = { model: '', temperature: 0.7, top_p: 0.95, max_tokens: 4096, thinking: '', tools: '' };

function stored(place, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(place)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

function keep(place, value) {
  try {
    localStorage.setItem(place, JSON.stringify(value));
  } catch {
    // The storage is full: the value holds until the page is closed.
  }
}

// The fields of `value` that are settings.
function settingsIn(value) {
  return Object.fromEntries(Object.keys(DEFAULTS).filter((name) => typeof value?.[name] === typeof DEFAULTS[name])
    .map((name) => [name, value[name]]));
}

export class Settings {
  constructor() {
    this.chosen = settingsIn(stored(PLACE, {}));  // by the user, and only that is kept
    this.values = { ...DEFAULTS, ...this.chosen };
    this.canThink = false;  // the model can be told to think or not
    const presets = stored(PRESETS, []);
    this.presets = (Array.isArray(presets) ? presets : []).slice(0, PRESETS_MAX).filter((p) => typeof p?.name === 'string')
      .map((p) => ({ name: p.name, system: typeof p.system === 'string' ? p.system : '', ...settingsIn(p) }));
  }

  set(name, value) {
    this.chosen[name] = this.values[name] = value;
    keep(PLACE, this.chosen);
  }

  tools() {
    return this.values.tools.split(',').filter(Boolean);
  }

  // What the model's makers advise, where nothing was chosen.
  advise(advice) {
    for (const name of ['temperature', 'top_p']) {
      // Rounded: 0.9 may have come as 0.89999998.
      if (!(name in this.chosen) && typeof advice[name] === 'number') this.values[name] = Math.round(advice[name] * 1000) / 1000;
    }
  }

  // Keeps the present settings and this system prompt under a name; a preset of that name is replaced.
  savePreset(name, system) {
    const { model, ...values } = this.values;  // the model is chosen above the chat
    this.presets = [...this.presets.filter((p) => p.name !== name), { name, system, ...values }].slice(-PRESETS_MAX);
    keep(PRESETS, this.presets);
  }

  removePreset(name) {
    this.presets = this.presets.filter((p) => p.name !== name);
    keep(PRESETS, this.presets);
  }

  // Takes the settings of a preset; its system prompt is the caller's to set.
  apply(preset) {
    for (const [name, value] of Object.entries(settingsIn(preset))) this.set(name, value);
  }

  // The part of a request that they make.
  request() {
    const { model, temperature, top_p, max_tokens, thinking } = this.values;
    return { ...(model && { model }), temperature, top_p, max_tokens, ...(this.canThink && thinking && { enable_thinking: thinking === 'on' }) };
  }
}
