import { icon } from '../base/icons.js';
import { h } from '../base/dom.js';

// `text`: called when it is needed.
export function copyButton(text) {
  const copy = h('button', { type: 'button', class: 'copy icon-button', 'aria-label': 'Copy', title: 'Copy' }, icon('copy'));
  const show = (picture, label) => {
    copy.replaceChildren(icon(picture));
    copy.title = label;
    copy.setAttribute('aria-label', label);
  };
  copy.addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(text());
      show('done', 'Copied');
    } catch {
      show('close', 'The browser does not allow copying here');  // the page is not served securely
    }
    setTimeout(() => show('copy', 'Copy'), 2000);
  });
  return copy;
}
