// Puts the page together.
import { apiKey, getJson } from './api.js';
import { CacheFeed } from './cache_feed.js';
import { CachePanel } from './cache_panel.js';
import { ChatView } from './chat_view.js';
import { Conversations } from './conversations.js';
import { count } from './format.js';
import { KeyDialog } from './key_dialog.js';
import { ListView } from './list_view.js';
import { Settings } from './settings.js';
import { SettingsView } from './settings_view.js';

const conversations = new Conversations();
const settings = new Settings();
const feed = new CacheFeed();
const panel = new CachePanel(feed);
const settingsView = new SettingsView(conversations, settings);
const keyDialog = new KeyDialog(() => feed.restart());
let context = 0;  // tokens; 0: the model is not known yet

// On narrow screens one part at a time.
function show(part) {
  document.documentElement.dataset.view = part;
  for (const tab of document.querySelectorAll('#views button')) {
    tab.setAttribute('aria-pressed', String(tab.dataset.show === part));
  }
}

const chat = new ChatView({
  conversations, settings, runScenario,
  showReport: (message) => {
    show('cache');
    panel.showReport(message.request_id);
  },
  failed: (message) => message.status === 401 && keyDialog.open(message.error),
});
new ListView(conversations, () => show('chat'));

let running = false;

async function runScenario(scenario) {
  if (running) return;
  running = true;
  show('chat');
  const app = {
    open: (more) => conversations.add(more),
    send: (text, options) => chat.send(text, options),
    edit: (index, text, options) => chat.edit(index, text, options),
  };
  let result;
  try {
    result = await scenario.run(app, context || 4096);
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
  const name = document.getElementById('model');
  try {
    const [models, props] = await Promise.all([getJson('/v1/models'), getJson('/props')]);
    const ids = models.data.map((model) => model.id);
    context = models.data[0].max_model_len;
    name.textContent = `${ids[0]} · ${count(context)} tokens of context`;
    settingsView.setModels(ids, !!props.thinking,
      props.default_generation_settings?.params || {});
  } catch (error) {
    name.textContent = '';
  }
}

function showLink() {
  if (feed.link === 'live' && context === 0) loadModel();
  const place = document.getElementById('link');
  if (feed.status === 401 || apiKey.get()) document.getElementById('key-button').hidden = false;
  if (feed.status === 401) keyDialog.open(feed.link);
  place.className = feed.link === 'live' ? 'live' : '';
  place.textContent = { live: 'Live', connecting: 'Connecting…' }[feed.link] || feed.link;
}

for (const tab of document.querySelectorAll('#views button')) {
  tab.addEventListener('click', () => show(tab.dataset.show));
}
feed.addEventListener('link', showLink);
showLink();
show('chat');
