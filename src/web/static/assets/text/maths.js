// Formulas in TeX, drawn by KaTeX. One that it cannot draw, or that defines commands of its own (which may take forever),
// is shown as it was written.
import { h, visible } from '../base/dom.js';
import { loadScript, loadStyle } from '../base/library.js';

const LONG = 4000;  // characters
const DEFINES = /\\(?:[gex]?def|let|futurelet|global|long|(?:re|provide)?newcommand|renewcommand|providecommand|newenvironment)(?![a-zA-Z])/;
const OPTIONS = { throwOnError: true, trust: false, strict: 'ignore', maxSize: 20, maxExpand: 200, output: 'htmlAndMathml' };

function draw(node, tex, display) {
  try {
    globalThis.katex.render(tex, node, { ...OPTIONS, displayMode: display });
    node.classList.add('drawn');
  } catch {
    node.replaceChildren(visible(node.dataset.source));
  }
}

// `source`: with its dollars or brackets.
export function formula(tex, display, source) {
  const node = h('span', { class: display ? 'maths display' : 'maths', 'data-source': source, tabindex: display ? '0' : null }, visible(source));
  if (tex.length > LONG || DEFINES.test(tex)) return node;
  if (globalThis.katex) draw(node, tex, display);
  else {
    Promise.all([loadScript('/assets/lib/katex.js'), loadStyle('/assets/lib/katex.css')])
      .then(() => draw(node, tex, display), () => {});
  }
  return node;
}

// Where formulas are, for the parser of Markdown. Every pattern is bounded.
const INLINE = [/^\$(?![\s$])((?:\\[^\n]|[^\\$\n]){1,1000}?)(?<!\s)\$(?![\w$])/, /^\\\(((?:[^\\\n]|\\(?!\))){1,1000})\\\)/];
const BLOCK = [/^ {0,3}\$\$((?:[^\\$]|\\[^]|\$(?!\$)){1,4000}?)\$\$[ \t]*(?:\n|$)/, /^ {0,3}\\\[((?:[^\\]|\\(?!\])){1,4000}?)\\\][ \t]*(?:\n|$)/];
const DISPLAY = [/^\$\$((?:\\[^\n]|[^\\$\n]){1,2000}?)\$\$/, /^\\\[((?:[^\\\n]|\\(?!\])){1,2000}?)\\\]/];
const AHEAD = 4000;  // characters in which the next block is looked for

function token(name, patterns, display, src) {
  for (const pattern of patterns) {
    const match = pattern.exec(src);
    if (match && match[1].trim()) return { type: name, raw: match[0], tex: match[1].trim(), display };
  }
  return undefined;
}

const first = (...places) => Math.min(...places.map((at) => (at < 0 ? Infinity : at)));

export const MATHS = [
  {
    name: 'mathsBlock', level: 'block',
    start: (src) => {
      const at = src.slice(0, AHEAD).search(/(?<=^|\n) {0,3}(?:\$\$|\\\[)/);
      return at < 0 ? undefined : at;
    },
    tokenizer: (src) => token('mathsBlock', BLOCK, true, src),
  },
  {
    name: 'maths', level: 'inline',
    start: (src) => {
      const at = first(src.indexOf('$'), src.indexOf('\\('), src.indexOf('\\['));
      return at === Infinity ? undefined : at;
    },
    tokenizer: (src) => token('maths', DISPLAY, true, src) ?? token('maths', INLINE, false, src),
  },
];
