// What the page keeps, in IndexedDB. Numbers of 64 bits are text everywhere: JavaScript's own numbers have only 53.
//
// self      what this node is: id, secret, the number for keys, its last key, which server it calls
// rows      one record for each row, with its stamp (time and node of its last change); those that are gone stay, too
// trackers  for each row and each other node: which version that node has, and whether it should get another one

const STORES = ["self", "rows", "trackers"];

export class Records {
  #database;

  static async open(name) {
    const records = new Records();
    records.#database = await new Promise((resolve, reject) => {
      const opening = indexedDB.open(name, 1);
      opening.onupgradeneeded = () => {
        opening.result.createObjectStore("self");
        opening.result.createObjectStore("rows", { keyPath: "id" });
        const trackers = opening.result.createObjectStore("trackers", { keyPath: ["node", "id"] });
        trackers.createIndex("pending", ["node", "pending"]);
      };
      opening.onsuccess = () => resolve(opening.result);
      opening.onerror = () => reject(opening.error);
    });
    return records;
  }

  // One transaction over everything: all of it, or after an exception nothing. `work` may await nothing else.
  async transaction(work, mode = "readwrite") {
    const transaction = this.#database.transaction(STORES, mode, { durability: "strict" });
    const ended = new Promise((resolve, reject) => {
      transaction.oncomplete = resolve;
      transaction.onabort = () => reject(transaction.error ?? new Error("aborted"));
    });
    const stores = Object.fromEntries(STORES.map((name) => [name, new Store(transaction.objectStore(name))]));
    try {
      const result = await work(stores);
      await ended;
      return result;
    } catch (error) {
      ended.catch(() => {});
      try {
        transaction.abort();
      } catch {
        // it has ended already
      }
      throw error;
    }
  }

  read(work) {
    return this.transaction(work, "readonly");
  }
}

class Store {
  #store;

  constructor(store) {
    this.#store = store;
  }

  get(key) {
    return answer(this.#store.get(key));
  }

  all() {
    return answer(this.#store.getAll());
  }

  at(index, key) {
    return answer(this.#store.index(index).getAll(IDBKeyRange.only(key)));
  }

  put(value, key) {
    return answer(this.#store.put(value, key));
  }
}

function answer(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}
