// Where the browser keeps conversations: in IndexedDB, which has room for years of them (local storage ends at 5 MB), each
// under its own key as JSON. Two tabs can write without losing what the other wrote, and hear of it.
const DATABASE = 'reprise';
const STORE = 'conversations';
const PLACE = 'reprise.conversation.';      // in local storage, until version 0.1
const OLD_PLACE = 'reprise.conversations';  // there, all in one

// What local storage still has: [[id, JSON], ...]
function leftBehind() {
  const texts = Object.keys(localStorage).filter((key) => key.startsWith(PLACE))
    .map((key) => [key.slice(PLACE.length), localStorage.getItem(key)]);
  try {
    const list = JSON.parse(localStorage.getItem(OLD_PLACE) || '[]');
    if (!Array.isArray(list)) return texts;
    return [...texts, ...list.map((c, i) => [c?.id, JSON.stringify({ changed: list.length - i, ...c })]).filter(([id]) => typeof id === 'string' && id)];
  } catch {
    return texts;  // unreadable
  }
}

function openDatabase() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(DATABASE, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE);
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

export class Shelf {
  // A browser that lets pages keep nothing has an empty shelf, to which nothing can be written.
  static async open() {
    let database = null;
    try {
      database = await openDatabase();
      database.onversionchange = () => database.close();  // a newer page wants it
    } catch {
      // As said above.
    }
    const shelf = new Shelf(database);
    await shelf.move();
    return shelf;
  }

  constructor(database) {
    this.database = database;
    this.tabs = new BroadcastChannel('reprise.conversations');
    this.heard = () => {};  // another tab has written {id, json}, or deleted {id}
    this.tabs.onmessage = ({ data }) => this.heard(data);
  }

  // Takes over what local storage has; it goes there only when it is safe here.
  async move() {
    const texts = this.database ? leftBehind() : [];
    try {
      if (texts.length > 0) await this.transact((store) => texts.forEach(([id, json]) => store.put(json, id)));
      for (const [id] of texts) localStorage.removeItem(PLACE + id);
      if (this.database) localStorage.removeItem(OLD_PLACE);
    } catch {
      // No room: it stays where it is.
    }
  }

  // Runs `work` on the store; settles when what it did is kept, or is not.
  transact(work, mode = 'readwrite') {
    return new Promise((resolve, reject) => {
      let request;
      const transaction = this.database.transaction(STORE, mode);
      transaction.oncomplete = () => resolve(request?.result);
      transaction.onabort = () => reject(transaction.error);
      request = work(transaction.objectStore(STORE));
    });
  }

  // The JSON of all conversations.
  async all() {
    return this.database ? this.transact((store) => store.getAll(), 'readonly') : [];
  }

  async write(id, json) {
    await this.transact((store) => store.put(json, id));
    this.tabs.postMessage({ id, json });
  }

  async remove(id) {
    if (this.database) await this.transact((store) => store.delete(id));
    this.tabs.postMessage({ id });
  }
}
