// Building DOM nodes. All text on the page goes through text nodes: nothing is ever parsed as HTML.

const SVG = 'http://www.w3.org/2000/svg';

function finish(node, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (name === 'value' || name === 'checked') node[name] = value;
    else node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function h(tag, props = {}, ...children) {
  return finish(document.createElement(tag), props, children);
}

export function svg(tag, props = {}, ...children) {
  return finish(document.createElementNS(SVG, tag), props, children);
}

export function button(text, onclick, props = {}) {
  return h('button', { type: 'button', onclick, ...props }, text);
}

// Control characters and direction overrides would hide or reorder what is there: they are shown by name.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202d\u202e]/g;

export function visible(text) {
  return String(text).replaceAll('\r\n', '\n').replace(HIDDEN, (c) => {
    const code = c.charCodeAt(0);
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    return `[U+${code.toString(16).toUpperCase().padStart(4, '0')}]`;
  });
}

// Runs `draw` at most once per frame however often it is asked for.
export function framed(draw) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      draw();
    });
  };
}
