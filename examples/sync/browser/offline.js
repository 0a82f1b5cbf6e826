// Lets the page be opened without a network: its files are taken from the server if that answers, else as they were.

const FILES = ["./", "todo.css", "todo.js", "door.js", "records.js"];

self.addEventListener("install", (event) => {
  event.waitUntil(caches.open("page").then((cache) => cache.addAll(FILES)));
});
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));
self.addEventListener("fetch", (event) => {
  if (event.request.method !== "GET" || new URL(event.request.url).origin !== self.location.origin) return;
  event.respondWith(
    fetch(event.request).then(
      async (answer) => {
        if (answer.ok) await (await caches.open("page")).put(event.request, answer.clone());
        return answer;
      },
      async () => (await caches.match(event.request)) ?? Response.error(),
    ),
  );
});
