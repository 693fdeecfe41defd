// Small pictures for buttons, drawn as strokes in a square of 24.
import { h, svg } from './dom.js';

const PATHS = {
  attach: 'M8 12.5l6.5-6.5a3 3 0 0 1 4.2 4.2l-8.4 8.4a5 5 0 0 1-7-7L11.5 3.4',
  cache: 'M6 4v10a4 4 0 0 0 4 4h3M6 9h7M16 6.5h4v5h-4zM16 15.5h4v5h-4z',
  close: 'M6 6l12 12M18 6L6 18',
  continue: 'M5 5v14l8-7zM17 5v14',
  copy: 'M9 9h11v11H9zM5 15H4V4h11v1',
  delete: 'M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13M10 11v5M14 11v5',
  done: 'M5 13l4 4L19 7',
  down: 'M12 5v14M6 13l6 6 6-6',
  edit: 'M4 20l1-4L16 5l3 3L8 19z',
  export: 'M12 15V4M8 8l4-4 4 4M5 14v6h14v-6',
  file: 'M6 3h8l4 4v14H6zM14 3v4h4',
  folder: 'M3 6h6l2 2h10v11H3z',
  help: 'M9 9a3 3 0 1 1 4 2.8c-.7.3-1 .9-1 1.7v.5M12 17.5v.5M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18z',
  key: 'M14 10a4 4 0 1 1-2-3.5M11.5 12.5L20 21M17 18l2-2',
  new: 'M12 5v14M5 12h14',
  next: 'M9 5l7 7-7 7',
  previous: 'M15 5l-7 7 7 7',
  regenerate: 'M19 8a8 8 0 1 0 1 6M20 3v5h-5',
  send: 'M12 19V5M6 11l6-6 6 6',
  settings: 'M4 7h9M19 7h1M4 17h1M11 17h9M13 7a3 3 0 1 0 6 0 3 3 0 0 0-6 0zM5 17a3 3 0 1 0 6 0 3 3 0 0 0-6 0z',
  sidebar: 'M4 5h16v14H4zM10 5v14',
  stop: 'M7 7h10v10H7z',
};

export function icon(name) {
  return svg('svg', { class: 'icon', viewBox: '0 0 24 24', 'aria-hidden': 'true' }, svg('path', { d: PATHS[name] }));
}

// A button that is a picture; `label` is its name, and shown when it is pointed at.
export function iconButton(name, label, onclick, props = {}) {
  return h('button', { type: 'button', 'aria-label': label, title: label, onclick, ...props, class: `icon-button ${props.class ?? ''}`.trim() },
    icon(name));
}
