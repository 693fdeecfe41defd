// How replies are made: sampling and model, for all conversations, kept in the browser.

const PLACE = 'reprise.settings';

export const DEFAULTS = { model: '', temperature: 0.7, top_p: 0.95, max_tokens: 256, thinking: false };

export class Settings {
  constructor() {
    this.values = { ...DEFAULTS };
    try {
      const stored = JSON.parse(localStorage.getItem(PLACE) || '{}');
      for (const name of Object.keys(DEFAULTS)) {
        if (typeof stored[name] === typeof DEFAULTS[name]) this.values[name] = stored[name];
      }
    } catch {
      // Unreadable: the defaults.
    }
  }

  set(name, value) {
    this.values[name] = value;
    try {
      localStorage.setItem(PLACE, JSON.stringify(this.values));
    } catch {
      // The storage is full: the value holds until the page is closed.
    }
  }

  // The part of a request that they make.
  request() {
    const { model, temperature, top_p, max_tokens, thinking } = this.values;
    return {
      ...(model && { model }), temperature, top_p, max_tokens,
      ...(thinking && { chat_template_kwargs: { enable_thinking: true } }),
    };
  }
}
