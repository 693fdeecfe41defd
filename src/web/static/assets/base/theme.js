// Light, dark, or as the system has it: kept in the browser.
const PLACE = 'reprise.theme';

export const THEMES = { system: 'As the system', light: 'Light', dark: 'Dark' };

export function theme() {
  const stored = localStorage.getItem(PLACE);
  return stored in THEMES ? stored : 'system';
}

export function setTheme(name) {
  try {
    if (name === 'system') localStorage.removeItem(PLACE);
    else localStorage.setItem(PLACE, name);
  } catch {
    // The storage is full: it holds until the page is closed.
  }
  document.documentElement.dataset.theme = name;
}

setTheme(theme());
