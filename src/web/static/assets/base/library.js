// Libraries that are loaded when they are first needed: from this server, like everything else.
import { h } from './dom.js';

const loading = new Map();

// Resolves when the script has run; rejects when it cannot be had.
export function loadScript(url, props = {}) {
  if (!loading.has(url)) {
    loading.set(url, new Promise((done, failed) => {
      document.head.append(h('script', { src: url, onload: done, onerror: failed, ...props }));
    }));
  }
  return loading.get(url);
}

export function loadStyle(url) {
  if (!loading.has(url)) {
    loading.set(url, new Promise((done, failed) => {
      document.head.append(h('link', { rel: 'stylesheet', href: url, onload: done, onerror: failed }));
    }));
  }
  return loading.get(url);
}
