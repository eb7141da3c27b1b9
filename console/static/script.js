// Loads the page again when the server has a new reading, and changes what differs. The page works
// without it.
"use strict";
(() => {
  if (!("live" in document.body.dataset) || !window.EventSource) return;
  const live = () => document.getElementById("live");
  let paused = false, loading = false, again = false, connected = false, tried = false;

  const state = () => {
    const at = live();
    if (!at) return;
    let button = at.querySelector("button");
    if (!button) {
      button = document.createElement("button");
      button.type = "button";
      button.className = "pause";
      button.addEventListener("click", () => { paused = !paused; state(); if (!paused) load(); });
      at.replaceChildren(button);
    }
    button.textContent = paused ? "go on" : "pause";
    button.setAttribute("aria-label", paused ? "Go on with updates" : "Pause updates");
    document.getElementById("lost").hidden = connected || paused || !tried;
  };

  // key says which elements of two states of the page belong together.
  const key = n => n.nodeType === 1 ? n.tagName + "\0" + (n.dataset.key || n.id || "") : String(n.nodeType);

  // morph makes a the same as b, and keeps what is the same.
  const morph = (a, b) => {
    if (a.nodeType !== 1) { if (a.data !== b.data) a.data = b.data; return; }
    if (a.id === "live" || a.id === "lost") return;
    for (const x of [...a.attributes])
      if (!b.hasAttribute(x.name) && !(x.name === "open" && a.tagName === "DETAILS")) a.removeAttribute(x.name);
    for (const x of b.attributes)
      if (a.getAttribute(x.name) !== x.value) a.setAttribute(x.name, x.value);
    if (a.tagName === "SELECT" || a.tagName === "INPUT") return; // what the reader has typed stays
    const old = new Map();
    for (const n of a.childNodes) {
      const k = key(n);
      if (!old.has(k)) old.set(k, []);
      old.get(k).push(n);
    }
    let at = a.firstChild;
    for (const n of [...b.childNodes]) {
      const list = old.get(key(n));
      let use = list && list.shift();
      if (use) morph(use, n);
      else use = document.importNode(n, true);
      if (use === at) at = at.nextSibling;
      else a.insertBefore(use, at);
    }
    while (at) { const next = at.nextSibling; at.remove(); at = next; }
  };

  const load = () => {
    if (paused || document.hidden) { again = true; return; }
    if (loading) { again = true; return; }
    loading = true;
    again = false;
    const r = new XMLHttpRequest();
    r.open("GET", location.href);
    r.responseType = "document";
    r.timeout = 30000;
    r.onload = () => {
      const page = r.response;
      if (!page || !page.getElementById("main") || paused) return;
      if (r.status === 200 || r.status === 503) {
        document.title = page.title;
        morph(document.querySelector("header.top"), page.querySelector("header.top"));
        morph(document.getElementById("main"), page.getElementById("main"));
        document.body.dataset.loads = String(1 + Number(document.body.dataset.loads || 0));
      }
    };
    r.onloadend = () => { loading = false; state(); if (again) setTimeout(load, 200); };
    r.send();
  };

  // A page in the background has no connection: browsers allow few to one server.
  let source = null;
  const connect = () => {
    if (document.hidden) {
      if (source) source.close();
      source = null;
      return;
    }
    if (source) return;
    source = new EventSource("events");
    source.addEventListener("open", () => { connected = true; state(); });
    source.addEventListener("reading", load);
    source.addEventListener("error", () => { connected = false; tried = true; state(); });
    if (again) load();
  };
  document.addEventListener("visibilitychange", connect);
  document.addEventListener("keydown", e => {
    if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) return;
    const box = document.getElementById("prefix");
    if (e.key === "/" && box) { e.preventDefault(); box.focus(); }
  });
  connect();
  state();
})();
