// How replies are made: sampling and model, for all conversations, kept in the browser.

const PLACE = 'reprise.settings';

// thinking: '' as the model likes, 'on', 'off'.
export const DEFAULTS = { model: '', temperature: 0.7, top_p: 0.95, max_tokens: 4096, thinking: '' };

export class Settings {
  constructor() {
    this.values = { ...DEFAULTS };
    this.chosen = {};  // by the user, and only that is kept
    this.canThink = false;  // the model can be told to think or not
    try {
      const stored = JSON.parse(localStorage.getItem(PLACE) || '{}');
      for (const name of Object.keys(DEFAULTS)) {
        if (typeof stored[name] === typeof DEFAULTS[name]) this.chosen[name] = this.values[name] = stored[name];
      }
    } catch {
      // Unreadable: the defaults.
    }
  }

  set(name, value) {
    this.chosen[name] = this.values[name] = value;
    try {
      localStorage.setItem(PLACE, JSON.stringify(this.chosen));
    } catch {
      // The storage is full: the value holds until the page is closed.
    }
  }

  // What the model's makers advise, where nothing was chosen.
  advise(advice) {
    for (const name of ['temperature', 'top_p']) {
      // Rounded: 0.9 may have come as 0.89999998.
      if (!(name in this.chosen) && typeof advice[name] === 'number') this.values[name] = Math.round(advice[name] * 1000) / 1000;
    }
  }

  // The part of a request that they make.
  request() {
    const { model, temperature, top_p, max_tokens, thinking } = this.values;
    return { ...(model && { model }), temperature, top_p, max_tokens, ...(this.canThink && thinking && { enable_thinking: thinking === 'on' }) };
  }
}
