// Keeps the end of the messages in view while they grow, unless the reader has gone elsewhere: whoever scrolls up stays
// where they are until they come back to the end, or ask for it.
import { iconButton } from '../base/icons.js';

const AT_END = 8;  // pixels

export class ReadingPlace {
  // `scroller`: what scrolls. The button to go to the end is put into `place`.
  constructor(scroller, place) {
    this.scroller = scroller;
    this.following = true;
    this.top = 0;
    this.button = iconButton('down', 'Go to the end', () => this.toEnd(), { id: 'to-end', hidden: true });
    place.append(this.button);
    scroller.addEventListener('scroll', () => this.onScroll(), { passive: true });
    new ResizeObserver(() => this.keep()).observe(scroller);
  }

  atEnd() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroller;
    return scrollHeight - scrollTop - clientHeight < AT_END;
  }

  onScroll() {
    if (this.scroller.clientHeight === 0) return;
    const { scrollTop } = this.scroller;
    if (this.atEnd()) this.following = true;
    else if (scrollTop < this.top) this.following = false;
    this.top = scrollTop;
    this.draw();
  }

  // What is shown has changed.
  keep() {
    if (this.following) this.scroller.scrollTop = this.scroller.scrollHeight;
    this.top = this.scroller.scrollTop;
    this.draw();
  }

  toEnd() {
    this.following = true;
    this.keep();
  }

  // Stays at `top` whatever comes.
  stayAt(top) {
    this.following = false;
    this.scroller.scrollTop = top;
    this.following = this.atEnd();
    this.top = this.scroller.scrollTop;
    this.draw();
  }

  draw() {
    this.button.hidden = this.following || this.atEnd();
  }
}
