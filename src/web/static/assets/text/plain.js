// A text as it is, but for code between fences, which is shown as such.
import { h, visible } from '../base/dom.js';
import { codeBlock } from './code.js';

export function plainText(text) {
  const parts = [];
  let part = { lines: [] };
  for (const line of text.split('\n')) {
    const fence = part.close ? null : /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]{0,40})/.exec(line);
    if (fence) {
      parts.push(part);
      part = { lines: [], language: fence[2], close: new RegExp(`^ {0,3}\\${fence[1][0]}{${fence[1].length},}\\s*$`) };
    } else if (part.close?.test(line)) {
      parts.push(part);
      part = { lines: [] };
    } else part.lines.push(line);
  }
  parts.push(part);
  return h('div', { class: 'text plain', dir: 'auto' }, parts.filter(({ lines, close }) => close || lines.length > 0)
    .map(({ lines, close, language }) => (close ? codeBlock(lines.join('\n'), language) : h('p', {}, visible(lines.join('\n'))))));
}
