"use strict";
// Shows times in the zone and by the clock of the viewer, with UTC after them, in one form. Without it, they are in UTC.
const times = (() => {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
  const format = (style, timeZone) => new Intl.DateTimeFormat(undefined, { ...style, timeZone }).format;
  const day = { dateStyle: "medium" };
  const second = { timeStyle: "medium" };
  const both = { ...day, ...second };
  const [dayHere, dayInUtc] = [format(day, zone), format(day, "UTC")];
  const [here, inUtc, timeInUtc] = [format(both, zone), format(both, "UTC"), format(second, "UTC")];
  const minute = format({ timeStyle: "short" }, zone);

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
      if ("clock" in time.dataset) time.textContent = minute(date);
      else if ("exact" in time.dataset) time.textContent = exact(date);
      else time.title = exact(date);
    }
  };

  show(document);
  return { show, minute };
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
  let graphAt = 0;
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
    if (name === "graph" && calm.matches) {
      if (Date.now() - graphAt < 10000) return;
      graphAt = Date.now();
    }
    for (const part of document.querySelectorAll(`[data-live="${CSS.escape(name)}"]`)) {
      if (isSelected(part)) return;
      const old = document.activeElement;
      const place = controls(part).indexOf(old);
      part.innerHTML = html;
      times.show(part);
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

  // A row without news of its own has ended, if the event says that it names all rows.
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

// Keeps the relative times of a page true while it is open; the words are those of showing.py.
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

// What a chart shows at the pointer or the finger, in words below it.
for (const kind of ["pointerover", "click"]) {
  document.addEventListener(kind, (event) => {
    const place = event.target.closest && event.target.closest(".chart .place");
    if (!place) return;
    const { at, says } = place.dataset;
    const words = at ? `${times.minute(new Date(at))}: ${says}` : says;
    place.closest(".chart").querySelector(".pointed").textContent = words;
  });
}

// An open menu closes by Escape, and by a click beside it.
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
