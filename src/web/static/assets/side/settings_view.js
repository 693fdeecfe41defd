// The dialog of settings: this conversation's system prompt and form of replies; sampling, tools and colours for all of
// them; presets.
import { h, button, visible } from '../base/dom.js';
import { iconButton } from '../base/icons.js';
import { THEMES, setTheme, theme } from '../base/theme.js';
import { CHOICES } from '../chat/tools.js';
import { DEFAULTS } from './settings.js';

const NUMBERS = [['temperature', 'Temperature', 0, 2, 0.1], ['top_p', 'Top p', 0, 1, 0.05], ['max_tokens', 'Maximum reply tokens', 1, 1000000, 1]];

export class SettingsView extends EventTarget {
  // "change": something that the chat shows has changed.
  constructor(conversations, settings) {
    super();
    this.conversations = conversations;
    this.settings = settings;
    this.dialog = document.getElementById('settings');
    this.makeConversation();
    this.makeThinking();
    this.makePresets();
    this.dialog.append(
      h('div', { class: 'row' }, h('h2', { id: 'settings-title' }, 'Settings'), iconButton('close', 'Close', () => this.dialog.close(), { id: 'settings-close' })),
      this.presetRow,
      this.group('This conversation', h('label', { class: 'wide' }, 'System prompt', this.system),
        h('details', { class: 'wide', id: 'schema-part' }, h('summary', {}, 'Replies as JSON'),
          h('label', {}, 'JSON schema that every reply must match', this.schema), this.schemaProblem)),
      this.group('Replies', ...NUMBERS.map((field) => this.numberField(...field)), this.thinking),
      this.group('Tools that the model may use', ...CHOICES.map((choice) => this.toolField(choice))),
      this.group('This page', this.makeTheme()),
      h('p', { class: 'hint' }, 'Everything is kept in this browser. ',
        h('a', { href: '/assets/lib/licences.txt', target: '_blank', rel: 'noopener' }, 'Libraries and their licences')));
    this.dialog.addEventListener('click', (event) => event.target === this.dialog && this.dialog.close());
    conversations.addEventListener('change', () => this.draw());
    this.draw();
  }

  open() {
    this.draw();
    this.dialog.showModal();
  }

  changed() {
    this.dispatchEvent(new Event('change'));
  }

  group(title, ...fields) {
    return h('fieldset', {}, h('legend', {}, title), h('div', { class: 'fields' }, fields));
  }

  makeConversation() {
    const { conversations } = this;
    this.system = h('textarea', {
      rows: '3', id: 'system', placeholder: 'None',
      onchange: () => {
        conversations.current.system = this.system.value;
        conversations.save();
      },
    });
    this.schemaProblem = h('p', { class: 'error', role: 'alert', id: 'schema-problem' });
    this.schema = h('textarea', {
      rows: '5', id: 'schema', spellcheck: 'false', placeholder: '{"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}',
      onchange: () => this.takeSchema(),
    });
  }

  takeSchema() {
    const { current } = this.conversations;
    const text = this.schema.value.trim();
    this.schemaProblem.textContent = '';
    try {
      const value = text && JSON.parse(text);
      if (text && (value === null || typeof value !== 'object' || Array.isArray(value))) throw new Error('it is not an object');
    } catch (error) {
      this.schemaProblem.textContent = `This is not a schema: ${error.message}. Replies stay free until it is.`;
    }
    if (text && !this.schemaProblem.textContent) current.schema = text;
    else delete current.schema;
    this.conversations.save();
    this.changed();
  }

  makeThinking() {
    const { settings } = this;
    const select = h('select', { id: 'set-thinking', onchange: () => settings.set('thinking', select.value) },
      h('option', { value: '' }, 'As the model likes'), h('option', { value: 'on' }, 'Yes'), h('option', { value: 'off' }, 'No'));
    this.thinking = h('label', { hidden: true }, 'Think before the answer', select);
  }

  makeTheme() {
    const select = h('select', { id: 'set-theme', onchange: () => setTheme(select.value) },
      Object.entries(THEMES).map(([value, label]) => h('option', { value }, label)));
    select.value = theme();
    return h('label', {}, 'Colours', select);
  }

  numberField(name, label, min, max, step) {
    const { settings } = this;
    const input = h('input', {
      type: 'number', min, max, step, id: `set-${name}`,
      onchange: () => {
        const value = Number(input.value);
        const good = input.value !== '' && Number.isFinite(value) && value >= min && value <= max;
        settings.set(name, good ? value : DEFAULTS[name]);
        input.value = settings.values[name];
      },
    });
    return h('label', {}, label, input);
  }

  toolField({ name, title, about }) {
    const box = h('input', {
      type: 'checkbox', id: `tool-${name}`,
      onchange: () => {
        const names = this.settings.tools().filter((other) => other !== name);
        this.settings.set('tools', [...names, ...(box.checked ? [name] : [])].join(','));
        this.changed();
      },
    });
    return h('label', { class: 'check wide' }, box, h('span', {}, title, h('span', { class: 'hint' }, `: ${about}`)));
  }

  makePresets() {
    this.preset = h('select', { id: 'preset', 'aria-label': 'Preset', onchange: () => this.applyPreset() });
    this.presetName = h('input', {
      id: 'preset-name', maxlength: '60', placeholder: 'Name', 'aria-label': 'Name of a new preset',
      onkeydown: (event) => {
        if (event.key !== 'Enter' || event.isComposing) return;
        event.preventDefault();
        this.savePreset();
      },
    });
    this.presetRemove = iconButton('delete', 'Delete this preset', () => this.removePreset(), { id: 'preset-remove', disabled: true });
    this.presetRow = h('fieldset', {}, h('legend', {}, 'Presets'), h('div', { class: 'presets' }, this.preset,
      this.presetRemove, this.presetName,
      button('Save as preset', () => this.savePreset(), { id: 'preset-save' })));
  }

  applyPreset() {
    const preset = this.settings.presets.find(({ name }) => name === this.preset.value);
    if (!preset) return;
    this.settings.apply(preset);
    this.conversations.current.system = preset.system;
    this.conversations.save();
    this.draw();
    this.choosePreset(preset.name);
    this.changed();
  }

  savePreset() {
    const name = this.presetName.value.trim();
    if (!name) return this.presetName.focus();
    this.settings.savePreset(name, this.system.value);
    this.presetName.value = '';
    this.draw();
    this.choosePreset(name);
  }

  choosePreset(name) {
    this.chosenPreset = name;
    this.preset.value = name;
    this.presetRemove.disabled = !name;
  }

  removePreset() {
    this.settings.removePreset(this.preset.value);
    this.draw();
  }

  draw() {
    const { current } = this.conversations;
    const { settings } = this;
    if (document.activeElement !== this.system) this.system.value = current.system;
    if (document.activeElement !== this.schema && !this.schemaProblem.textContent) this.schema.value = current.schema ?? '';
    for (const [name] of NUMBERS) this.field(`set-${name}`).value = settings.values[name];
    this.field('set-thinking').value = settings.values.thinking;
    for (const { name } of CHOICES) this.field(`tool-${name}`).checked = settings.tools().includes(name);
    this.preset.replaceChildren(h('option', { value: '' }, settings.presets.length > 0 ? 'Choose a preset' : 'No presets yet'),
      ...settings.presets.map(({ name }) => h('option', { value: name }, visible(name))));
    this.choosePreset(settings.presets.some(({ name }) => name === this.chosenPreset) ? this.chosenPreset : '');
  }

  field(id) {
    return this.dialog.querySelector(`#${id}`);
  }

  // `advice`: sampling as the model's makers want it.
  setModel(canThink, advice) {
    this.settings.advise(advice);
    this.settings.canThink = canThink;
    this.thinking.hidden = !canThink;
    this.draw();
  }
}
