// The live view of the cache: the server pushes it when something has changed, without the parts we have.
import { events } from '../base/api.js';

const WAIT_MIN = 1000;
const WAIT_MAX = 15000;

export class CacheFeed extends EventTarget {
  // "view": this.view is new. "link": this.link is new ("live", "connecting", or what is wrong; this.status then says
  // what the server answered).
  constructor() {
    super();
    this.view = null;
    this.link = 'connecting';
    this.abort = null;
    document.addEventListener('visibilitychange', () => (document.hidden ? this.abort?.abort() : this.restart()));
    if (!document.hidden) this.restart();
  }

  // At once, e.g. with a new key.
  restart() {
    this.abort?.abort();
    this.abort = new AbortController();
    this.setLink('connecting');
    this.watch(this.abort.signal);
  }

  setLink(link, status = 200) {
    if (link === this.link) return;
    this.link = link;
    this.status = status;
    this.dispatchEvent(new Event('link'));
  }

  async watch(signal) {
    let wait = WAIT_MIN;
    while (!signal.aborted) {
      try {
        for await (const view of events('/v1/cache/events', { signal })) {
          wait = WAIT_MIN;
          this.take(view);
        }
        this.setLink('connecting');
      } catch (error) {
        if (signal.aborted) return;
        this.setLink(error.message, error.status);
        if (error.status === 401 || error.status === 403) return;
      }
      await new Promise((done) => setTimeout(done, wait));
      wait = Math.min(WAIT_MAX, 2 * wait);
    }
  }

  take(view) {
    const old = this.view || {};
    this.freshTree = !!view.tree;
    this.view = { ...view, tree: view.tree || old.tree, reports: view.reports || old.reports || [] };
    this.setLink('live');
    this.dispatchEvent(new Event('view'));
  }
}
