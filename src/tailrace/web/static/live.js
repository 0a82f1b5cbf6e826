// Changes what has changed on the page, and nothing else: what has the focus, is scrolled or is about to be clicked on
// stays as it is. The page can be read without this.
"use strict";

const SILENT_MS = 25000; // the server says something every ten seconds
const AGAIN_MS = 3000;
const stale = document.getElementById("stale");
let known = document.getElementById("main").dataset.known;
let silent;

function become(old, fresh) {
  if (old.nodeName !== fresh.nodeName) {
    old.replaceWith(fresh);
  } else if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
  } else {
    for (const { name } of [...old.attributes]) {
      if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
    }
    for (const { name, value } of fresh.attributes) {
      if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value); // open is the reader's
    }
    const was = [...old.childNodes];
    const is = [...fresh.childNodes];
    is.forEach((child, place) => (place < was.length ? become(was[place], child) : old.append(child)));
    was.slice(is.length).forEach((child) => child.remove());
  }
}

function show(name, html) {
  const section = document.getElementById("s-" + name);
  if (!section) {
    location.reload();
    return;
  }
  const fresh = section.cloneNode(false);
  fresh.innerHTML = html;
  become(section, fresh);
}

function listen() {
  const events = new EventSource("/events?known=" + encodeURIComponent(known));
  const again = () => {
    events.close();
    clearTimeout(silent);
    stale.hidden = false;
    setTimeout(listen, AGAIN_MS);
  };
  const heard = () => {
    stale.hidden = true;
    clearTimeout(silent);
    silent = setTimeout(again, SILENT_MS); // a connection may be dead without anybody being told
  };
  events.onopen = heard;
  events.addEventListener("beat", heard);
  events.onmessage = (event) => {
    heard();
    known = event.lastEventId;
    for (const [name, html] of Object.entries(JSON.parse(event.data))) {
      show(name, html);
    }
  };
  events.onerror = again;
}

listen();
