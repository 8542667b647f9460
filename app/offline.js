// Keeps the page for offline use. Files whose names change with their content come from what is kept;
// index.html, which names them, from the server while there is one. scripts/web fills in the two lists.
const KEPT = "pipewright-HASH";
const FILES = ["FILES"];
const base = new URL("./", location).pathname;

addEventListener("install", (event) => {
  skipWaiting();
  event.waitUntil(caches.open(KEPT).then((cache) => cache.addAll(FILES)));
});

addEventListener("activate", (event) => {
  const old = (name) => name.startsWith("pipewright-") && name !== KEPT;
  const swept = caches.keys().then((names) => Promise.all(names.filter(old).map((name) => caches.delete(name))));
  event.waitUntil(swept.then(() => clients.claim()));
});

addEventListener("fetch", (event) => {
  const url = new URL(event.request.url);
  if (event.request.method !== "GET" || url.origin !== location.origin) return;
  const path = url.pathname.slice(base.length);
  if (path === "" || path === "index.html") {
    event.respondWith(fetch(event.request).catch(() => caches.match("index.html")));
  } else if (FILES.includes(path)) {
    event.respondWith(caches.match(event.request).then((kept) => kept ?? fetch(event.request)));
  }
});
