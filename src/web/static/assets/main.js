// Puts the page together.
import { apiKey, getJson } from './base/api.js';
import { iconButton } from './base/icons.js';
import './base/theme.js';
import { CacheFeed } from './cache/cache_feed.js';
import { CachePanel } from './cache/cache_panel.js';
import { ChatView } from './chat/chat_view.js';
import { Conversations } from './side/conversations.js';
import { KeyDialog } from './side/key_dialog.js';
import { ListView } from './side/list_view.js';
import { ModelPicker } from './side/model_picker.js';
import { Settings } from './side/settings.js';
import { SettingsView } from './side/settings_view.js';
import { Shelf } from './side/shelf.js';
import { Shortcuts } from './side/shortcuts.js';
import { Sides } from './side/sides.js';

const sides = new Sides();
const conversations = await Conversations.open(await Shelf.open());
const settings = new Settings();
const feed = new CacheFeed();
const panel = new CachePanel(feed, () => sides.show('cache', false));
const settingsView = new SettingsView(conversations, settings);
const picker = new ModelPicker(settings);

const keyButton = iconButton('key', 'API key', () => keyDialog.open(''), { id: 'key-button', hidden: true });
const keyDialog = new KeyDialog(() => feed.restart());

const chat = new ChatView({
  conversations, settings, runScenario,
  openSettings: () => settingsView.open(),
  showReport: (message) => {
    sides.show('cache', true);
    panel.showReport(message.request_id);
  },
  failed: (message) => message.status === 401 && keyDialog.open(message.error),
});
picker.addEventListener('change', () => chat.setSees(!!picker.chosen()?.capabilities?.includes('vision')));
const list = new ListView(conversations, () => sides.showChat());
settingsView.addEventListener('change', () => chat.draw());

const shortcuts = new Shortcuts([
  { keys: 'Enter', text: 'Send the message' },
  { keys: 'Shift+Enter', text: 'New line in the message' },
  { keys: 'ArrowUp', text: 'In an empty field: edit the last message' },
  { keys: 'Mod+K', text: 'Search the conversations', run: () => { sides.show('list', true); list.search.focus(); } },
  { keys: 'Mod+Shift+O', text: 'New conversation', run: () => list.begin() },
  { keys: 'Mod+Shift+E', text: 'Regenerate the last reply', run: () => chat.regenerateLast() },
  { keys: 'Mod+B', text: 'Show or hide the conversations', run: () => sides.toggle('list') },
  { keys: 'Mod+.', text: 'Show or hide the cache', run: () => sides.toggle('cache') },
  { keys: 'Mod+,', text: 'Settings', run: () => settingsView.open() },
  { keys: '/', text: 'Go to the message field', run: () => document.getElementById('input').focus() },
  { keys: 'Escape', text: 'Stop the reply, or close what is open', run: () => chat.stop() || sides.close() },
]);

document.getElementById('top-start').append(sides.buttons.list);
document.getElementById('top-end').append(keyButton, sides.buttons.cache,
  iconButton('help', 'Keyboard shortcuts', () => shortcuts.open(), { id: 'shortcuts-button' }),
  iconButton('settings', 'Settings', () => settingsView.open(), { id: 'settings-button' }));

let running = false;

async function runScenario(scenario) {
  if (running) return;
  running = true;
  sides.showChat();
  const app = {
    open: (more) => conversations.add(more),
    send: (text, options) => chat.send(text, options),
    edit: (index, text, options) => chat.edit(index, text, options),
  };
  let result;
  try {
    result = await scenario.run(app, picker.chosen()?.max_model_len || 4096);
  } catch (error) {
    result = { error: `The scenario did not finish: ${error.message}` };
  }
  running = false;
  conversations.current.guide = { title: scenario.title, ...result };
  conversations.save();
  conversations.changed();
  chat.scrollToEnd();
}

async function loadModel() {
  try {
    const [props] = await Promise.all([getJson('/props'), picker.load()]);
    settingsView.setModel(!!props.thinking, props.default_generation_settings?.params || {});
  } catch {
    // The line to the server says what is wrong.
  }
}

function showLink() {
  if (feed.link === 'live' && picker.models.length === 0) loadModel();
  const place = document.getElementById('link');
  if (feed.status === 401 || apiKey.get()) keyButton.hidden = false;
  if (feed.status === 401) keyDialog.open(feed.link);
  place.className = feed.link === 'live' ? 'live' : '';
  place.textContent = { live: 'Live', connecting: 'Connecting…' }[feed.link] || feed.link;
}

feed.addEventListener('link', showLink);
showLink();
