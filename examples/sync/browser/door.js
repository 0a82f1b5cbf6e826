// A node of sync in a browser: rows of one table, kept here, exchanged with a server over the protocol that its
// /openapi.json describes. Everything works without the server; what was done meanwhile is exchanged later.

import { Records } from "./records.js";

const EPOCH_S = 1577836800n; // 2020-01-01, since when keys count seconds
const BATCH_ROWS = 500;
const WAIT_MIN_MS = 1000;
const WAIT_MAX_MS = 10000;
const CLOCK_WARN_MS = 60000;
const NO_ROOM = 507; // for some rows, which the receipt names

export class Door extends EventTarget {
  #records;
  #self;
  #tableId;
  #version;
  #rounds = Promise.resolve();
  #isWanted = false;
  #running = null; // what ends the connection
  #others = new BroadcastChannel("door"); // this page in other tabs

  // `version` is the column with the time of a row's last change.
  static async open(name, tableId, version) {
    const door = new Door();
    door.#tableId = tableId;
    door.#version = version;
    door.#records = await Records.open(`door-${name}`);
    door.#self = await door.#records.transaction(async ({ self }) => {
      const known = await self.get("self");
      if (known) return known;
      const made = {
        nodeId: String(random(8) >> 1n || 1n), // 63 bits
        secret: [...crypto.getRandomValues(new Uint8Array(32))].map((byte) => byte.toString(16).padStart(2, "0")).join(""),
        keyNode: String(random(4) & 0xfffffn),
        lastTick: "0",
        peers: [], // the nodes that it has met
        url: "",
      };
      await self.put(made, "self");
      return made;
    });
    door.#others.onmessage = () => door.#tell("rows");
    return door;
  }

  get nodeId() {
    return this.#self.nodeId;
  }

  // The table, for the page.

  async rows() {
    const found = await this.#records.read(({ rows }) => rows.all());
    return found
      .filter((row) => !row.deleted)
      .sort((one, other) => (BigInt(one.id) < BigInt(other.id) ? -1 : 1))
      .map((row) => ({ ...row.values, id: row.id }));
  }

  insert(values) {
    return this.#change(async (stores, self) => ({ id: nextKey(self), values }));
  }

  update(id, values) {
    return this.#change(async ({ rows }) => {
      const row = await rows.get(id);
      return row && !row.deleted ? { ...row, values: { ...row.values, ...values } } : null;
    });
  }

  remove(id) {
    return this.#change(async ({ rows }) => {
      const row = await rows.get(id);
      return row && !row.deleted ? { ...row, deleted: true } : null;
    });
  }

  // A change made here: it is later than all that was known of the row, and all who were met should get it.
  async #change(make) {
    await this.#records.transaction(async (stores) => {
      const self = await stores.self.get("self");
      const made = await make(stores, self);
      if (made === null) return;
      const before = await stores.rows.get(made.id);
      const time = later(BigInt(Date.now()), before ? BigInt(before.time) + 1n : 0n);
      const row = { deleted: false, ...made, time: String(time), node: self.nodeId };
      row.values = { ...row.values, [this.#version]: row.time };
      await stores.rows.put(row);
      await stores.self.put(self, "self");
      for (const peer of self.peers) await this.#track(stores, peer, row.id, (tracker) => ({ ...tracker, pending: 1 }));
    });
    this.#tell("rows");
    this.#others.postMessage("rows");
    if (this.#running) this.#soon();
  }

  // The server.

  async connect(url, enrol) {
    await this.#note({ url: url.replace(/\/+$/, "") });
    await this.#run(enrol);
  }

  // Goes on with the server that was called last, and says which that is.
  async resume() {
    if (this.#self.url) this.#run("");
    else this.#say("not connected to a server yet");
    return this.#self.url;
  }

  leave() {
    this.#running?.abort();
    this.#running = null;
    this.#say("offline, because you say so");
  }

  // A round, then listening for news, and all over again when the connection is lost. Returns after the first try.
  #run(enrol) {
    this.#running?.abort();
    const ending = (this.#running = new AbortController());
    return new Promise((tried) => this.#keep(ending.signal, enrol, tried));
  }

  async #keep(signal, enrol, tried) {
    let wait = WAIT_MIN_MS;
    while (!signal.aborted) {
      try {
        await this.#round(signal, enrol);
        wait = WAIT_MIN_MS;
        tried();
        await this.#listen(signal);
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Refused && error.status < 429) {
          this.#say(`not connected: ${error.message}`);
          this.#running = null;
          tried();
          return;
        }
        this.#say(`offline: what you do is kept, and sent later (${error.message})`);
        tried();
      }
      await pause(wait, signal);
      wait = Math.min(wait * 2, WAIT_MAX_MS);
    }
  }

  // EventSource cannot send headers, and a secret does not belong into an address: so the stream is read by hand.
  async #listen(signal) {
    const answer = await this.#ask("GET", "subscribe", { signal });
    this.#say("connected");
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) throw new Error("the connection was closed");
      const events = (text + value).split("\n\n");
      text = events.pop();
      if (events.some((event) => event.startsWith("event: INVALIDATE"))) await this.#round(signal, "");
    }
  }

  // A round for all changes that were made until it begins.
  #soon() {
    if (this.#isWanted) return;
    this.#isWanted = true;
    const { signal } = this.#running;
    this.#rounds
      .then(() => {
        this.#isWanted = false;
        return this.#round(signal, "");
      })
      .catch(() => {}); // whoever listens notices, too, and tries again
  }

  // One at a time, over all tabs.
  #round(signal, enrol) {
    const next = this.#rounds.then(() => navigator.locks.request("door-round", () => this.#exchange(signal, enrol)));
    this.#rounds = next.catch(() => {});
    return next;
  }

  async #exchange(signal, enrol) {
    if (signal.aborted) return;
    const peer = await this.#meet(signal, enrol);
    const { tables, empty } = await this.#json("GET", "pending", { signal });
    if (tables.includes(this.#tableId)) await this.#fetch(peer, signal);
    await this.#send(peer, signal, empty.includes(this.#tableId));
  }

  // Who it is. If it was unknown, it gets all rows; the first one says which number keys are made with.
  async #meet(signal, enrol) {
    const told = await this.#json("GET", "node", { signal, enrol });
    const skew = Number(told.time) - Date.now();
    if (Math.abs(skew) > CLOCK_WARN_MS) this.#say(`the server's clock differs by ${Math.round(skew / 1000)} s`);
    await this.#records.transaction(async (stores) => {
      const self = await stores.self.get("self");
      if (self.peers.includes(told.nodeId)) return;
      if (self.peers.length === 0) self.keyNode = String(told.keyNode);
      self.peers.push(told.nodeId);
      await stores.self.put(self, "self");
      for (const row of await stores.rows.all()) {
        if (!row.deleted) await this.#track(stores, told.nodeId, row.id, (tracker) => ({ ...tracker, pending: 1 }));
      }
    });
    return told.nodeId;
  }

  // 1. Versions that are here already are acknowledged. 2. The others come, and are acknowledged when they are kept.
  async #fetch(peer, signal) {
    for await (const page of this.#pages("pendingtrackers", signal, (tracker) => tracker.primaryKey)) {
      const known = await this.#records.read(async ({ rows }) => {
        const here = await Promise.all(page.map((tracker) => rows.get(tracker.primaryKey)));
        return page.filter((tracker, place) => same(here[place], tracker.versionId, tracker.changedBy));
      });
      if (known.length) await this.#acknowledge(known, signal);
    }
    for await (const page of this.#pages("pendingReplication", signal, (row) => row.trkrEntityPrimaryKey)) {
      const acks = await this.#records.transaction((stores) => this.#receive(stores, peer, page));
      this.#tell("rows");
      this.#others.postMessage("rows");
      await this.#acknowledge(acks, signal);
    }
  }

  async #receive(stores, peer, page) {
    const acks = [];
    for (const told of page) {
      const { doorTime: time, doorNode: node, doorDeleted: deleted, trkrEntityPrimaryKey: id, ...values } = told;
      for (const name of Object.keys(values)) if (name.startsWith("trkr")) delete values[name];
      const here = await stores.rows.get(id);
      const isNewer = !here || isAfter({ time, node }, here);
      if (isNewer) await stores.rows.put({ id, time, node, deleted, values: deleted ? here?.values ?? {} : values });
      const pending = isNewer || same(here, time, node) ? 0 : 1; // ours is later: it gets that
      await this.#track(stores, peer, id, () => ({ time, node, pending }));
      const self = await stores.self.get("self");
      for (const other of self.peers) {
        if (isNewer && other !== peer) await this.#track(stores, other, id, (known) => ({ ...known, pending: 1 }));
      }
      acks.push({ primaryKey: id, versionId: told.trkrVersionId, changedBy: node });
    }
    return acks;
  }

  async #send(peer, signal, isEmpty) {
    const left = new Set(); // what the server has no room for stays here, and goes with the next round
    for (;;) {
      const rows = await this.#pending(peer, left);
      if (!rows.length) return;
      const trackers = rows.map((row) => ({ primaryKey: row.id, versionId: row.time, changedBy: row.node }));
      const known = isEmpty ? [] : await this.#json("POST", "checkForEntitiesAlreadyReceived", { signal, body: trackers });
      const there = new Set(known.map((tracker) => tracker.primaryKey));
      const wanted = rows.filter((row) => !there.has(row.id));
      const body = wanted.map((row) => ({
        ...row.values,
        id: row.id,
        doorTime: row.time,
        doorNode: row.node,
        doorDeleted: row.deleted,
      }));
      if (body.length) {
        const receipt = await this.#json("PUT", "receive", { signal, body });
        for (const each of receipt.refused) this.#tell("refused", `${each.primaryKey}: ${each.reason}`);
        for (const each of receipt.left ?? []) left.add(each.primaryKey);
      }
      await this.#records.transaction(async (stores) => {
        for (const row of rows.filter((each) => !left.has(each.id))) {
          const here = await stores.rows.get(row.id);
          const pending = same(here, row.time, row.node) ? 0 : 1; // it may have changed meanwhile
          await this.#track(stores, peer, row.id, () => ({ time: row.time, node: row.node, pending }));
        }
      });
    }
  }

  #pending(peer, left) {
    return this.#records.read(async ({ rows, trackers }) => {
      const found = (await trackers.at("pending", [peer, 1])).filter((each) => !left.has(each.id)).slice(0, BATCH_ROWS);
      return Promise.all(found.map((tracker) => rows.get(tracker.id)));
    });
  }

  async #track({ trackers }, node, id, change) {
    const known = (await trackers.get([node, id])) ?? { pending: 0 };
    await trackers.put({ ...change(known), node, id });
  }

  async #acknowledge(trackers, signal) {
    await this.#ask("PUT", "markReplicateTrackersAsProcessed", { signal, body: trackers });
  }

  // Pages in the order of their keys, each beginning after the last one. Long rows make short pages: the end is empty.
  async *#pages(name, signal, keyOf) {
    let after;
    for (;;) {
      const page = await this.#json("GET", name, { signal, after });
      if (!page.length) return;
      yield page;
      after = keyOf(page.at(-1));
    }
  }

  async #json(method, name, more) {
    return (await this.#ask(method, name, more)).json();
  }

  async #ask(method, name, { signal, body, after, enrol }) {
    const address = new URL(`${this.#self.url}/replication/${name}`);
    if (!["node", "pending", "subscribe"].includes(name)) address.searchParams.set("tableId", this.#tableId);
    if (name.startsWith("pending") && name !== "pending") address.searchParams.set("limit", BATCH_ROWS);
    if (after !== undefined) address.searchParams.set("after", JSON.stringify(after));
    const headers = { "door-node": `${this.#self.nodeId}/${this.#self.secret}`, "door-longs": "string" };
    if (enrol) headers["door-enrol"] = enrol;
    if (body) headers["content-type"] = "application/json";
    const request = { method, headers, signal, cache: "no-store", body: body && JSON.stringify(body) };
    const answer = await fetch(address, request);
    if (!answer.ok && answer.status !== NO_ROOM) {
      const { error } = await answer.json().catch(() => ({}));
      throw new Refused(answer.status, error?.what ?? answer.statusText);
    }
    return answer;
  }

  async #note(changes) {
    this.#self = await this.#records.transaction(async ({ self }) => {
      const noted = { ...(await self.get("self")), ...changes };
      await self.put(noted, "self");
      return noted;
    });
  }

  #say(text) {
    this.#tell("state", text);
  }

  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

// The server has answered, and will say the same again.
class Refused extends Error {
  constructor(status, what) {
    super(what);
    this.status = status;
  }
}

// 31 bits of seconds, 20 bits of the node, 12 bits of a number in the second; never one twice, whatever the clock does.
function nextKey(self) {
  const now = (BigInt(Math.floor(Date.now() / 1000)) - EPOCH_S) << 12n;
  const tick = later(BigInt(self.lastTick) + 1n, now);
  self.lastTick = String(tick);
  return String(((tick >> 12n) << 32n) | (BigInt(self.keyNode) << 12n) | (tick & 0xfffn));
}

// Of two versions of a row the later one counts, of two at the same time that of the node with the greater number.
function isAfter(one, other) {
  const [time, known] = [BigInt(one.time), BigInt(other.time)];
  return time === known ? BigInt(one.node) > BigInt(other.node) : time > known;
}

function same(row, time, node) {
  return row !== undefined && row.time === time && (node === undefined || row.node === node);
}

function later(one, other) {
  return one > other ? one : other;
}

function random(bytes) {
  return crypto.getRandomValues(new Uint8Array(bytes)).reduce((number, byte) => (number << 8n) | BigInt(byte), 0n);
}

// Until the time is over, the network is back, or nobody waits any more.
function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    const end = () => (clearTimeout(timer), resolve());
    addEventListener("online", end, { once: true, signal });
    signal.addEventListener("abort", end, { once: true });
  });
}
