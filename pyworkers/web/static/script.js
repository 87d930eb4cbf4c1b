"use strict";
// Shows times in the zone and by the clock of the viewer, with UTC after them, in one form. Without it, they are in UTC.
const times = (() => {
  const own = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
  const isKnown = (name) => {
    try {
      return Boolean(new Intl.DateTimeFormat(undefined, { timeZone: name }));
    } catch {
      return false;
    }
  };
  // The zone that a person has chosen.
  const { zoneKept } = document.documentElement.dataset;
  const zone = zoneKept && isKnown(zoneKept) ? zoneKept : own;
  const format = (style, timeZone) => new Intl.DateTimeFormat(undefined, { ...style, timeZone }).format;
  const day = { dateStyle: "medium" };
  const second = { timeStyle: "medium" };
  const both = { ...day, ...second };
  const [dayHere, dayInUtc] = [format(day, zone), format(day, "UTC")];
  const [here, inUtc, timeInUtc] = [format(both, zone), format(both, "UTC"), format(second, "UTC")];
  const [minute, minuteOfDay] = [
    format({ timeStyle: "short" }, zone),
    format({ weekday: "short", hour: "numeric", minute: "2-digit" }, zone),
  ];
  // Below a chart and at its pointer: another day than today has its name.
  const clock = (date) => (dayHere(date) === dayHere(new Date()) ? minute : minuteOfDay)(date);

  const exact = (date) => {
    if (here(date) === inUtc(date)) return `${here(date)} UTC`;
    return `${here(date)} (${(dayHere(date) === dayInUtc(date) ? timeInUtc : inUtc)(date)} UTC)`;
  };

  const show = (part) => {
    for (const name of part.querySelectorAll("[data-zone]")) name.textContent = zone;
    for (const field of part.querySelectorAll("[data-zone-name]")) field.value = zone;
    for (const time of part.querySelectorAll("time")) {
      const date = new Date(time.dateTime);
      if (isNaN(date)) continue;
      if ("clock" in time.dataset) time.textContent = clock(date);
      else if ("exact" in time.dataset) time.textContent = exact(date);
      else time.title = exact(date);
    }
  };

  show(document);
  return { show, clock };
})();

// What a chart shows at the pointer or the finger, in words below it.
const pointing = (() => {
  const charts = (part) => [...part.querySelectorAll(".chart")];
  const places = (chart) => [...chart.querySelectorAll(".place")];
  let pointed = null;

  const say = (chart, place) => {
    const { at, says } = place.dataset;
    chart.querySelector(".pointed").textContent = at ? `${times.clock(new Date(at))}: ${says}` : says;
  };

  for (const kind of ["pointerover", "click"]) {
    document.addEventListener(kind, (event) => {
      const place = event.target.closest && event.target.closest(".chart .place");
      if (!place) return;
      const [chart, part] = [place.closest(".chart"), place.closest("[data-live]")];
      pointed = part && [part, charts(part).indexOf(chart), places(chart).indexOf(place)];
      say(chart, place);
    });
  }

  // A chart that was replaced says what the old one said; a finger stays where it was.
  const again = (part) => {
    if (!pointed || pointed[0] !== part) return;
    const chart = charts(part)[pointed[1]];
    const place = chart && places(chart)[pointed[2]];
    if (place) say(chart, place);
  };
  return { again };
})();

// Replaces the live parts of a page, once a second, by fragments from the one event stream. Every page works
// without it.
(() => {
  const address = document.body.dataset.events;
  if (!address || !window.EventSource) return;
  const banner = document.querySelector('.banner[data-live="away"]');
  const calm = window.matchMedia("(prefers-reduced-motion: reduce)");
  const shown = new Map();
  let stream = null;
  let again = 0;
  let last = Date.now();
  const drawn = new Map();
  let said = banner ? banner.innerHTML : "";

  const feeds = () => new Set([...document.querySelectorAll("[data-feed]")].map((part) => part.dataset.feed));

  // Without a feed, only the banner is wanted.
  const wanted = () => "?" + ([...feeds()].map((feed) => "feed=" + encodeURIComponent(feed)).join("&") || "feed=");

  const say = (html) => {
    if (!banner || said === html) return;
    said = html;
    banner.innerHTML = html;
    times.show(banner);
    banner.hidden = !html;
    // The page only says that Redis is away, and Redis answers again.
    if (!html && "reload" in banner.dataset) location.reload();
  };

  // The controls in a part, in order: the focus returns to the same link, or to the one at the same place.
  const controls = (part) => [...part.querySelectorAll("a, summary, [tabindex]")];

  const isSelected = (part) => {
    const selection = document.getSelection();
    return selection && !selection.isCollapsed && selection.containsNode(part, true);
  };

  const replace = (name, html) => {
    if (name === "away") return say(html);
    if (shown.get(name) === html) return;
    // A moving graph is redrawn every ten seconds only, for those who want less motion.
    if (["graph", "graph_table"].includes(name) && calm.matches) {
      if (Date.now() - (drawn.get(name) || 0) < 10000) return;
      drawn.set(name, Date.now());
    }
    for (const part of document.querySelectorAll(`[data-live="${CSS.escape(name)}"]`)) {
      if (isSelected(part)) return;
      const old = document.activeElement;
      const place = controls(part).indexOf(old);
      part.innerHTML = html;
      times.show(part);
      pointing.again(part);
      if (place < 0) continue;
      const now = controls(part);
      const here = now[place] || document.getElementById("main");
      const same = here.href === old.href ? here : now.find((control) => control.href === old.href);
      (same || here).focus({ preventScroll: true });
    }
    shown.set(name, html);
  };

  // The tab's title begins with the count of the page, or with the number of problems.
  const bare = document.title.replace(/^\([^)]*\) /, "");
  const entitle = () => {
    const own = document.querySelector(".pages [aria-current=page] .count");
    const count = (own && own.textContent) || document.querySelector(".groups .count")?.textContent;
    document.title = count ? `(${count}) ${bare}` : bare;
  };

  // A row without its own news has ended, if the event says that it names all rows.
  const end = (parts) => {
    for (const part of document.querySelectorAll("[data-ended]")) {
      const name = part.dataset.live;
      if (part.dataset.ended in parts && !(name in parts)) replace(name, '<span class="note">ended</span>');
    }
  };

  const close = () => {
    if (stream) stream.close();
    stream = null;
    clearTimeout(again);
  };

  const open = () => {
    close();
    last = Date.now();
    stream = new EventSource(address + wanted());
    stream.onmessage = (message) => {
      last = Date.now();
      const parts = JSON.parse(message.data).parts;
      for (const name of Object.keys(parts)) replace(name, parts[name]);
      end(parts);
      entitle();
    };
    stream.onerror = () => {
      // The browser tries again by itself, unless the answer was an error.
      if (stream && stream.readyState === EventSource.CLOSED) again = setTimeout(open, 5000);
    };
  };

  setInterval(() => {
    if (stream && Date.now() - last > 5000) {
      const since = new Date(last).toLocaleTimeString();
      say(`This page has had no news from the dashboard since ${since}. It tries again by itself.`);
    }
  }, 1000);

  const follow = () => (document.hidden ? close() : open());
  document.addEventListener("visibilitychange", follow);
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", (event) => event.persisted && follow());
  follow();
})();

// Keeps the relative times of a page true while it is open; the words are the same as in showing.py.
(() => {
  const units = [["d", 86400, 172800], ["h", 3600, 3600], ["min", 60, 60], ["s", 1, 1]];
  const isRelative = /^(now|in [\d,]+ \w+|[\d,]+ \w+ ago)$/;
  // The clock of the viewer may be wrong.
  const ahead = Date.now() / 1000 - Number(document.body.dataset.now);

  const distance = (seconds) => {
    const unit = units.find(([, , from]) => Math.abs(seconds) >= from);
    if (!unit) return "now";
    const words = `${Math.floor(Math.abs(seconds) / unit[1]).toLocaleString("en")} ${unit[0]}`;
    return seconds > 0 ? `in ${words}` : `${words} ago`;
  };

  setInterval(() => {
    const selection = document.getSelection();
    if (document.hidden || (selection && !selection.isCollapsed)) return;
    const now = Date.now() / 1000 - ahead;
    for (const time of document.querySelectorAll("main time")) {
      if (!isRelative.test(time.textContent)) continue;
      const words = distance(Date.parse(time.dateTime) / 1000 - now);
      if (words !== time.textContent) time.textContent = words;
    }
  }, 1000);
})();

// On a telephone, the pages in the header are one row that scrolls: the current one is in sight.
for (const here of document.querySelectorAll("header [aria-current]")) {
  const row = here.closest("ul");
  row.scrollLeft = here.offsetLeft - row.offsetLeft - (row.clientWidth - here.offsetWidth) / 2;
}

// The check box that selects all jobs of a page; hidden without a script.
for (const part of document.querySelectorAll("label.all")) {
  const all = part.querySelector("input");
  const boxes = [...all.form.querySelectorAll('input[name="job"]')];
  all.addEventListener("change", () => boxes.forEach((box) => (box.checked = all.checked)));
  all.form.addEventListener("change", () => (all.checked = boxes.every((box) => box.checked)));
  part.hidden = false;
}

// Enter in a field of a list would press the first button of the form, which acts on all jobs.
document.addEventListener("keydown", (event) => {
  const field = event.key === "Enter" && event.target.closest && event.target.closest("input");
  if (field && field.form && field.form.matches("form.jobs")) event.preventDefault();
});

// An open menu closes by Escape, and by a click outside it.
document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});
document.addEventListener("keydown", (event) => {
  const menu = event.key === "Escape" && event.target.closest && event.target.closest("details.menu[open]");
  if (!menu) return;
  menu.open = false;
  menu.querySelector("summary").focus();
});

// The buttons that copy an id; hidden without a script.
for (const button of document.querySelectorAll(".copy")) button.hidden = false;
document.addEventListener("click", async (event) => {
  const button = event.target.closest && event.target.closest(".copy");
  if (!button) return;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
  } catch {
    // Over HTTP from another machine, browsers have no clipboard for pages: the text is selected, and copied as by a key.
    const field = document.createElement("input");
    field.value = button.dataset.copy;
    button.after(field);
    field.select();
    document.execCommand("copy");
    field.remove();
    button.focus();
  }
  button.classList.add("done");
  setTimeout(() => button.classList.remove("done"), 1500);
});

// What this browser keeps: recent and saved filters, and whether keys of one character are used. Addresses hold the filters
// themselves, so that a link shares them; nothing of it is in Redis.
const kept = (() => {
  const place = `pyworkers:${document.querySelector(".brand")?.pathname}`;
  const usual = { saved: [], recent: [], keys: true };

  const read = () => {
    try {
      return { ...usual, ...JSON.parse(localStorage.getItem(place)) };
    } catch {
      return usual;
    }
  };

  const write = (changes) => {
    try {
      localStorage.setItem(place, JSON.stringify({ ...read(), ...changes }));
    } catch {
      // The browser keeps nothing for pages, or no more.
    }
  };

  const without = (list, href) => list.filter((one) => one.href !== href);
  const remember = (one) => write({ recent: [one, ...without(read().recent, one.href)].slice(0, 8) });
  const save = (one) => write({ saved: [...without(read().saved, one.href), one].slice(-50) });
  const remove = (href) => write({ saved: without(read().saved, href), recent: without(read().recent, href) });
  document.querySelector('form[action$="/logout"]')?.addEventListener("submit", () => write({ recent: [] }));
  return { read, write, remember, save, remove };
})();

const element = (tag, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
};

// The menu of recent and saved filters, with the filters of a list. A link to a saved one has its name behind the #.
(() => {
  const form = document.querySelector("main form.filter[role=search]");
  if (!form) return;
  const isSet = (field) => (field.tagName === "SELECT" ? field.selectedIndex > 0 : field.type !== "hidden" && field.value);
  const fields = [...form.elements].filter((field) => field.name && isSet(field));
  const value = (field) => (field.tagName === "SELECT" ? field.selectedOptions[0].text : field.value);
  const query = new URLSearchParams(location.search);
  for (const name of ["from", "first", "page", "after", "columns"]) query.delete(name);
  const here = `${location.pathname}?${query}`;
  const words = fields.map((field) => `${field.labels[0].firstChild.textContent.trim()} ${value(field)}`).join(", ");
  const own = `${document.querySelector("h1").textContent}: ${words}`.slice(0, 120);
  if (fields.length) kept.remember({ name: own, href: here });

  const list = element("ul");
  const name = element("input", { type: "text", maxLength: 60, required: true });
  const saving = element("form", {}, element("label", {}, "Name ", name), " ", element("button", {}, "Save this filter"));
  const summary = element("summary");
  const menu = element("details", { className: "menu saved" }, summary, element("div", {}, list, saving));

  const show = () => {
    const { saved, recent } = kept.read();
    const mine = saved.find((one) => one.href === here);
    name.value = mine?.name ?? new URLSearchParams(location.hash.slice(1)).get("filter") ?? "";
    summary.textContent = name.value ? `Filter: ${name.value}` : "Saved filters";
    const others = recent.filter((one) => !saved.some((other) => other.href === one.href));
    const entry = (one, hash, note) => {
      const remove = element("button", { type: "button", ariaLabel: `Forget ${one.name}` }, "Forget");
      remove.addEventListener("click", () => (kept.remove(one.href), show(), summary.focus()));
      const link = element("a", { href: one.href + hash }, element("bdi", {}, one.name));
      return element("li", {}, link, element("span", { className: "note" }, note), remove);
    };
    const lines = [
      ...saved.map((one) => entry(one, `#${new URLSearchParams({ filter: one.name })}`, "")),
      ...others.map((one) => entry(one, "", " recent")),
    ];
    list.replaceChildren(...lines);
    menu.hidden = !lines.length;
  };

  saving.hidden = !fields.length;
  saving.addEventListener("submit", (event) => {
    event.preventDefault();
    kept.save({ name: name.value.trim(), href: here });
    show();
    summary.focus();
  });
  const line = document.querySelector(".actions.over");
  if (line) line.append(menu);
  else (form.closest("details") || form).after(menu);
  show();
})();

// The palette: what the text names, from the dashboard; saved and recent filters, from this browser.
const palette = (() => {
  const dialog = document.querySelector("dialog.palette");
  if (!dialog) return null;
  const [input, list, status] = ["input", "[role=listbox]", "[role=status]"].map((part) => dialog.querySelector(part));
  const root = document.querySelector(".brand").pathname;
  const box = document.querySelector("form.find input");
  let asked = null;
  let due = 0;
  // The text that the list is about: Enter for a newer one leads to the page.
  let about = null;

  const options = () => [...list.children];
  const active = () => list.querySelector("[aria-selected=true]");

  const choose = (option) => {
    active()?.setAttribute("aria-selected", "false");
    option?.setAttribute("aria-selected", "true");
    option?.scrollIntoView({ block: "nearest" });
    if (option) input.setAttribute("aria-activedescendant", option.id);
    else input.removeAttribute("aria-activedescendant");
  };

  const show = (text, found) => {
    const shown = found.filter(({ href }) => href && new URL(href, location.href).origin === location.origin);
    const made = shown.map(({ kind, name, href, about }, number) => {
      const words = element("span", { className: "note" }, [about, kind].filter(Boolean).join(" · "));
      const option = element("a", { href, id: `finding-${number}`, role: "option", tabIndex: -1 }, element("bdi", {}, name), words);
      option.setAttribute("aria-selected", "false");
      return option;
    });
    list.replaceChildren(...made);
    about = text;
    choose(made[0]);
    const away = found.filter((one) => !one.href || one.kind === "away").map((one) => `${one.name}: ${one.about}`);
    status.textContent = [`${made.length} found`, ...away].join(". ");
  };

  const filters = (text) => {
    const { saved, recent } = kept.read();
    const marked = [...saved.map((one) => ({ ...one, kind: "saved filter" })), ...recent.map((one) => ({ ...one, kind: "recent filter" }))];
    return marked.filter((one) => one.name.toLowerCase().includes(text.toLowerCase()));
  };

  const ask = async () => {
    const text = input.value.trim();
    asked?.abort();
    asked = new AbortController();
    try {
      const answer = await fetch(`${root}api/find?${new URLSearchParams({ q: text })}`, { signal: asked.signal });
      const found = await answer.json();
      if (!answer.ok) throw new Error(found.error);
      show(text, [...filters(text), ...found]);
    } catch (error) {
      if (error.name === "AbortError") return;
      show(text, filters(text));
      status.textContent = `The dashboard does not find names now: ${error.message}`;
    }
  };

  const go = () => {
    const text = input.value.trim();
    const option = about === text && active();
    if (option) location.assign(option.href);
    else if (text) location.assign(`${root}find?${new URLSearchParams({ q: text })}`);
  };

  input.addEventListener("input", () => {
    clearTimeout(due);
    due = setTimeout(ask, 150);
  });
  input.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    const all = options();
    const place = all.indexOf(active());
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && all.length) choose(all.at((place + step) % all.length));
    else if (event.key === "Enter") go();
    else return;
    event.preventDefault();
  });
  // A click outside closes it.
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  box.setAttribute("aria-keyshortcuts", "/");

  return () => {
    input.value = "";
    list.replaceChildren();
    about = null;
    dialog.showModal();
    ask();
  };
})();

// Keys of one character, as other consoles have them; none of them while a person types, or with Ctrl, Alt or ⌘.
(() => {
  const dialog = document.querySelector("dialog.keys");
  if (!dialog) return;
  const use = dialog.querySelector("input");
  use.checked = kept.read().keys;
  use.addEventListener("change", () => kept.write({ keys: use.checked }));
  const opener = document.querySelector(".to-keys");
  opener.hidden = false;
  opener.addEventListener("click", () => dialog.showModal());
  const fields = "textarea, select, input:not([type=checkbox], [type=radio]), [contenteditable]";
  const rows = () => [...document.querySelectorAll("main tbody tr")].filter((row) => row.getClientRects().length);
  const current = () => document.activeElement.closest("main tbody tr");

  const move = (step) => {
    const all = rows();
    const place = all.indexOf(current());
    const row = all[place < 0 ? 0 : Math.min(Math.max(place + step, 0), all.length - 1)];
    if (!row) return;
    const control = row.querySelector("th a") || row.querySelector("a, summary, button, input:not([type=hidden])") || row;
    if (control === row) row.tabIndex = -1;
    control.focus({ preventScroll: true });
    row.scrollIntoView({ block: "nearest" });
  };

  const act = () => {
    const menu = current()?.querySelector("td[data-label=Actions] details.menu");
    if (menu) menu.open = true;
    current()?.querySelector("td[data-label=Actions] button")?.focus();
  };

  const actions = {
    "/": palette,
    j: () => move(1),
    k: () => move(-1),
    x: () => current()?.querySelector("[name=job]")?.click(),
    ".": act,
    "?": () => dialog.showModal(),
  };

  document.addEventListener("keydown", (event) => {
    const action = Object.hasOwn(actions, event.key) && actions[event.key];
    if (!action || !use.checked || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.target.closest?.(fields) || document.querySelector("dialog[open]")) return;
    event.preventDefault();
    action();
  });
})();
